//! Measurements that are kept, one in each line of a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use estimator::Bytes;
use model_zoo::{Input, OptimizerKind, Precision};
use serde::{Deserialize, Serialize};

use crate::comparison::Figures;
use crate::job_info::Burn;
use crate::measure::{DeviceReport, Mode, Outcome};
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
    /// What was estimated.
    pub estimated: Figures,
    /// What was measured.
    pub measured: Figures,
}

/// Where the records of measurements are, from the root of the repository.
pub const RECORDS: &str = "docs/data/records.jsonl";

/// Where those of largest batches are.
pub const LARGEST_BATCHES: &str = "docs/data/largest_batches.jsonl";

impl Record {
    /// What `report` says, today.
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

/// A largest batch, and whether it and the next did as was said.
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
    /// What there was for burn's pools.
    pub budget_bytes: Bytes,
    /// The largest batch that was said to fit.
    pub batch: u64,
    /// How it ended.
    pub ending: RecordedOutcome,
    /// The batch that was said not to fit.
    pub next: u64,
    /// How that ended.
    pub next_ending: RecordedOutcome,
}

/// How a batch ended, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RecordedOutcome {
    /// It trained.
    Trained,
    /// It ran out of memory.
    OutOfMemory,
    /// It ended in another way.
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
    /// What `report` says, today.
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

fn today() -> String {
    jiff::Timestamp::now().strftime("%F").to_string()
}

/// Appends `record` to `file`.
///
/// # Errors
///
/// The file is not there or cannot be written: records belong to the repository.
pub fn append(file: &Path, record: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_string(record)?;
    let written = open(file).and_then(|mut file| writeln!(file, "{line}"));
    Ok(written.map_err(|error| unwritable(file, &error))?)
}

/// Whether `file` can be appended to, before any work is done for it.
///
/// # Errors
///
/// It cannot: records belong to the repository.
pub fn check(file: &Path) -> Result<(), UserError> {
    open(file)
        .map(drop)
        .map_err(|error| unwritable(file, &error))
}

fn open(file: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).open(file)
}

fn unwritable(file: &Path, error: &std::io::Error) -> UserError {
    UserError::new(format!("cannot record in {}: {error}", file.display()))
        .hint("run it in the root of the repository, or name the file: --record FILE")
}
