//! `docs/accuracy.md`: the errors of the estimates, from the records of measurements.

use estimator::Bytes;

use crate::configurations::{self, Configuration};
use fit_check::records::{LargestBatchRecord, Record, RecordedOutcome};

use crate::random_jobs;
use crate::refused_requests;
use crate::text_table;
use fit_check::comparison::PhaseFigures;
use fit_check::measure::{DeviceKind, Mode};
use fit_check::output::job_lines::sizes;
use fit_check::output::terminal::grouped;
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

/// The text that a person wrote; the tables replace its `{{…}}`.
const FRAME: &str = include_str!("accuracy.md");

/// Writes the page from the records of steps, of configurations, of largest batches, of random jobs and of refused
/// requests for memory.
pub fn page(
    records: &[Record],
    configurations: &[Configuration],
    largest: &[LargestBatchRecord],
    random: &[Summary],
    refused: &[RefusalRecord],
) -> String {
    let of_kind = |kind| {
        records
            .iter()
            .filter(move |record| record.device.kind == kind)
    };
    let proof = match of_kind(DeviceKind::Gpu).count() {
        0 => "**No GPU has been measured yet.** Records are of CUDA's own runtime on a driver that counts memory (no GPU, nothing computed), and of a software device, which the processor plays.".to_string(),
        gpus => format!("{gpus} of {} records are of GPUs.", records.len()),
    };
    let mut summary = Vec::new();
    for kind in [DeviceKind::Counting, DeviceKind::Software, DeviceKind::Gpu] {
        for mode in [Mode::Real, Mode::DryRun] {
            for tuned in [false, true] {
                let of_mode = of_kind(kind)
                    .filter(|record| record.mode == mode && record.burn.autotune == tuned);
                // The page says for each quantity that no GPU was measured.
                let show_empty = kind == DeviceKind::Gpu && mode == Mode::Real && tuned;
                let burn = if tuned {
                    "burn's default features"
                } else {
                    "burn not tuned"
                };
                summary.extend(summarized(
                    &format!("{}, {mode}, {burn}", called(kind)),
                    &of_mode.collect::<Vec<_>>(),
                    show_empty,
                ));
            }
        }
    }
    let summary = text_table(
        [
            "measured on",
            "quantity",
            "cases",
            "equal, or in the range",
            "median error",
            "worst error",
            "under-estimates",
        ],
        summary,
    );
    FRAME
        .replace("{{proof}}", &proof)
        .replace("{{summary}}", &markdown::render(&[summary]))
        .replace(
            "{{configurations}}",
            &configurations::table(configurations, records),
        )
        .replace("{{largest_batches}}", &largest_batches(largest))
        .replace("{{random_jobs}}", &random_jobs::tables(random))
        .replace("{{refused_requests}}", &refused_requests::table(refused))
        .replace("{{records}}", &markdown::render(&[table(records)]))
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
    (
        "bytes taken from the driver, the most at any time",
        |record| {
            let measured = record.measured.peak_reserved_bytes;
            let pair = measured.and_then(|measured| {
                let estimated = record.estimated.peak_reserved_near(measured)?;
                Some((estimated.0, measured.0))
            });
            pair.into_iter().collect()
        },
    ),
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

/// A row for each quantity that `records` hold; with `show_empty`, a row for every quantity.
fn summarized(what: &str, records: &[&Record], show_empty: bool) -> Vec<Vec<String>> {
    let rows = QUANTITIES.iter().filter_map(|(name, cases_of)| {
        let cases: Vec<_> = records.iter().flat_map(|record| cases_of(record)).collect();
        let mut errors: Vec<f64> = cases
            .iter()
            .map(|(estimated, measured)| {
                (*estimated as f64 - *measured as f64) / (*measured as f64).max(1.0)
            })
            .collect();
        errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let Some(worst) = errors.last() else {
            let nothing = ["0", "0", "-", "-", "0"].map(String::from);
            let named = [what.to_string(), (*name).to_string()];
            return show_empty.then(|| named.into_iter().chain(nothing).collect());
        };
        Some(vec![
            what.to_string(),
            (*name).to_string(),
            cases.len().to_string(),
            errors
                .iter()
                .filter(|error| **error == 0.0)
                .count()
                .to_string(),
            percent(errors[errors.len() / 2]),
            percent(*worst),
            errors
                .iter()
                .filter(|error| **error < 0.0)
                .count()
                .to_string(),
        ])
    });
    rows.collect()
}

/// How many of the largest batches trained, and how many of the next ones; a row for each pair that ended
/// otherwise.
fn largest_batches(records: &[LargestBatchRecord]) -> String {
    let mut burns: Vec<String> = records
        .iter()
        .map(|record| record.burn.switches())
        .collect();
    burns.sort();
    burns.dedup();
    let rows = burns.into_iter().map(|burn| {
        let cells = || {
            records
                .iter()
                .filter(|record| record.burn.switches() == burn)
        };
        let count = |ended: fn(&LargestBatchRecord) -> bool| {
            cells().filter(|record| ended(record)).count().to_string()
        };
        vec![
            burn.clone(),
            cells().count().to_string(),
            count(|record| record.ending == RecordedOutcome::Trained),
            count(|record| record.next_ending == RecordedOutcome::OutOfMemory),
            count(|record| record.next_trained() && record.next_may_fit),
            count(|record| record.next_trained() && !record.next_may_fit),
        ]
    });
    let summary = text_table(
        [
            "burn",
            "cells",
            "N trained",
            "N + 1 ran out of memory",
            "N + 1 trained, as in some simulated runs",
            "N + 1 trained otherwise",
        ],
        rows,
    );
    let otherwise = records.iter().filter(|record| {
        (record.ending, record.next_ending)
            != (RecordedOutcome::Trained, RecordedOutcome::OutOfMemory)
    });
    let rows = otherwise.map(|record| {
        vec![
            record.model.clone(),
            record.precision.to_string(),
            record.device.name.clone(),
            format!("{} {}", record.batch, record.ending),
            format!("{} {}", record.next, record.next_ending),
        ]
    });
    let differ = text_table(["model", "precision", "card", "largest", "next"], rows);
    match differ.rows.is_empty() {
        true => markdown::render(&[summary]),
        false => markdown::render(&[summary, differ]),
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
    let rows = records.iter().map(|record| {
        let (estimated, measured) = (&record.estimated, &record.measured);
        vec![
            record.model.clone(),
            record.batch.to_string(),
            sizes(&record.input),
            format!("{}, {}", record.precision, record.optimizer),
            record.burn.switches(),
            record.mode.to_string(),
            exact(estimated.live_bytes),
            exact(measured.live_bytes),
            exact(estimated.reserved_bytes),
            exact(measured.reserved_bytes),
            record.device.name.clone(),
            record.date.clone(),
        ]
    });
    text_table(
        [
            "model",
            "batch",
            "sample",
            "precision, optimizer",
            "burn",
            "run",
            "in use",
            "measured",
            "reserved",
            "measured",
            "device",
            "date",
        ],
        rows,
    )
}

fn exact(bytes: Bytes) -> String {
    grouped(bytes.0)
}
