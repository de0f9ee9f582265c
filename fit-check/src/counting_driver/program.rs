//! Runs a user's program with the counting driver until it ends or has to be ended.

use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use super::CountingDriver;
use crate::interrupt;
use crate::user_program::{Sink, UserProgram, Writes};

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

/// Runs `command` on the cards of `driver`, for at most `timeout`. If `writes` are not allowed, it may still write what the
/// driver does. What it writes to stdout goes to `stdout`, and its errors where this program's go. When this returns, none
/// of its processes is left.
///
/// # Errors
///
/// The program cannot be started.
pub fn run(
    driver: &CountingDriver,
    mut command: Command,
    allow_writes: bool,
    stdout: Sink,
    timeout: Duration,
) -> anyhow::Result<Ended> {
    driver.apply(&mut command);
    let journal = [driver.folder()];
    let writes = match allow_writes {
        true => Writes::Allowed,
        false => Writes::Only(&journal),
    };
    let mut program = UserProgram::start(command, writes, stdout, Sink::Stderr)?;
    let until = Instant::now() + timeout;
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
