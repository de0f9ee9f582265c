//! The answers of `verify`, as pages and as tables.

use std::fmt::Write;

use estimator::{Bytes, Category};
use strum::IntoEnumIterator;

use super::Cell::{self, ExactBytes};
use super::job_lines::{burn_and_mismatch, headline};
use super::terminal::{BAD, FAINT, GOOD, columns, grouped, indented, styled};
use super::{Report, Table};
use crate::comparison::{METADATA, PhaseFigures};
use crate::measure::{DeviceKind, DeviceReport, Found, Mode, Outcome};
use crate::report::{BatchRun, LimitReport, VerifyReport};

/// `llvmpipe through wgpu (vulkan), driver …; a software device`
fn device_line(device: &DeviceReport) -> String {
    let mut line = format!("{} through {}", device.name, device.runtime);
    if let Some(api) = &device.api {
        let _ = write!(line, " ({api})");
    }
    if let Some(driver) = &device.driver {
        let _ = write!(line, ", driver {driver}");
    }
    if let Some(remark) = device.kind.remark() {
        let _ = write!(line, "; {remark}");
    }
    line
}

/// `+1.25 %`, or `the same`.
pub(super) fn relative(error: f64) -> String {
    match error {
        0.0 => "the same".into(),
        error => format!("{:+.2} %", error * 100.0),
    }
}

/// How much `estimated` is above `measured`.
fn difference(estimated: Bytes, measured: Bytes) -> Cell {
    Cell::Difference(estimated.signed_difference(measured))
}

/// How far off an estimate is that counts as equal, or is.
fn how_far(error: f64, equal: bool) -> String {
    match error == 0.0 && !equal {
        true => format!("within {METADATA}"),
        false => relative(error),
    }
}

impl VerifyReport {
    fn pairs(&self) -> impl Iterator<Item = (&PhaseFigures, &PhaseFigures)> {
        self.estimated.zip_phases(&self.measured)
    }

    fn phase_table(&self) -> Table {
        let pairs: Vec<_> = self.pairs().collect();
        Table::of("At the end of each phase, in bytes", &pairs)
            .column("step", |(_, m)| m.step + 1)
            .column("phase", |(_, m)| m.phase.to_string())
            .column("allocations", |(e, _)| e.allocations)
            .column_as("measured", "allocations_measured", |(_, m)| m.allocations)
            .column_as("in use", "live_bytes", |(e, _)| ExactBytes(e.live_bytes))
            .column_as("measured", "live_measured_bytes", |(_, m)| {
                ExactBytes(m.live_bytes)
            })
            .column_as("difference", "live_difference_bytes", |(e, m)| {
                difference(e.live_bytes, m.live_bytes)
            })
            .column_as("reserved", "reserved_bytes", |(e, _)| {
                ExactBytes(e.reserved_bytes)
            })
            .column_as("measured", "reserved_measured_bytes", |(_, m)| {
                ExactBytes(m.reserved_bytes)
            })
            .column_as("difference", "reserved_difference_bytes", |(e, m)| {
                difference(e.reserved_bytes, m.reserved_bytes)
            })
            .build()
    }

    fn category_table(&self) -> Table {
        let last_step = self.measured.phases.last().map(|phase| phase.step);
        let last = self
            .pairs()
            .filter(|(_, measured)| Some(measured.step) == last_step);
        let categories = last.flat_map(|(e, m)| Category::iter().map(move |of| (e, m, of)));
        let rows: Vec<_> = categories
            .map(|(e, m, of)| (m.phase, of, e.categories[of], m.categories[of]))
            .filter(|(.., e, m)| [*e, *m] != [Bytes::ZERO; 2])
            .collect();
        Table::of("By category in the last step, in bytes", &rows)
            .column("phase", |(phase, ..)| phase.to_string())
            .column("category", |(_, category, ..)| category.to_string())
            .column_as("estimated", "estimated_bytes", |(.., e, _)| ExactBytes(*e))
            .column_as("measured", "measured_bytes", |(.., m)| ExactBytes(*m))
            .column_as("difference", "difference_bytes", |(.., e, m)| {
                difference(*e, *m)
            })
            .build()
    }

