//! A simulation in a process of its own, which is this program started again as `fit-check
//! simulate`.
//!
//! Steps that burn fuses take turns within a process (`FUSED` in `estimator/src/run.rs`); in
//! processes of their own they run side by side.

use std::io::Write;
use std::process::{Command, Stdio};

use estimator::{Bytes, CardSpec};
use model_zoo::Model;
use serde::{Deserialize, Serialize};

use crate::ask::{self, Batch};
use crate::cli;
use crate::own;
use crate::simulate_step;
use crate::trouble::Trouble;

/// What the other process is to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The model, as it was typed.
    pub model: String,
    /// How it is trained, as it was typed.
    pub step: cli::Step,
    /// Samples in a batch.
    pub batch: usize,
    /// The card.
    pub card: CardSpec,
}

impl Task {
    /// The most bytes in use at once, as another process finds; none if it finds nothing, for
    /// whatever reason.
    pub fn most_in_use(&self) -> Option<Bytes> {
        let mut child = Command::new(std::env::current_exe().ok()?)
            .arg("simulate")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        // One that does not listen says nothing either.
        let task = serde_json::to_vec(self).ok();
        let stdin = child.stdin.take();
        if let (Some(task), Some(mut stdin)) = (task, stdin) {
            let _ = stdin.write_all(&task);
        }
        let output = child.wait_with_output().ok()?;
        let said = output.status.success().then_some(output.stdout)?;
        serde_json::from_slice(&said).ok()
    }

    /// The task on stdin.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn read() -> anyhow::Result<Self> {
        Ok(serde_json::from_reader(std::io::stdin().lock())?)
    }

    /// Runs it, in the other process, and says on stdout what it found.
    ///
    /// # Errors
    ///
    /// The step failed.
    pub fn run(&self) -> anyhow::Result<()> {
        let (model, _) = own::find(&self.model)?;
        self.run_with(&model)
    }

    /// As [`run`](Self::run), with a `model` that is at hand.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_with(&self, model: &(impl Model + Sync)) -> anyhow::Result<()> {
        let batch = self.batch.to_string();
        let batch = Batch {
            samples: Some(&batch),
            tokens: None,
        };
        let job = ask::training_job(model, &self.step, batch)?;
        let simulated = simulate_step(model, &job, self.card.clone()).map_err(Trouble::from)?;
        println!("{}", serde_json::to_string(&simulated.most_in_use())?);
        Ok(())
    }
}
