//! A user's program while it runs: what it may change, where its output goes, and its end with all that it started.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use wait_timeout::ChildExt;

use crate::child_process;
use crate::interrupt;
use crate::sandbox::{self, KeptFiles};
use crate::terminal_state::TerminalState;
use crate::user_error::UserError;

/// How long a program that is asked to end may take before it is killed.
pub const GRACE: Duration = Duration::from_secs(5);

/// How long the last output of a program that ended may take: a process that left its group may have the pipe still.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// What a program may change.
#[derive(Clone, Copy, Debug)]
pub enum Writes<'a> {
    /// These folders. Whatever else it writes is gone when it ends.
    Only(&'a [&'a Path]),
    /// All that the user may.
    Allowed,
}

/// Where a program writes to.
#[derive(Debug)]
pub enum Sink {
    /// The stdout of this process.
    Stdout,
    /// The stderr of this process.
    Stderr,
    /// A file.
    File(File),
}

/// A program and all processes that it started; dropping this ends them.
#[derive(Debug)]
pub struct UserProgram {
    child: Child,
    relays: Vec<Receiver<()>>,
    /// Put back after the program has ended.
    _terminal: TerminalState,
    _kept: Option<KeptFiles>,
}

impl UserProgram {
    /// Starts `command`, which may change what `writes` says. It is in a session of its own and has no terminal: what it
    /// writes to one goes there through a pipe, and there is nothing to read from one.
    ///
    /// # Errors
    ///
    /// The program cannot be started, or not without a danger for the user's files.
    pub fn start(
        mut command: Command,
        writes: Writes<'_>,
        stdout: Sink,
        stderr: Sink,
    ) -> Result<Self, UserError> {
        let kept = match writes {
            Writes::Only(folders) => Some(sandbox::keep_files(&mut command, folders)?),
            Writes::Allowed => None,
        };
        leave_session(&mut command);
        child_process::end_with_parent(&mut command);
        if std::io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        command.stdout(stdout.stdio()).stderr(stderr.stdio());
        let terminal = TerminalState::save();
        let mut child = command
            .spawn()
            .map_err(|error| cannot_start(Path::new(command.get_program()), &error))?;
        let relays = [
            child.stdout.take().map(|pipe| relay(pipe, stdout)),
            child.stderr.take().map(|pipe| relay(pipe, stderr)),
        ];
        let program = Self {
            child,
            relays: relays.into_iter().flatten().collect(),
            _terminal: terminal,
            _kept: kept,
        };
        program.end_at_signal();
        Ok(program)
    }

    /// The exit status, if the program ends within `timeout`.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub fn wait(&mut self, timeout: Duration) -> std::io::Result<Option<ExitStatus>> {
        self.child.wait_timeout(timeout)
    }
}

#[cfg(unix)]
impl UserProgram {
    /// A second signal ends this program, which then drops nothing.
    fn end_at_signal(&self) {
        use nix::sys::signal::{Signal, killpg};
        let id = self.group();
        interrupt::at_end(move || {
            let _ = killpg(id, Signal::SIGKILL);
            None
        });
    }

    /// The group of the program, which leads it.
    fn group(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id() as i32)
    }

    /// Asks the processes to end, or kills them if `now`.
    fn end(&mut self, now: bool) {
        use nix::sys::signal::{Signal, killpg};
        let signal = if now {
            Signal::SIGKILL
        } else {
            Signal::SIGTERM
        };
        // There is an error if the group has no processes left, as it should.
        let _ = killpg(self.group(), signal);
    }
}

#[cfg(not(unix))]
impl UserProgram {
    fn end_at_signal(&self) {}

    fn end(&mut self, _now: bool) {
        let _ = self.child.kill();
    }
}

impl Drop for UserProgram {
    fn drop(&mut self) {
        self.end(false);
        let _ = self.child.wait_timeout(GRACE);
        self.end(true);
        let _ = self.child.wait();
        for relay in &self.relays {
            // An error: the thread has ended.
            let _ = relay.recv_timeout(LAST_OUTPUT);
        }
    }
}

/// Puts the process that `command` starts in a session of its own: it has no terminal, and the processes that it starts can
/// be ended with it.
fn leave_session(command: &mut Command) {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        // SAFETY: between fork and exec only a system call is made.
        unsafe { command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?)) };
    }
    #[cfg(not(unix))]
    let _ = command;
}

impl Sink {
    fn stdio(&self) -> Stdio {
        match self {
            Self::Stdout if std::io::stdout().is_terminal() => Stdio::piped(),
            Self::Stdout => Stdio::inherit(),
            Self::Stderr if std::io::stderr().is_terminal() => Stdio::piped(),
            Self::Stderr => Stdio::from(std::io::stderr()),
            Self::File(file) => file.try_clone().map_or_else(|_| Stdio::null(), Stdio::from),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        fn all(mut to: impl Write, bytes: &[u8]) -> std::io::Result<()> {
            to.write_all(bytes)?;
            to.flush()
        }
        match self {
            Self::Stdout => all(std::io::stdout().lock(), bytes),
            Self::Stderr => all(std::io::stderr().lock(), bytes),
            Self::File(file) => all(file, bytes),
        }
    }
}

/// Copies what comes through `pipe` to `sink`, which is a terminal. The receiver is disconnected when all is copied.
fn relay(mut pipe: impl Read + Send + 'static, mut sink: Sink) -> Receiver<()> {
    let (ended, at_end) = channel();
    std::thread::spawn(move || {
        let _ended = ended;
        let mut buffer = [0; 8192];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            TerminalState::observe(&buffer[..length]);
            if sink.write(&buffer[..length]).is_err() {
                return;
            }
        }
    });
    at_end
}

fn cannot_start(program: &Path, error: &std::io::Error) -> UserError {
    let name = program.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => UserError::new(format!("there is no program `{name}`")).hint(
            "name a program as you would start it: python train.py, or target/release/train, for instance",
        ),
        std::io::ErrorKind::PermissionDenied => {
            UserError::new(format!("`{name}` may not be executed"))
                .hint("name a program that is built; a script needs `chmod +x`")
        }
        _ => UserError::new(format!("`{name}` cannot be started: {error}"))
            .hint("name a program that was built for this machine"),
    }
}
