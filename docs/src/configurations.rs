//! The same jobs with burn's default features, and in its plain configuration.
//!
//! A program is built in one configuration, so the rows are stored as data: `cargo run -p docs --
//! configurations` prints the rows of its own configuration.

use estimator::{Bytes, Runtime};
use model_zoo::{Input, OptimizerKind, Precision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{answer, jsonl};
use fit_check::comparison::Errors;
use fit_check::job_info::Burn;
use fit_check::measure::{DeviceKind, Mode};
use fit_check::output::verify::relative;
use fit_check::output::{Cell, Table, markdown};
use fit_check::records::Record;

/// Jobs as a user types them, and the batch of the estimate: a convolutional network, a Transformer and a
/// bidirectional LSTM of 64 steps. None of their tensors is larger than 128 MiB, so Mesa's software device
/// can bind them.
const JOBS: [(&str, &str); 3] = [
    ("resnet-50 --optimizer adam", "32"),
    ("transformer-base", "16"),
    ("infersent --seq 64", "64"),
];

/// The card of the largest batches: 24 GB.
const CARD: &str = "rtx-3090";

/// A job in one configuration, on one runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    model: String,
    batch: usize,
    precision: Precision,
    optimizer: OptimizerKind,
    input: Input,
    runtime: Runtime,
    burn: Burn,
    live_bytes: Bytes,
    reserved_bytes: Bytes,
    required_bytes: Bytes,
    /// The largest batch on [`CARD`].
    max_batch: u64,
}

impl Configuration {
    fn find(job: &str, batch: &str, options: &str) -> anyhow::Result<Self> {
        let answer = |command: &str| -> anyhow::Result<Value> {
            let typed = format!("{command} {options} --format json --advise=never");
            Ok(serde_json::from_str(&answer(&typed)?)?)
        };
        let mut row = answer(&format!("estimate {job} --batch {batch}"))?;
        for bytes in ["live_bytes", "reserved_bytes", "required_bytes"] {
            row[bytes] = row["peak"][bytes].take();
        }
        let mut largest = answer(&format!("max-batch {job} --gpu {CARD}"))?;
        row["max_batch"] = largest["cards"][0]["max_batch"].take();
        Ok(serde_json::from_value(row)?)
    }

    /// The measurement of this job, if there is one.
    fn record<'a>(&self, records: &'a [Record]) -> Option<&'a Record> {
        records.iter().find(|record| {
            record.model == self.model
                && record.batch == self.batch
                && record.precision == self.precision
                && record.optimizer == self.optimizer
                && record.input == self.input
                && record.device.runtime == self.runtime.to_string()
                && record.burn == self.burn
        })
    }

    /// How far off the measurement of this job found the figures; `no` without a measurement.
    fn proved(&self, records: &[Record]) -> String {
        match self.record(records) {
            None => "no".into(),
            Some(record) => {
                let errors = Errors::of(&record.estimated, &record.measured);
                let device = match record.device.kind {
                    DeviceKind::Gpu => &record.device.name,
                    DeviceKind::Software => "software device",
                    DeviceKind::Counting => "counting driver",
                };
                let launched = match record.mode {
                    Mode::Real => "trained",
                    Mode::DryRun => "dry run",
                };
                format!(
                    "in use {}, reserved {} ({device}, {launched})",
                    relative(errors.live),
                    relative(errors.reserved)
                )
            }
        }
    }
}

/// The rows of this program's configuration, each a line of `data/configurations.jsonl`.
///
/// # Errors
///
/// The program gives no answer.
pub fn page() -> anyhow::Result<String> {
    let tunings: &[&str] = match cfg!(feature = "autotune") {
        true => &["warm", "cold"],
        false => &["warm"],
    };
    let mut lines = String::new();
    for (job, batch) in JOBS {
        for runtime in [Runtime::Cuda, Runtime::Wgpu] {
            for tuning in tunings {
                let options = format!("--runtime {runtime} --tuning {tuning}");
                let row = Configuration::find(job, batch, &options)?;
                lines += &serde_json::to_string(&row)?;
                lines.push('\n');
            }
        }
    }
    Ok(lines)
}

/// All stored rows.
///
/// # Errors
///
/// A line is not a row.
pub fn all() -> serde_json::Result<Vec<Configuration>> {
    jsonl(include_str!("../data/configurations.jsonl"))
}

/// `rows`, sorted by job, with the errors that `records` measured.
pub(super) fn table(rows: &[Configuration], records: &[Record]) -> String {
    let mut rows: Vec<_> = rows.iter().collect();
    // By job and runtime; then plain before default.
    let job = |row: &Configuration| JOBS.iter().position(|(job, _)| job.starts_with(&row.model));
    rows.sort_by_key(|row| {
        let burn = &row.burn;
        let runtime = row.runtime.to_string();
        (job(row), runtime, burn.fusion, burn.autotune)
    });
    let table = Table::of("", &rows)
        .column("job", |row| format!("{}, batch {}", row.model, row.batch))
        .column("runtime", |row| row.runtime.to_string())
        .column("burn", |row| row.burn.switches())
        .column("in use", |row| Cell::ExactBytes(row.live_bytes))
        .column("reserved", |row| Cell::ExactBytes(row.reserved_bytes))
        .column("required", |row| Cell::ExactBytes(row.required_bytes))
        .column("largest batch on 24 GB", |row| row.max_batch)
        .column("proved", |row| row.proved(records));
    markdown::render(&[table.build()])
}
