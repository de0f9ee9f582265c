//! Runs a program on the card that its environment describes.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use estimator::{Outcome, RunConfig, RunReport};
use wait_timeout::ChildExt;

use super::request::ProgramRequest;
use crate::child_process;
use crate::interrupt;
use crate::user_error::UserError;

/// How long a program may run before it uses the card, and how long it may take to write its report.
const GRACE: Duration = Duration::from_secs(60);

/// The environment variable with which burn's `Device::default()` chooses among the backends of a program:
/// `burn-dispatch` 0.22.1, `src/device.rs`.
const BURN_DEVICE: (&str, &str) = ("BURN_DEVICE", "rocm");

/// Runs `program` on the device of `request` until it has made enough equal steps, until it ends, or until
/// the time is up.
///
/// # Errors
///
/// The program fails, or does not use the card.
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
    let output = || -> anyhow::Result<Stdio> {
        Ok(match request.quiet {
            // Shown only if the program fails.
            true => Stdio::from(
                std::fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(&stderr)?,
            ),
            // stdout is for the answer.
            false => Stdio::from(std::io::stderr()),
        })
    };
    let mut command = Command::new(program);
    child_process::end_with_parent(&mut command);
    let mut child = command
        .args(&request.args)
        .env(RunConfig::VARIABLE, run_config.to_text())
        .env(BURN_DEVICE.0, BURN_DEVICE.1)
        .stdout(output()?)
        .stderr(output()?)
        .spawn()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    let status = wait(&mut child, timeout + GRACE)?;
    if interrupt::requested() {
        return Err(UserError::new("interrupted").into());
    }
    let run_report = match run_config.run_report.is_file() {
        true => Some(RunReport::read(&run_config.run_report)?),
        false => None,
    };
    let enough = run_report
        .as_ref()
        .is_some_and(|run_report| run_report.ending != Outcome::Program);
    match status {
        Some(status) if !status.success() && !enough => {
            if request.quiet {
                let said = std::fs::read(&stderr)?;
                anstream::eprint!("{}", String::from_utf8_lossy(&said));
            }
            Err(failed(status).into())
        }
        _ => match run_report.filter(|run_report| !run_report.recording.buffers.is_empty()) {
            Some(run_report) => Ok(run_report),
            None => Err(unused(status.is_none(), timeout).into()),
        },
    }
}

/// The exit status; none if the program had to be killed.
fn wait(child: &mut Child, timeout: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let status = child.wait_timeout(timeout)?;
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(status)
}

fn failed(status: ExitStatus) -> UserError {
    UserError::new(format!("the program failed: {status}")).hint(
        "what it said is above. Every value that it reads from a simulated card is zero; \
         its files and its working folder are its own",
    )
}

fn unused(ended: bool, timeout: Duration) -> UserError {
    let error = match ended {
        true => format!(
            "the program did nothing on the simulated card within {} s",
            (timeout + GRACE).as_secs()
        ),
        false => "the program ended and did nothing on the simulated card".into(),
    };
    UserError::new(error).hint(
        "take the device from `Device::default()`, which is the simulated card here; a program \
         that names another device, such as `Device::cuda(0)`, gets that one",
    )
}