    fn peak_table(&self) -> Table {
        let rows: Vec<_> = self
            .pairs()
            .filter_map(|(e, m)| Some((m, e.peak_live_bytes?, m.peak_live_bytes?, m.readings?)))
            .collect();
        let title = "The most in use within each phase, in bytes; seen: in a dry run, by asking the pools all the time, which has calls made earlier than otherwise";
        Table::of(title, &rows)
            .column("step", |(m, ..)| m.step + 1)
            .column("phase", |(m, ..)| m.phase.to_string())
            .column_as("estimated", "estimated_bytes", |(_, e, ..)| ExactBytes(*e))
            .column_as("seen", "seen_bytes", |(.., seen, _)| ExactBytes(*seen))
            .column("readings", |(.., readings)| *readings)
            .build()
    }

    fn verdict(&self) -> String {
        let equal = |figure: fn(&PhaseFigures) -> Bytes| {
            let mut pairs = self.pairs();
            pairs.all(|(estimated, measured)| figure(estimated) == figure(measured))
        };
        let in_use = equal(|phase| phase.live_bytes);
        let reserved = equal(|phase| phase.reserved_bytes);
        match (&self.ending, &self.error, self.agrees) {
            (Outcome::Trained, Some(_), true) if in_use && reserved => {
                styled(GOOD, "the estimate is the measurement, to the byte")
            }
            (Outcome::Trained, Some(error), true) => format!(
                "{}: in use {}, reserved {}",
                styled(GOOD, "the estimate holds"),
                how_far(error.live.max(error.worst_phase), in_use),
                how_far(error.reserved, reserved)
            ),
            (Outcome::Trained, Some(error), false) => format!(
                "{}: in use {} (at the end of the worst phase {}), reserved {}{}{}",
                styled(BAD, "the estimate does not hold"),
                relative(error.live),
                relative(error.worst_phase),
                relative(error.reserved),
                error.peak_reserved.map_or(String::new(), |peak| format!(
                    ", the most reserved at any time {}",
                    relative(peak)
                )),
                error.device.map_or(String::new(), |device| format!(
                    ", the whole device {}",
                    relative(device)
                )),
            ),
            (ending, ..) => format!(
                "{}: the step {ending}; {} of {} phases were measured",
                styled(BAD, "not verified"),
                self.measured.phases.len(),
                self.estimated.phases.len()
            ),
        }
    }
}

impl Report for VerifyReport {
    fn terminal(&self) -> String {
        let mode = match (self.mode, self.device.kind) {
            (Mode::DryRun, _) => "dry run: kernels compiled, none launched",
            (Mode::Real, DeviceKind::Counting) => {
                "every call made through CUDA's runtime, nothing computed"
            }
            (Mode::Real, DeviceKind::Gpu | DeviceKind::Software) => "trained for real",
        };
        let mut page = format!("{}: {mode}\n\n", headline(&self.asked));
        let _ = writeln!(page, "  {}", self.verdict());
        let _ = writeln!(page, "  {}", styled(FAINT, device_line(&self.device)));
        for table in self.tables().iter().filter(|table| !table.rows.is_empty()) {
            let _ = write!(page, "\n  {}\n{}", table.title, columns(table));
        }
        if let Some(run) = &self.other_run {
            let _ = writeln!(
                page,
                "\n  the estimate is that of a run {run}: of the runs that the step has to complete, the nearest"
            );
        }
        if let (Some(estimated), Some(measured)) = (
            self.estimated.peak_reserved_bytes,
            self.measured.peak_reserved_bytes,
        ) {
            let _ = writeln!(
                page,
                "\n  peak reserved, counted by the driver: {}, estimated {}: {}",
                grouped(measured.0),
                grouped(estimated.0),
                difference(estimated, measured).text()
            );
        }
        if let Some(requests) = self.tuner_requests {
            let _ = writeln!(page, "\n  {}", tuned_anew(requests));
        }
        let device_error = self.error.and_then(|error| error.device);
        if let (Some(error), Some(device)) = (device_error, self.measured.device_bytes) {
            let _ = writeln!(
                page,
                "\n  the whole device held {device}: the estimate is {}",
                relative(error)
            );
        }
        let _ = writeln!(page, "\n{}", indented(&burn_and_mismatch(&self.asked)));
        page
    }

