//! Runs a user's program with the counting driver until it ends or has to be ended.

use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use crate::interrupt;
use crate::user_program::{GRACE, Sink, UserProgram, Writes};

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

/// The time between two looks at the program.
const INTERVAL: Duration = Duration::from_millis(50);

/// Where a program's output goes.
#[derive(Debug)]
pub struct ProgramOutput {
    /// What it writes to stdout.
    pub stdout: Sink,
    /// What it writes to stderr.
    pub stderr: Sink,
}

/// Runs `command`, which may change what `writes` says, for at most `timeout`. It is ended as soon as `has_answered` says so
/// and it goes on for some seconds all the same. When this returns, none of its processes is left.
///
/// # Errors
///
/// The program cannot be started.
pub fn run(
    command: Command,
    writes: Writes<'_>,
    has_answered: impl Fn() -> bool,
    output: ProgramOutput,
    timeout: Duration,
) -> anyhow::Result<Ended> {
    let mut program = UserProgram::start(command, writes, output.stdout, output.stderr)?;
    let until = Instant::now() + timeout;
    let mut answered: Option<Instant> = None;
    loop {
        if let Some(status) = program.wait(INTERVAL)? {
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

#[cfg(unix)]
fn signal_name(signal: i32) -> Option<&'static str> {
    let signal = nix::sys::signal::Signal::try_from(signal).ok()?;
    Some(signal.as_str())
}

#[cfg(not(unix))]
fn signal_name(_: i32) -> Option<&'static str> {
    None
}

/// How a program with this status ended.
pub fn ended(status: ExitStatus) -> Ended {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Ended::Signalled(signal);
    }
    Ended::Exited(status.code().unwrap_or(-1))
}
