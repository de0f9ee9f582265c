//! Runs a user's program with the counting driver until it ends or has to be ended.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use wait_timeout::ChildExt;

use crate::child_process;
use crate::interrupt;
use crate::user_error::UserError;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "what")]
pub enum Ended {
    /// It ended by itself, with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It ran longer than these seconds and was stopped.
    TimedOut(u64),
    /// The user interrupted it.
    Interrupted,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(0) => write!(f, "ended by itself"),
            Self::Exited(status) => write!(f, "ended with status {status}"),
            Self::Signalled(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was ended by signal {signal} ({name})"),
                None => write!(f, "was ended by signal {signal}"),
            },
            Self::TimedOut(seconds) => write!(f, "was still running after {seconds} s"),
            Self::Interrupted => write!(f, "was interrupted"),
        }
    }
}

/// How long a program that is asked to end may take before it is killed.
pub const GRACE: Duration = Duration::from_secs(5);

/// The time between two looks at the program.
const INTERVAL: Duration = Duration::from_millis(50);

/// Where a program's output goes.
#[derive(Debug)]
pub struct ProgramOutput {
    /// What it writes to stdout.
    pub stdout: Stdio,
    /// What it writes to stderr.
    pub stderr: Stdio,
}

/// Runs `program` with `arguments` for at most `timeout`, after `prepare` has set its environment. It is ended as soon as
/// `has_answered` says so and it goes on for longer than [`GRACE`] all the same. When this returns, none of its processes is left.
///
/// # Errors
///
/// The program cannot be started.
pub fn run(
    program: &Path,
    arguments: &[OsString],
    prepare: impl FnOnce(&mut Command),
    has_answered: impl Fn() -> bool,
    output: ProgramOutput,
    timeout: Duration,
) -> anyhow::Result<Ended> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdout(output.stdout)
        .stderr(output.stderr);
    prepare(&mut command);
    child_process::end_with_parent(&mut command);
    if std::io::stdin().is_terminal() {
        // The program is in a process group of its own, which may not read from the terminal.
        command.stdin(Stdio::null());
    }
    #[cfg(unix)]
    // In a group of its own, so that the processes that it starts can be ended with it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command
        .spawn()
        .map_err(|error| cannot_start(program, &error))?;
    let mut group = Group::new(child);
    let until = Instant::now() + timeout;
    let mut answered: Option<Instant> = None;
    loop {
        if let Some(status) = group.child.wait_timeout(INTERVAL)? {
            return Ok(ended(status));
        }
        if interrupt::requested() {
            return Ok(Ended::Interrupted);
        }
        if Instant::now() >= until {
            return Ok(Ended::TimedOut(timeout.as_secs()));
        }
        answered = match has_answered() {
            true => answered.or_else(|| Some(Instant::now())),
            false => None,
        };
        if answered.is_some_and(|since| since.elapsed() >= GRACE) {
            return Ok(Ended::Exited(0));
        }
    }
}

/// A program and all processes that it started; dropping this ends them.
struct Group {
    child: Child,
}

#[cfg(unix)]
impl Group {
    /// The group of `child`. It is killed, too, if a second signal ends this program, which then drops nothing.
    fn new(child: Child) -> Self {
        use nix::sys::signal::{Signal, killpg};
        let group = Self { child };
        let id = group.id();
        interrupt::at_end(move || {
            let _ = killpg(id, Signal::SIGKILL);
            None
        });
        group
    }

    fn id(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id() as i32)
    }

    /// Asks the processes to end, or kills them if `now`.
    fn end(&self, now: bool) {
        use nix::sys::signal::{Signal, killpg};
        let signal = if now {
            Signal::SIGKILL
        } else {
            Signal::SIGTERM
        };
        // There is an error if the group has no processes left, as it should.
        let _ = killpg(self.id(), signal);
    }
}

#[cfg(not(unix))]
impl Group {
    fn new(child: Child) -> Self {
        Self { child }
    }

    fn end(&mut self, _now: bool) {
        let _ = self.child.kill();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end(false);
        let _ = self.child.wait_timeout(GRACE);
        self.end(true);
        let _ = self.child.wait();
    }
}

#[cfg(unix)]
fn signal_name(signal: i32) -> Option<&'static str> {
    let signal = nix::sys::signal::Signal::try_from(signal).ok()?;
    Some(signal.as_str())
}

#[cfg(not(unix))]
fn signal_name(_: i32) -> Option<&'static str> {
    None
}

fn ended(status: ExitStatus) -> Ended {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Ended::Signalled(signal);
    }
    Ended::Exited(status.code().unwrap_or(-1))
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
