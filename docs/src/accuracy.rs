//! `docs/accuracy.md`: the errors of the estimates, from the records of measurements.

use std::collections::BTreeMap;

use crate::configurations::{self, Configuration};
use fit_check::records::{LargestBatchRecord, Record, RecordedOutcome};

use crate::random_jobs;
use crate::refused_requests;
use fit_check::comparison::PhaseFigures;
use fit_check::measure::{DeviceKind, Mode};
use fit_check::output::Cell::ExactBytes;
use fit_check::output::job_lines::sizes;
use fit_check::output::{Table, markdown};
use fit_check_tests::differential::{RefusalRecord, Summary};

/// The name of devices of this kind on the page.
fn called(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Gpu => "GPU",
        DeviceKind::Software => "software device",
        DeviceKind::Counting => "CUDA's runtime, counting driver",
    }
}

/// What the page says of itself, before the text.
const HEAD: &str = "\
<!-- Written by `cargo run -p docs -- accuracy` from docs/data/records.jsonl and
     docs/src/accuracy.frame.md: change those, not this. -->

";

/// The text that a person wrote; the tables replace its `{{…}}`.
const FRAME: &str = include_str!("accuracy.frame.md");

/// Writes the page from the records of steps, of configurations, of largest batches, of random jobs and of refused
/// requests for memory.
pub fn page(
    records: &[Record],
    configurations: &[Configuration],
    largest: &[LargestBatchRecord],
    random: &[Summary],
    refused: &[RefusalRecord],
) -> String {
    let gpus = records
        .iter()
        .filter(|record| record.device.kind == DeviceKind::Gpu);
    let proof = match gpus.count() {
        0 => "**No GPU has been measured yet.** Records are of CUDA's own runtime on a driver that counts memory (no GPU, nothing computed), and of a software device, which the processor plays.".to_string(),
        gpus => format!("{gpus} of {} records are of GPUs.", records.len()),
    };
    let text = FRAME
        .replace("{{proof}}", &proof)
        .replace("{{summary}}", &markdown::render(&[summary(records)]))
        .replace(
            "{{configurations}}",
            &configurations::table(configurations, records),
        )
        .replace("{{largest_batches}}", &largest_batches(largest))
        .replace("{{random_jobs}}", &random_jobs::tables(random))
        .replace("{{refused_requests}}", &refused_requests::table(refused))
        .replace("{{records}}", &markdown::render(&[table(records)]));
    format!("{HEAD}{text}")
}

/// The errors of the estimates, by kind of device, mode and configuration of burn.
fn summary(records: &[Record]) -> Table {
    let mut rows: Vec<QuantityErrors> = Vec::new();
    for kind in [DeviceKind::Counting, DeviceKind::Software, DeviceKind::Gpu] {
        for mode in [Mode::Real, Mode::DryRun] {
            for tuned in [false, true] {
                let of_mode = records.iter().filter(|record| {
                    record.device.kind == kind
                        && record.mode == mode
                        && record.burn.autotune == tuned
                });
                // The page says for each quantity that no GPU was measured.
                let show_empty = kind == DeviceKind::Gpu && mode == Mode::Real && tuned;
                let burn = if tuned {
                    "burn's default features"
                } else {
                    "burn not tuned"
                };
                rows.extend(summarized(
                    &format!("{}, {mode}, {burn}", called(kind)),
                    &of_mode.collect::<Vec<_>>(),
                    show_empty,
                ));
            }
        }
    }
    Table::of("", &rows)
        .column("measured on", |q| &q.measured_on)
        .column("quantity", |q| q.name)
        .column("cases", |q| q.errors.len().to_string())
        .column("equal, or in the range", |q| q.count(|error| error == 0.0))
        .column("median error", |q| {
            q.errors.get(q.errors.len() / 2).copied().map(percent)
        })
        .column("worst error", |q| q.errors.last().copied().map(percent))
        .column("under-estimates", |q| q.count(|error| error < 0.0))
        .build()
}

