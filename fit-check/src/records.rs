//! Stored measurements, one per line of a file.

use std::path::Path;

use estimator::Bytes;
use model_zoo::{Input, Job, OptimizerKind, Precision};
use serde::{Deserialize, Serialize};

use crate::comparison::Figures;
use crate::job_info::Burn;
use crate::measure::{DeviceReport, Mode, Outcome};
use crate::output::file;
use crate::report::{LimitReport, VerifyReport};
use crate::user_error::UserError;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The day, in UTC: `2026-11-21`.
    pub date: String,
    /// Version of this program.
    pub fit_check: String,
    /// The burn that was measured.
    pub burn: Burn,
    /// The device.
    pub device: DeviceReport,
    /// How the step was run.
    pub mode: Mode,
    /// The model.
    pub model: String,
    /// Samples in a batch.
    pub batch: usize,
    /// Number formats.
    pub precision: Precision,
    /// Optimizer.
    pub optimizer: OptimizerKind,
    /// Sizes of a sample.
    pub input: Input,
    /// The estimate.
    pub estimated: Figures,
    /// The measurement.
    pub measured: Figures,
}

/// The file of measurements, relative to the root of the repository.
pub const RECORDS: &str = "docs/data/records.jsonl";

/// The file of largest batches, relative to the root of the repository.
pub const LARGEST_BATCHES: &str = "docs/data/largest_batches.jsonl";

impl Record {
    /// The record of `report`, with today's date.
    pub fn new(report: &VerifyReport) -> Self {
        let asked = &report.asked;
        Self {
            date: today(),
            fit_check: env!("CARGO_PKG_VERSION").into(),
            burn: asked.burn.clone(),
            device: report.device.clone(),
            mode: report.mode,
            model: asked.model.clone(),
            batch: asked.batch.unwrap_or_default(),
            precision: asked.precision,
            optimizer: asked.optimizer,
            input: asked.input,
            estimated: report.estimated.clone(),
            measured: report.measured.clone(),
        }
    }
}

/// A largest batch, and whether it and the next one ended as predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LargestBatchRecord {
    /// The day, in UTC: `2026-11-21`.
    pub date: String,
    /// Version of this program.
    pub fit_check: String,
    /// The burn that was run.
    pub burn: Burn,
    /// The device.
    pub device: DeviceReport,
    /// The model.
    pub model: String,
    /// Number formats.
    pub precision: Precision,
    /// Optimizer.
    pub optimizer: OptimizerKind,
    /// Sizes of a sample.
    pub input: Input,
    /// The memory for burn's pools.
    pub budget_bytes: Bytes,
    /// The largest batch that is predicted to fit.
    pub batch: u64,
    /// How it ended.
    pub ending: RecordedOutcome,
    /// The next batch, which is predicted not to fit.
    pub next: u64,
    /// How the next batch ended.
    pub next_ending: RecordedOutcome,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RecordedOutcome {
    /// It trained.
    Trained,
    /// It ran out of memory.
    OutOfMemory,
    /// It failed in another way.
    Failed,
}

impl RecordedOutcome {
    fn of(ending: &Outcome) -> Self {
        match ending {
            Outcome::Trained => Self::Trained,
            Outcome::OutOfMemory(_) => Self::OutOfMemory,
            _ => Self::Failed,
        }
    }
}

impl LargestBatchRecord {
    /// Whether the next batch trained.
    pub fn next_trained(&self) -> bool {
        self.next_ending == RecordedOutcome::Trained
    }

    /// The record of `report`, with today's date.
    pub fn new(report: &LimitReport) -> Self {
        let asked = &report.asked;
        let [largest, next] = &report.runs;
        Self {
            date: today(),
            fit_check: env!("CARGO_PKG_VERSION").into(),
            burn: asked.burn.clone(),
            device: report.device.clone(),
            model: asked.model.clone(),
            precision: asked.precision,
            optimizer: asked.optimizer,
            input: asked.input,
            budget_bytes: report.budget_bytes,
            batch: largest.batch,
            ending: RecordedOutcome::of(&largest.ending),
            next: next.batch,
            next_ending: RecordedOutcome::of(&next.ending),
        }
    }
}

/// The day, as `2026-11-23`.
pub fn today() -> String {
    jiff::Timestamp::now().strftime("%F").to_string()
}

/// Appends `record`, a line, to the file at `path`.
///
/// # Errors
///
/// The file does not exist or cannot be written. It is not created, since records belong to the repository.
pub fn append(path: &Path, record: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_string(record)? + "\n";
    Ok(file::append(path, line.as_bytes()).map_err(|error| unwritable(path, &error))?)
}

/// Checks that the file at `path` can be appended to, before any work is done for it.
///
/// # Errors
///
/// The file does not exist or cannot be written.
pub fn check(path: &Path) -> Result<(), UserError> {
    file::check_append(path).map_err(|error| unwritable(path, &error))
}

/// Checks that a record can describe `job`.
///
/// # Errors
///
/// The job has an option for which records have no field: its record would look like that of the job without it.
pub fn check_job(job: &Job) -> Result<(), UserError> {
    let unrecorded = [
        ("--accumulate", job.accumulate > 1),
        ("--checkpointing", job.checkpointing),
        ("--freeze", !job.freeze.is_empty()),
        ("--lora", job.lora.is_some()),
    ];
    match unrecorded.into_iter().find(|(_, is_used)| *is_used) {
        None => Ok(()),
        Some((option, _)) => Err(UserError::new(format!(
            "a record cannot tell that the job has {option}"
        ))
        .hint(format!("leave out --record or {option}"))),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> UserError {
    UserError::new(format!("cannot record in {}: {error}", path.display()))
        .hint("run it in the root of the repository, or name the file: --record FILE")
}

#[cfg(test)]
mod tests {
    use model_zoo::{LoraRequest, Request, find};

    use super::*;

    #[test]
    fn a_job_that_a_record_cannot_describe_is_refused() {
        let bert = find("bert-base").unwrap();
        let check = |request: Request| check_job(&request.resolve(&bert).unwrap());
        let plain = Request::default();
        assert!(check(plain.clone()).is_ok());
        let accumulated = Request {
            accumulate: 2,
            ..plain.clone()
        };
        let checkpointed = Request {
            checkpointing: true,
            ..plain.clone()
        };
        let frozen = Request {
            freeze: vec!["encoder".into()],
            ..plain.clone()
        };
        let lora = LoraRequest {
            rank: 8,
            targets: Vec::new(),
            base: model_zoo::BaseFormat::Dense,
        };
        let adapted = Request {
            lora: Some(lora),
            ..plain
        };
        for request in [accumulated, checkpointed, frozen, adapted] {
            assert!(check(request.clone()).is_err(), "{request:?}");
        }
    }
}
