//! Runs a program on the card that its environment describes.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use estimator::{Account, Assignment, CardSpec, Ending};
use wait_timeout::ChildExt;

use super::cli::Program;
use crate::interrupt;
use crate::trouble::Trouble;

/// How long a program may be busy before it uses the card, and with writing down what happened.
const GRACE: Duration = Duration::from_secs(60);

/// The variable with which burn's `Device::default()` chooses among the backends that a program is
/// built with: `burn-dispatch` 0.22.1, `src/device.rs`.
const BURN_DEVICE: (&str, &str) = ("BURN_DEVICE", "rocm");

/// Runs `program` on a card like `spec` until there were so many equal `steps`, or until it ends
/// or `patience` does.
///
/// # Errors
///
/// It fails, or does not use the card.
pub fn run(
    program: &Path,
    spec: &CardSpec,
    steps: usize,
    patience: Duration,
    raw: &Program,
) -> anyhow::Result<Account> {
    let folder = tempfile::tempdir().context("no folder for the recording")?;
    let assignment = Assignment {
        card: spec.clone(),
        steps,
        seconds: patience.as_secs(),
        account: folder.path().join("account"),
    };
    let complaints = folder.path().join("complaints");
    let output = || -> anyhow::Result<Stdio> {
        Ok(match raw.output.quiet {
            // Shown only if something is wrong.
            true => Stdio::from(
                std::fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(&complaints)?,
            ),
            // stdout is for the answer.
            false => Stdio::from(std::io::stderr()),
        })
    };
    let mut child = Command::new(program)
        .args(&raw.args)
        .env(Assignment::VARIABLE, assignment.to_text())
        .env(BURN_DEVICE.0, BURN_DEVICE.1)
        .stdout(output()?)
        .stderr(output()?)
        .spawn()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    let status = wait(&mut child, patience + GRACE)?;
    if interrupt::requested() {
        return Err(Trouble::new("interrupted").into());
    }
    let account = match assignment.account.is_file() {
        true => Some(Account::read(&assignment.account)?),
        false => None,
    };
    let enough = account
        .as_ref()
        .is_some_and(|it| it.ending != Ending::Program);
    match status {
        Some(status) if !status.success() && !enough => {
            if raw.output.quiet {
                anstream::eprint!("{}", std::fs::read_to_string(&complaints)?);
            }
            Err(failed(status).into())
        }
        _ => match account.filter(|account| !account.recording.buffers.is_empty()) {
            Some(account) => Ok(account),
            None => Err(unused(status.is_none(), patience).into()),
        },
    }
}

/// How it ended; none if it had to be ended.
fn wait(child: &mut Child, patience: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let status = child.wait_timeout(patience)?;
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(status)
}

fn failed(status: ExitStatus) -> Trouble {
    Trouble::new(format!("the program failed: {status}")).hint(
        "what it said is above. Every value that it reads from a simulated card is zero; \
         its files and its working folder are its own",
    )
}

fn unused(ended: bool, patience: Duration) -> Trouble {
    let error = match ended {
        true => format!(
            "the program did nothing on the simulated card within {} s",
            (patience + GRACE).as_secs()
        ),
        false => "the program ended and did nothing on the simulated card".into(),
    };
    Trouble::new(error).hint(
        "take the device from `Device::default()`, which is the simulated card here; a program \
         that names another device, such as `Device::cuda(0)`, gets that one",
    )
}