    fn tables(&self) -> Vec<Table> {
        vec![self.phase_table(), self.category_table(), self.peak_table()]
    }
}

/// What it means that burn's tuner was asked so often in a step that was tuned before.
fn tuned_anew(requests: u64) -> String {
    format!(
        "kernels that burn's tuner did not know: {requests}, although the step was tuned before. CubeCL keeps no choice \
         that it could not time, and an operand that is not overwritten can make another kernel. They were tuned in \
         the measured step, in other memory than a tuned step takes"
    )
}

impl LimitReport {
    fn line(&self, run: &BatchRun) -> String {
        let outcome = match &run.ending {
            Outcome::Trained => "trained".to_string(),
            Outcome::OutOfMemory(_) => "ran out of memory".to_string(),
            other => other.to_string(),
        };
        let style = if run.agrees(self.device.kind) {
            GOOD
        } else {
            BAD
        };
        format!(
            "batch {:<6} needs {:>10}, {}: {}",
            run.batch,
            run.required_bytes.to_string(),
            match run.fits {
                true => "fits",
                false if run.may_fit => "may fit, as runs differ a little",
                false => "does not fit",
            },
            styled(style, outcome)
        )
    }
}

impl Report for LimitReport {
    fn terminal(&self) -> String {
        let mut page = format!(
            "{}: largest batch within {}, trained for real\n\n",
            headline(&self.asked),
            self.budget_bytes
        );
        for run in &self.runs {
            let _ = writeln!(page, "  {}", self.line(run));
        }
        if let Some(requests) = self.runs.iter().filter_map(|run| run.tuner_requests).max() {
            let _ = writeln!(page, "\n  {}", tuned_anew(requests));
        }
        let _ = writeln!(page, "\n  {}", styled(FAINT, device_line(&self.device)));
        let _ = writeln!(
            page,
            "  the process may take {}: {} for the pools, and {} that it took beside them when it trained",
            self.budget_bytes + self.overhead_bytes,
            self.budget_bytes,
            self.overhead_bytes
        );
        let _ = writeln!(page, "{}", indented(&burn_and_mismatch(&self.asked)));
        page
    }

    fn tables(&self) -> Vec<Table> {
        let table = Table::of("", &self.runs)
            .column("batch", |run| run.batch)
            .column_as("required", "required_bytes", |run| run.required_bytes)
            .column("fits", |run| run.fits)
            .column_as("may fit", "may_fit", |run| run.may_fit)
            .column_as("on the device", "ending", |run| run.ending.to_string());
        vec![table.build()]
    }
}

impl Report for Vec<Found> {
    fn terminal(&self) -> String {
        if self.is_empty() {
            return "no device was found\n\n  install the driver of your GPU with its Vulkan part; on a machine without a GPU the package\n  mesa-vulkan-drivers brings a software device\n".into();
        }
        let mut page = String::new();
        for found in self {
            let _ = writeln!(page, "{:<10} {}", found.device, device_line(&found.report));
        }
        page
    }

    fn tables(&self) -> Vec<Table> {
        let table = Table::of("", self)
            .column("device", |found| &found.device)
            .column("name", |found| &found.report.name)
            .column("api", |found| found.report.api.as_ref())
            .column("driver", |found| found.report.driver.as_ref())
            .column("kind", |found| found.report.kind.to_string());
        vec![table.build()]
    }
}
