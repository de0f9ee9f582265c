//! Measurements that were kept: `data/records.jsonl`, one in each line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use model_zoo::{Input, OptimizerKind, Precision};
use serde::{Deserialize, Serialize};

use crate::comparison::Figures;
use crate::measure::{DeviceReport, Mode};
use crate::report::{Burn, VerifyReport};
use crate::trouble::Trouble;

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

/// All records of this version of the program.
///
/// # Errors
///
/// A line that is no record.
pub fn all() -> serde_json::Result<Vec<Record>> {
    let lines = include_str!("../data/records.jsonl").lines();
    lines.map(serde_json::from_str).collect()
}

/// Appends what `report` says to `file`.
///
/// # Errors
///
/// The file is not there or cannot be written: records belong to the repository.
pub fn append(file: &Path, report: &VerifyReport) -> anyhow::Result<()> {
    let asked = &report.asked;
    let record = Record {
        date: jiff::Timestamp::now().strftime("%F").to_string(),
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
    };
    let line = serde_json::to_string(&record)?;
    let written = open(file).and_then(|mut file| writeln!(file, "{line}"));
    Ok(written.map_err(|error| unwritable(file, &error))?)
}

/// Whether `file` can be appended to, before any work is done for it.
///
/// # Errors
///
/// It cannot: records belong to the repository.
pub fn check(file: &Path) -> Result<(), Trouble> {
    open(file)
        .map(drop)
        .map_err(|error| unwritable(file, &error))
}

fn open(file: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).open(file)
}

fn unwritable(file: &Path, error: &std::io::Error) -> Trouble {
    Trouble::new(format!("cannot record in {}: {error}", file.display()))
        .hint("run it in the root of the repository, or name the file: --record FILE")
}