/// A quantity: its name, and how to read the estimate and the measurement of each case from a record.
type Quantity = (&'static str, fn(&Record) -> Vec<(u64, u64)>);

/// The quantities that the page compares.
const QUANTITIES: [Quantity; 5] = [
    ("allocations, at the end of a phase", |record| {
        pairs(record)
            .map(|(e, m)| (e.allocations_near(m.allocations), m.allocations))
            .collect()
    }),
    ("bytes in use, at the end of a phase", |record| {
        pairs(record)
            .map(|(e, m)| (e.live_near(m.live_bytes).0, m.live_bytes.0))
            .collect()
    }),
    ("bytes reserved, at the end of a phase", |record| {
        pairs(record)
            .map(|(e, m)| (e.reserved_near(m.reserved_bytes).0, m.reserved_bytes.0))
            .collect()
    }),
    ("peak reserved, counted by the driver", |record| {
        let measured = record.measured.peak_reserved_bytes;
        let pair = measured.and_then(|measured| {
            let estimated = record.estimated.peak_reserved_near(measured)?;
            Some((estimated.0, measured.0))
        });
        pair.into_iter().collect()
    }),
    ("whole device", |record| {
        match (record.estimated.device_bytes, record.measured.device_bytes) {
            (Some(estimated), Some(measured)) => vec![(estimated.0, measured.0)],
            _ => Vec::new(),
        }
    }),
];

fn pairs(record: &Record) -> impl Iterator<Item = (&PhaseFigures, &PhaseFigures)> {
    record.estimated.zip_phases(&record.measured)
}

/// How far off the estimates of a quantity are.
struct QuantityErrors {
    measured_on: String,
    name: &'static str,
    /// Relative to the measurements, the smallest first.
    errors: Vec<f64>,
}

impl QuantityErrors {
    /// The number of errors of which `holds` is true.
    fn count(&self, holds: fn(f64) -> bool) -> String {
        let errors = self.errors.iter().filter(|error| holds(**error));
        errors.count().to_string()
    }
}

/// The errors of each quantity that `records` hold; with `show_empty`, of every quantity.
fn summarized(measured_on: &str, records: &[&Record], show_empty: bool) -> Vec<QuantityErrors> {
    let quantities = QUANTITIES.iter().map(|(name, cases_of)| {
        let cases = records.iter().flat_map(|record| cases_of(record));
        let mut errors: Vec<f64> = cases
            .map(|(estimated, measured)| {
                (estimated as f64 - measured as f64) / (measured as f64).max(1.0)
            })
            .collect();
        errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        QuantityErrors {
            measured_on: measured_on.into(),
            name,
            errors,
        }
    });
    quantities
        .filter(|quantity| show_empty || !quantity.errors.is_empty())
        .collect()
}

/// How many of the largest batches trained, and how many of the next ones; a row for each pair that ended
/// otherwise.
fn largest_batches(records: &[LargestBatchRecord]) -> String {
    let mut by_burn: BTreeMap<String, Vec<&LargestBatchRecord>> = BTreeMap::new();
    for record in records {
        let burn = record.burn.switches();
        by_burn.entry(burn).or_default().push(record);
    }
    let by_burn: Vec<_> = by_burn.into_iter().collect();
    let count = |records: &[&LargestBatchRecord], ended: fn(&LargestBatchRecord) -> bool| {
        let records = records.iter().filter(|record| ended(record));
        records.count().to_string()
    };
    let summary = Table::of("", &by_burn)
        .column("burn", |(burn, _)| burn)
        .column("cells", |(_, cells)| cells.len().to_string())
        .column("N trained", |(_, cells)| {
            count(cells, |cell| cell.ending == RecordedOutcome::Trained)
        })
        .column("N + 1 ran out of memory", |(_, cells)| {
            count(cells, |cell| {
                cell.next_ending == RecordedOutcome::OutOfMemory
            })
        })
        .column("N + 1 trained, as in some simulated runs", |(_, cells)| {
            count(cells, |cell| cell.next_trained() && cell.next_may_fit)
        })
        .column("N + 1 trained otherwise", |(_, cells)| {
            count(cells, |cell| cell.next_trained() && !cell.next_may_fit)
        })
        .build();
    let otherwise = records.iter().filter(|record| {
        (record.ending, record.next_ending)
            != (RecordedOutcome::Trained, RecordedOutcome::OutOfMemory)
    });
    let otherwise: Vec<_> = otherwise.collect();
    let differ = Table::of("", &otherwise)
        .column("model", |record| &record.model)
        .column("precision", |record| record.precision.to_string())
        .column("card", |record| &record.device.name)
        .column("largest", |record| {
            format!("{} {}", record.batch, record.ending)
        })
        .column("next", |record| {
            format!("{} {}", record.next, record.next_ending)
        })
        .build();
    match differ.rows.is_empty() {
        true => markdown::render(&[summary]),
        false => format!(
            "{}The cells in which N ran out of memory or N + 1 trained; the reasons are below.\n\n{}",
            markdown::render(&[summary]),
            markdown::render(&[differ])
        ),
    }
}

fn percent(error: f64) -> String {
    match error {
        0.0 => "0".into(),
        // Two decimals would round this error to zero.
        error if error.abs() < 5e-5 => format!("{:+.4} %", error * 100.0),
        error => format!("{:+.2} %", error * 100.0),
    }
}

/// A row for each record.
fn table(records: &[Record]) -> Table {
    Table::of("", records)
        .column("model", |r| &r.model)
        .column("batch", |r| r.batch.to_string())
        .column("sample", |r| sizes(&r.input))
        .column("precision, optimizer", |r| {
            format!("{}, {}", r.precision, r.optimizer)
        })
        .column("burn", |r| r.burn.switches())
        .column("run", |r| r.mode.to_string())
        .column("in use", |r| ExactBytes(r.estimated.live_bytes))
        .column("measured", |r| ExactBytes(r.measured.live_bytes))
        .column("reserved", |r| ExactBytes(r.estimated.reserved_bytes))
        .column("measured", |r| ExactBytes(r.measured.reserved_bytes))
        .column("device", |r| &r.device.name)
        .column("date", |r| &r.date)
        .build()
}
