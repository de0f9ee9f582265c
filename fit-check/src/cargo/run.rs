//! Runs a program on the card that its environment describes.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;
use estimator::{RunConfig, RunReport, StopReason};

use super::request::ProgramRequest;
use crate::interrupt;
use crate::user_error::UserError;
use crate::user_program::{Sink, UserProgram, Writes};

/// How long a program may take to write its report.
const GRACE: Duration = Duration::from_secs(60);

/// How often this program looks whether the other has begun to use the card.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The environment variable with which burn's `Device::default()` chooses among the backends of a program:
/// `burn-dispatch` 0.22.1, `src/device.rs`.
const BURN_DEVICE: (&str, &str) = ("BURN_DEVICE", "rocm");

/// Runs `program` on the device of `request` until it has made enough equal steps, until it ends, or until
/// the time is up.
///
/// # Errors
///
/// The program fails, does not use the card, or leaves no report.
pub fn run(program: &Path, request: &ProgramRequest) -> anyhow::Result<RunReport> {
    let timeout = request.timeout;
    let folder = tempfile::tempdir().context("no folder for the recording")?;
    let path = folder.path().to_path_buf();
    interrupt::at_end(move || {
        // Gone already, if the program has ended.
        let _ = std::fs::remove_dir_all(path);
        None
    });
    let run_config = RunConfig {
        device: request.device.clone(),
        steps: request.steps,
        seconds: timeout.as_secs(),
        run_report: folder.path().join("run-report"),
    };
    let stderr = folder.path().join("stderr");
    let mut program = start(program, request, &run_config, folder.path(), &stderr)?;
    let status = wait(&mut program, timeout, &run_config.run_report)?;
    drop(program);
    if interrupt::requested() {
        return Err(UserError::new("interrupted").into());
    }
    // The file is empty from the first use of the card until the report is written.
    let bytes = std::fs::metadata(&run_config.run_report).map(|file| file.len());
    let used = bytes.is_ok();
    let run_report = match bytes {
        // A report that cannot be read counts as none.
        Ok(1..) => RunReport::read(&run_config.run_report).ok(),
        _ => None,
    };
    let enough = run_report
        .as_ref()
        .is_some_and(|run_report| run_report.ending != StopReason::Program);
    let error = match (status, run_report) {
        (Some(status), _) if !status.success() && !enough => failed(status),
        (_, Some(run_report)) if !run_report.recording.buffers.is_empty() => return Ok(run_report),
        (status, None) if used => unreported(status.is_none(), timeout),
        (status, run_report) => {
            let time = run_report.is_some_and(|run_report| run_report.ending == StopReason::Time);
            unused(time || status.is_none(), timeout)
        }
    };
    if request.quiet {
        let said = std::fs::read(&stderr)?;
        anstream::eprint!("{}", String::from_utf8_lossy(&said));
    }
    Err(error.into())
}

/// Starts `program` on the card of `run_config`, which writes into `folder`. If `request` is quiet, what the program prints
/// goes to the file `stderr`.
fn start(
    program: &Path,
    request: &ProgramRequest,
    run_config: &RunConfig,
    folder: &Path,
    stderr: &Path,
) -> anyhow::Result<UserProgram> {
    let output = || -> anyhow::Result<Sink> {
        Ok(match request.quiet {
            // Shown only if the program fails.
            true => Sink::File(
                std::fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(stderr)?,
            ),
            // stdout is for the answer.
            false => Sink::Stderr,
        })
    };
    let mut command = Command::new(program);
    command
        .args(&request.args)
        .env(RunConfig::VARIABLE, run_config.to_text())
        .env(BURN_DEVICE.0, BURN_DEVICE.1);
    let report = [folder];
    let writes = match request.allow_writes {
        true => Writes::Allowed,
        false => Writes::Only(&report),
    };
    Ok(UserProgram::start(command, writes, output()?, output()?)?)
}

/// The exit status; none if the program does not end in time. It may take `timeout` to use the card, which makes the file
/// `report`, and then `timeout` and [`GRACE`] to end.
fn wait(
    program: &mut UserProgram,
    timeout: Duration,
    report: &Path,
) -> std::io::Result<Option<ExitStatus>> {
    let mut until = Instant::now() + timeout;
    let mut used = false;
    loop {
        if let Some(status) = program.wait(POLL_INTERVAL)? {
            return Ok(Some(status));
        }
        if !used && report.exists() {
            used = true;
            until = Instant::now() + timeout + GRACE;
        }
        if Instant::now() >= until {
            return Ok(None);
        }
    }
}

fn failed(status: ExitStatus) -> UserError {
    UserError::new(format!("the program failed: {status}")).hint(
        "what it said is above. Every value that it reads from a simulated card is zero; \
         if it was not allowed to write a file, --allow-writes lets it change yours",
    )
}

/// The error of a program that did nothing on the card before it ended or `was_stopped`.
fn unused(was_stopped: bool, timeout: Duration) -> UserError {
    const DEVICE: &str = "take the device from `Device::default()`, which is the simulated card here; a program \
        that names another device, such as `Device::cuda(0)`, gets that one";
    let seconds = timeout.as_secs();
    match was_stopped {
        true => UserError::new(format!(
            "the program did nothing on the simulated card in {seconds} s"
        ))
        .hint(format!(
            "a program that loads for longer needs a longer --timeout. Otherwise {DEVICE}"
        )),
        false => UserError::new("the program did nothing on the simulated card").hint(DEVICE),
    }
}

/// The error of a program that used the card and left no report before it ended or `was_killed`.
fn unreported(was_killed: bool, timeout: Duration) -> UserError {
    let seconds = (timeout + GRACE).as_secs();
    match was_killed {
        true => UserError::new(format!(
            "the program did not end in the {seconds} s after it first used the simulated card"
        ))
        .hint(format!(
            "its report is written after --timeout ({} s); that of many calls takes long, and less time makes it shorter",
            timeout.as_secs()
        )),
        false => UserError::new("the program used the simulated card and left no report").hint(format!(
            "if the report could not be written, the reason is above: there must be room for it in {}",
            std::env::temp_dir().display()
        )),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_that_uses_the_card_goes_on_after_the_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("run-report");
        let ends = || {
            let mut command = Command::new("sleep");
            command.arg("0.2");
            let mut program =
                UserProgram::start(command, Writes::Allowed, Sink::Stderr, Sink::Stderr).unwrap();
            let status = wait(&mut program, Duration::ZERO, &report).unwrap();
            status.is_some_and(|status| status.success())
        };
        assert!(!ends());
        std::fs::write(&report, "").unwrap();
        assert!(ends());
    }

    #[test]
    fn an_error_says_what_the_program_did() {
        let seconds = Duration::from_secs(60);
        let texts = [unused, unreported]
            .map(|error| [true, false].map(|was_killed| error(was_killed, seconds).to_string()));
        let begins = [
            [
                "did nothing on the simulated card in 60 s",
                "did nothing on the simulated card\nhint",
            ],
            ["did not end in the 120 s after", "used the simulated card"],
        ];
        for (text, begin) in texts.iter().flatten().zip(begins.iter().flatten()) {
            assert!(
                text.starts_with(&format!("error: the program {begin}")),
                "{text}"
            );
        }
    }
}
