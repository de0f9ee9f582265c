//! Ctrl-C, and on Unix SIGTERM, by which `timeout` and a cluster's scheduler end a job, and SIGHUP, which a terminal
//! sends when it closes: the program has a moment to show its results so far, and then ends.
//!
//! Each child process is ended by the module that starts it:
//!
//! - `user_program.rs`, a user's program: it is in a process group of its own, which is ended with all that the program
//!   started.
//! - `measure/parent.rs`, a process that measures: it is killed when its `Process` is dropped.
//! - `commands/table/row_process.rs`, a row of a table: it is in a process group of its own, so that a terminal's
//!   Ctrl-C does not reach it.
//! - `serve/answer.rs`, a question of the page: it is killed when its `Running` is dropped.
//! - `cargo/build.rs`, cargo.
//!
//! On Linux the system kills each of them when this program ends (`child_process::end_with_parent`), however it ends.
//! That is all that ends a row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;

/// The last signal that asked the program to end, or 0.
static REQUESTED: AtomicI32 = AtomicI32::new(0);

/// What is left to do if the program does not end by itself; none before signals are watched for, and once the
/// program writes its answer.
static AT_END: Mutex<Option<Vec<Act>>> = Mutex::new(None);

type Act = Box<dyn FnOnce() -> Option<u8> + Send>;

/// How long the program may take to end by itself: a run on a simulated card cannot be stopped midway.
const EXIT_TIMEOUT: Duration = Duration::from_millis(700);

/// Remembers from now on that a signal asked the program to end. If it does not end within [`EXIT_TIMEOUT`] and `grace`
/// then, or at a second signal, this ends it.
///
/// # Errors
///
/// The system does not allow a handler.
pub fn watch(grace: Duration) -> anyhow::Result<()> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    *AT_END.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    if WATCHED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    on_signal(move |signal| {
        if REQUESTED.swap(signal, Ordering::Relaxed) != 0 {
            end();
            std::process::exit(status());
        }
        std::thread::spawn(move || {
            std::thread::sleep(EXIT_TIMEOUT + grace);
            end();
        });
    })
    .context("Ctrl-C cannot be watched for")
}

/// Calls `act` with the number of each signal that asks the program to end. SIGHUP is not among them if it is ignored:
/// `nohup` does that, so that the program goes on without a terminal.
#[cfg(unix)]
fn on_signal(act: impl Fn(i32) + Send + 'static) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let status = std::fs::read_to_string("/proc/self/status").ok();
    // Where the system has no such file, SIGHUP ends the program at once, as without a handler.
    let hangup = status.is_some_and(|status| !is_ignored(SIGHUP, &status));
    let watched = [SIGINT, SIGTERM]
        .into_iter()
        .chain(hangup.then_some(SIGHUP));
    let mut signals = signal_hook::iterator::Signals::new(watched)?;
    std::thread::spawn(move || signals.forever().for_each(act));
    Ok(())
}

/// Whether a process with this `/proc/PID/status` ignores `signal` (`SigIgn` in proc(5): a mask in hexadecimal digits).
#[cfg(unix)]
fn is_ignored(signal: i32, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(not(unix))]
fn on_signal(act: impl Fn(i32) + Send + 'static) -> anyhow::Result<()> {
    const SIGINT: i32 = 2;
    Ok(ctrlc::set_handler(move || act(SIGINT))?)
}

/// The exit status of a program that the last signal ended.
fn status() -> i32 {
    128 + REQUESTED.load(Ordering::Relaxed)
}

/// Ends the program, unless it writes its answer already.
fn end() {
    let mut at_end = AT_END.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(acts) = at_end.take() {
        // The terminal may be gone, and then what writes to stderr panics.
        let answers = acts
            .into_iter()
            .rev()
            .map(|act| catch_unwind(AssertUnwindSafe(act)).ok().flatten());
        let answered = answers.fold(None, Option::or);
        std::process::exit(answered.map_or_else(status, i32::from));
    }
}

/// From now on only a second signal ends the program: it writes its answer. If the program is being ended
/// already, this does not return.
pub fn disarm() {
    AT_END.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Ends the program after this `time` as a signal would, unless it writes its answer by then.
pub fn end_after(time: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        end();
    });
}

/// The exit status of a program that has no answer, if a signal asked it to end.
pub fn status_without_answer() -> Option<u8> {
    requested().then(|| status() as u8)
}

/// Whether a signal asked the program to end.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed) != 0
}

/// Adds something to do before the program ends, if a signal ends it. What was added last is done first, as values are
/// dropped. `act` returns the exit status if it writes an answer.
pub fn at_end(act: impl FnOnce() -> Option<u8> + Send + 'static) {
    let mut at_end = AT_END.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(acts) = &mut *at_end {
        acts.push(Box::new(act));
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_in_the_mask() {
        // As `nohup` starts a program: SIGHUP, the first signal, is ignored.
        let status = "Name:\tfit-check\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\n";
        assert!(is_ignored(1, status));
        assert!(!is_ignored(2, status));
        assert!(!is_ignored(1, "SigIgn:\t0000000000001000\n"));
        assert!(is_ignored(13, "SigIgn:\t0000000000001000\n"));
    }
}
