//! `docs/accuracy.md`: how far off the estimates are, from the records of measurements.

use std::collections::BTreeMap;

use estimator::Bytes;
use fit_check::comparison::METADATA;
use fit_check::measure::DeviceKind;
use fit_check::output::{Cell, Table, markdown};
use fit_check::records::Record;

use crate::records::Records;
use crate::verdicts;

/// What the page says of itself, before the text.
const HEAD: &str = "\
<!-- Written by `cargo run -p docs -- accuracy` from docs/data and docs/src/accuracy.frame.md:
     change those, not this. -->

";

/// The text that a person wrote; the tables replace its `{{…}}`.
const FRAME: &str = include_str!("accuracy.frame.md");

/// Writes the page.
pub fn page(records: &Records) -> String {
    let tables = [
        ("{{devices}}", devices(&records.steps)),
        ("{{gpus}}", gpus(&records.steps)),
        ("{{verdicts}}", verdicts::table(records)),
    ];
    let text = tables.iter().fold(FRAME.to_string(), |text, (at, table)| {
        text.replace(at, markdown::render(std::slice::from_ref(table)).trim_end())
    });
    format!("{HEAD}{text}")
}

/// An estimated and a measured number.
type Pair = (u64, u64);

/// The estimates of some steps beside their measurements, at the end of each phase.
#[derive(Default)]
struct Compared {
    steps: usize,
    live: Vec<Pair>,
    reserved: Vec<Pair>,
}

impl Compared {
    fn add(&mut self, record: &Record) {
        self.steps += 1;
        for (estimated, measured) in record.estimated.zip_phases(&record.measured) {
            self.live
                .push((estimated.live_bytes.0, measured.live_bytes.0));
            self.reserved
                .push((estimated.reserved_bytes.0, measured.reserved_bytes.0));
        }
    }
}

/// How far off the estimates are, by kind of device and configuration of burn.
fn devices(records: &[Record]) -> Table {
    let mut compared: BTreeMap<_, Compared> = BTreeMap::new();
    for record in records {
        let (place, kind) = match record.device.kind {
            DeviceKind::Gpu => (0, "GPU"),
            DeviceKind::Counting => (1, "counting driver"),
            DeviceKind::Software => (2, "software device"),
        };
        let (second, burn) = match record.burn.autotune {
            true => (0, "default features"),
            false => (1, "plain"),
        };
        let row = compared.entry((place, second, format!("{kind}, {burn}")));
        row.or_default().add(record);
    }
    let rows: Vec<_> = compared.into_iter().collect();
    Table::of("", &rows)
        .column("measured on", |((.., name), _)| name)
        .column("steps", |(_, row)| row.steps)
        .column("phase ends", |(_, row)| row.live.len())
        .column("in use, within 1 KiB", |(_, row)| {
            within(&row.live, METADATA.0)
        })
        .column("errors", |(_, row)| errors(&row.live))
        .column("reserved, equal", |(_, row)| within(&row.reserved, 0))
        .column("errors", |(_, row)| errors(&row.reserved))
        .build()
}

/// The number of `pairs` whose sides are at most `tolerance` apart.
fn within(pairs: &[Pair], tolerance: u64) -> usize {
    let near = pairs
        .iter()
        .filter(|(estimated, measured)| estimated.abs_diff(*measured) <= tolerance);
    near.count()
}

/// The least and the greatest error.
fn errors(pairs: &[Pair]) -> String {
    let errors = || pairs.iter().map(|pair| error(*pair));
    let [least, most] = [errors().fold(0.0, f64::min), errors().fold(0.0, f64::max)];
    match percent(least) == percent(most) {
        true => percent(most),
        false => format!("{} to {}", percent(least), percent(most)),
    }
}

/// The estimate less the measurement, relative to the measurement.
fn error((estimated, measured): Pair) -> f64 {
    (estimated as f64 - measured as f64) / (measured as f64).max(1.0)
}

/// `+0.02 %`; zero for what has no effect on an answer.
fn percent(error: f64) -> String {
    match error.abs() {
        size if size < 5e-5 => "0".into(),
        size if size < 5e-3 => format!("{:+.2} %", error * 100.0),
        _ => format!("{:+.1} %", error * 100.0),
    }
}

/// A figure of a step that was measured on a GPU.
struct GpuRow {
    step: String,
    figure: &'static str,
    estimated: Bytes,
    measured: Bytes,
}

impl GpuRow {
    /// `-129.0 MiB, -24.6 %`; no percentage of less than a thousandth.
    fn error(&self) -> String {
        let (estimated, measured) = (self.estimated.0, self.measured.0);
        let difference = Cell::Difference(estimated as i64 - measured as i64).text();
        match error((estimated, measured)) {
            error if error.abs() < 1e-3 => difference,
            error => format!("{difference}, {}", percent(error)),
        }
    }
}

/// The figures of each step that was measured on a GPU.
fn gpus(records: &[Record]) -> Table {
    let gpus = records
        .iter()
        .filter(|record| record.device.kind == DeviceKind::Gpu);
    let rows: Vec<_> = gpus.flat_map(gpu_rows).collect();
    Table::of("", &rows)
        .column("step", |row| &row.step)
        .column("the most at a phase end", |row| row.figure)
        .column("estimated", |row| row.estimated)
        .column("measured", |row| row.measured)
        .column("error", GpuRow::error)
        .build()
}

fn gpu_rows(record: &Record) -> Vec<GpuRow> {
    let (estimated, measured) = (&record.estimated, &record.measured);
    let card = record.device.name.trim_start_matches("NVIDIA ");
    let Record {
        model,
        batch,
        precision,
        ..
    } = record;
    // What the process takes beside the pools.
    let beside = |device: Option<Bytes>, pools: Option<Bytes>| {
        Some(Bytes(device?.0.saturating_sub(pools?.0)))
    };
    let process = [
        beside(estimated.device_bytes, estimated.peak_reserved_bytes),
        beside(measured.device_bytes, Some(measured.reserved_bytes)),
    ];
    let figures = [
        (
            "in use",
            [estimated.live_bytes, measured.live_bytes].map(Some),
        ),
        (
            "reserved by the pools",
            [estimated.reserved_bytes, measured.reserved_bytes].map(Some),
        ),
        ("process, beside the pools", process),
    ];
    let rows = figures.into_iter().filter_map(|(figure, sides)| {
        Some(GpuRow {
            step: format!("{card}: {model}, batch {batch}, {precision}"),
            figure,
            estimated: sides[0]?,
            measured: sides[1]?,
        })
    });
    rows.collect()
}
