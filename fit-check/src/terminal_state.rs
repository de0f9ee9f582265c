//! Puts a terminal back as it was before a user's program ran.

use std::io::{IsTerminal, Write};
#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(unix)]
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};

use crate::interrupt;

/// Whether a program has sent a terminal what switches a mode on or off: `ESC [ ?` (DEC private modes, "XTerm Control
/// Sequences").
static MODES_CHANGED: AtomicBool = AtomicBool::new(false);

/// What switches off what programs for terminals switch on: the alternate screen, reports of the mouse, of the focus and of
/// what is pasted; what shows the cursor; and what ends colours.
const RESET: &[u8] = b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?25h\x1b[0m";

/// The state of the terminal of this process, which is put back when this is dropped, and when a signal ends the process.
#[derive(Debug)]
pub struct TerminalState {
    /// The terminal that a standard stream leads to, if one does, and its settings: whether it echoes, and whether it
    /// passes on lines or keys.
    #[cfg(unix)]
    saved: Option<(BorrowedFd<'static>, Termios)>,
}

impl TerminalState {
    /// Remembers the state.
    pub fn save() -> Self {
        #[cfg(unix)]
        {
            let state = Self { saved: settings() };
            let saved = state.saved.clone();
            interrupt::at_end(move || {
                put_back(saved.as_ref());
                None
            });
            state
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Looks through what a program sends to the terminal.
    pub fn observe(output: &[u8]) {
        if output.windows(3).any(|bytes| bytes == b"\x1b[?") {
            MODES_CHANGED.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for TerminalState {
    fn drop(&mut self) {
        #[cfg(unix)]
        put_back(self.saved.as_ref());
    }
}

#[cfg(unix)]
fn settings() -> Option<(BorrowedFd<'static>, Termios)> {
    // SAFETY: the standard streams stay open.
    let streams = [0, 1, 2].map(|stream| unsafe { BorrowedFd::borrow_raw(stream) });
    let terminal = |stream: BorrowedFd<'static>| Some((stream, tcgetattr(stream).ok()?));
    streams.into_iter().find_map(terminal)
}

#[cfg(unix)]
fn put_back(saved: Option<&(BorrowedFd<'_>, Termios)>) {
    if let Some((terminal, settings)) = saved
        // Otherwise nothing is set: that stops a process in the background.
        && tcgetattr(terminal).is_ok_and(|now| now != *settings)
    {
        let _ = tcsetattr(terminal, SetArg::TCSADRAIN, settings);
    }
    let mut stderr = std::io::stderr();
    if MODES_CHANGED.swap(false, Ordering::Relaxed) && stderr.is_terminal() {
        let _ = stderr.write_all(RESET);
    }
}
