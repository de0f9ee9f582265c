//! A simulation in a process of its own, which is this program started again as `fit-check
//! simulate`.
//!
//! Steps that burn fuses take turns within a process (`FUSED` in `estimator/src/run.rs`); in
//! processes of their own they run side by side, on every core.

use std::io::{BufRead, Read, Write};
use std::process::{Command, Stdio};

use estimator::{CardSpec, Simulated};
use model_zoo::{Job, Model, Request};
use serde::{Deserialize, Serialize};

use crate::interrupt;
use crate::simulate_step;
use crate::trouble::Trouble;

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
    let mut child = Command::new(std::env::current_exe().ok()?)
        .arg("simulate")
        .env(THERE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // It stays open until there is an answer: the other process ends when it is closed.
    let mut stdin = child.stdin.take()?;
    // One that does not listen says nothing either.
    let _ = writeln!(stdin, "{}", serde_json::to_string(&task).ok()?);
    let output = child.wait_with_output().ok()?;
    drop(stdin);
    let said = output.status.success().then_some(output.stdout)?;
    // The names of its kernels stay in memory: some kilobytes.
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
    let mut line = String::new();
    let mut stdin = std::io::stdin();
    stdin.lock().read_line(&mut line)?;
    let task: Task = serde_json::from_str(&line)?;
    std::thread::spawn(move || {
        let _ = stdin.read(&mut [0]);
        std::process::exit(1);
    });
    let variant = model_zoo::find(&task.model)?;
    let job = task.request.resolve(&variant)?;
    let simulated = simulate_step(&variant, &job, task.card).map_err(Trouble::from)?;
    serde_json::to_writer(std::io::stdout().lock(), &simulated)?;
    Ok(())
}
