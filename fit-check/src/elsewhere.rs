//! A simulation in a process of its own, which is this program started again as `fit-check
//! simulate`.
//!
//! Steps that burn fuses take turns within a process (`FUSED` in `estimator/src/run.rs`); in
//! processes of their own they run side by side, on every core.

use std::process::Stdio;

use estimator::{CardSpec, Simulated};
use model_zoo::{Job, Model, Request};
use serde::{Deserialize, Serialize};

use crate::simulate_step;
use crate::trouble::Trouble;
use crate::{again, interrupt};

/// In the environment of the other process, so that it starts none itself, whatever program this
/// is.
const THERE: &str = "FIT_CHECK_SIMULATES";

/// What the other process is to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The name of a published network.
    pub model: String,
    /// How it is trained.
    pub request: Request,
    /// The card.
    pub card: CardSpec,
}

/// Runs the step of `job` on a card like `card` in another process. None if that did not
/// come to its end, for whatever reason, and if no other process knows the model.
pub fn simulate(model: &impl Model, job: &Job, card: &CardSpec) -> Option<Simulated> {
    if std::env::var_os(THERE).is_some() {
        return None;
    }
    let task = Task {
        model: model.published()?.into(),
        request: job.request(),
        card: card.clone(),
    };
    let mut child = again::command("simulate")
        .ok()?
        .env(THERE, "1")
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    again::give(&mut child, &task).ok()?;
    // It stays open until there is an answer.
    let stdin = child.stdin.take();
    let output = child.wait_with_output().ok()?;
    drop(stdin);
    let said = output.status.success().then_some(output.stdout)?;
    serde_json::from_slice(&said).ok()
}

/// In the other process: does the task on stdin, and says on stdout what came of it. Ends when
/// whoever gave it goes away; Ctrl-C is for that one to hear.
///
/// # Errors
///
/// There is no task, or the step failed.
pub fn run_child() -> anyhow::Result<()> {
    interrupt::watch()?;
    let task: Task = again::task()?;
    let variant = model_zoo::find(&task.model)?;
    let job = task.request.resolve(&variant)?;
    let simulated = simulate_step(&variant, &job, task.card).map_err(Trouble::from)?;
    serde_json::to_writer(std::io::stdout().lock(), &simulated)?;
    Ok(())
}
