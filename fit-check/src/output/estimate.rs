//! The answer of `estimate`.

use std::fmt::Write;

use estimator::{Breakdown, Bytes, Category, Choice, LayerMemory};
use serde::Serialize;
use strum::IntoEnumIterator;

use super::advice;
use super::job_lines::{assumptions, headline, verdict_line};
use super::terminal::{FAINT, TITLE, bar, columns, grouped, styled};
use super::{Cell, Report, Table};
use crate::report::{EstimateReport, Verdict};

/// A line for each category that has anything at the peak.
pub(crate) fn breakdown(at_peak: &Breakdown) -> String {
    let total = at_peak.total().as_f64().max(1.0);
    let mut lines = String::new();
    for category in Category::iter() {
        let bytes = at_peak[category];
        if bytes.0 == 0 {
            continue;
        }
        let share = bytes.as_f64() / total;
        let _ = writeln!(
            lines,
            "  {:<12} {:>10}  {:>5.1} %  {}",
            category.to_string(),
            bytes.to_string(),
            share * 100.0,
            bar(share, 30)
        );
    }
    lines
}

/// A figure of an estimate.
#[derive(Debug)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its amount.
    pub bytes: Bytes,
    /// Its meaning.
    pub meaning: String,
}

impl Figure {
    /// A figure with this name, amount and meaning.
    pub fn new(name: &'static str, bytes: Bytes, meaning: impl Into<String>) -> Self {
        Self {
            name,
            bytes,
            meaning: meaning.into(),
        }
    }
}

/// `verdicts` and `figures` as the lines with which a page begins. The first figure stands out.
pub(crate) fn verdicts_and_figures(verdicts: &[Verdict], figures: &[Figure]) -> String {
    let mut lines = String::new();
    for verdict in verdicts {
        let _ = writeln!(lines, "  {}", verdict_line(verdict));
    }
    if !verdicts.is_empty() {
        lines.push('\n');
    }
    for (index, figure) in figures.iter().enumerate() {
        let amount = format!("{:<9} {:>10}", figure.name, figure.bytes.to_string());
        let amount = match index {
            0 => styled(TITLE, amount),
            _ => amount,
        };
        let _ = writeln!(lines, "  {amount}  {}", figure.meaning);
    }
    lines.push('\n');
    lines
}

/// The figures of `report`, the most important one first.
pub(crate) fn figures(report: &EstimateReport) -> Vec<Figure> {
    let peak = &report.peak;
    let mut figures = vec![
        Figure::new(
            "required",
            peak.required_bytes,
            "the least memory with which the step completes",
        ),
        Figure::new(
            "reserved",
            peak.reserved_bytes,
            "reserved by burn's pools on a card with unlimited memory",
        ),
    ];
    if report.overhead_bytes.0 > 0 {
        let overhead = report.overhead_bytes;
        figures.push(Figure::new(
            "device",
            peak.device_bytes,
            format!("reserved, plus {overhead} for the process (context, libraries)"),
        ));
    }
    let mut live = format!("in use at the peak: {} phase", peak.phase);
    for (what, name) in [("layer", &peak.layer), ("kernel", &peak.kernel)] {
        if let Some(name) = name {
            let _ = write!(live, ", {what} {name}");
        }
    }
    if let Some(first) = &report.first_run {
        figures.push(Figure::new(
            "first run",
            first.reserved_bytes,
            "peak reserved in the first run, in which burn tunes its kernels (unlimited memory)",
        ));
    }
    figures.push(Figure::new("live", peak.live_bytes, live));
    if let Some(pytorch) = &report.pytorch {
        figures.push(Figure::new(
            "pytorch",
            pytorch.required_bytes,
            format!(
                "what the same job needs in PyTorch {} (--framework pytorch)",
                pytorch.version
            ),
        ));
    }
    if let Some(range) = &report.range {
        figures.push(Figure::new(
            "from",
            range.least_bytes,
            format!(
                "to {} in use at the peak, whichever kernels burn's tuner prefers",
                range.most_bytes
            ),
        ));
    }
    figures
}

/// A line for each card on which the step needs other memory than on the first, whose figures the page has.
fn other_kernels(report: &EstimateReport) -> String {
    let Some((first, others)) = report.verdicts().split_first() else {
        return String::new();
    };
    let others = others
        .iter()
        .filter(|card| card.required_bytes != first.required_bytes);
    let lines = others.map(|card| {
        let (name, first) = (&card.gpu.name, &first.gpu.name);
        let required = card.required_bytes;
        format!(
            "  on {name} burn chooses other kernels than on {first}, and {required} are required\n"
        )
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => lines + "\n",
    }
}

impl EstimateReport {
    /// The page; with `layers`, it has the table of layers.
    fn full_page(&self, layers: bool) -> String {
        let mut page = format!("{}\n\n", headline(&self.asked));
        page += &verdicts_and_figures(self.verdicts(), &figures(self));
        page += &other_kernels(self);
        page += &breakdown(&self.at_peak);
        let parameters = &self.parameters;
        let _ = write!(
            page,
            "\n  {} trainable parameters in {} tensors",
            grouped(parameters.trainable),
            parameters.tensors
        );
        if parameters.frozen > 0 {
            let all = parameters.trainable + parameters.frozen;
            let share = 100.0 * parameters.trainable as f64 / all as f64;
            let frozen = grouped(parameters.frozen);
            let _ = write!(page, ", {frozen} frozen ({share:.3} % are trained)");
        }
        if parameters.buffers > 0 {
            let _ = write!(page, ", {} in buffers", grouped(parameters.buffers));
        }
        let _ = writeln!(page, "\n  {}", styled(FAINT, assumptions(&self.asked)));
        if let Some(kernels) = &self.kernels {
            page.push('\n');
            page += &columns(&kernel_table(kernels));
        }
        if layers {
            page.push('\n');
            if self.layers_unfused {
                page +=
                    "  without fusion, since a fused kernel computes several layers at once:\n\n";
            }
            page += &columns(&layer_table(&self.layers));
        }
        page += &advice::end_of_page(self.advice.as_ref(), self.offers_advice);
        page
    }
}

/// The table of layers.
pub(crate) fn layer_table(layers: &[LayerMemory]) -> Table {
    Table::of("Layers", layers)
        .column("layer", |l| &l.path)
        .column("kind", |l| &l.kind)
        .column_as("parameters", "parameters_bytes", |l| l.parameter_bytes)
        .column_as("activations", "activations_bytes", |l| l.activation_bytes)
        .column_as("gradients", "gradients_bytes", |l| l.gradient_bytes)
        .column_as("optimizer", "optimizer_bytes", |l| l.optimizer_bytes)
        .build()
}

fn kernel_table(kernels: &[Choice]) -> Table {
    Table::of("Kernels that burn's tuner chose", kernels)
        .column_as("result", "result_bytes", |c| c.result_bytes)
        .column_as("scratch", "scratch_bytes", |c| c.scratch_bytes)
        .column_as("least", "least_scratch_bytes", |c| c.least_scratch_bytes)
        .column_as("most", "most_scratch_bytes", |c| c.most_scratch_bytes)
        .column("chosen", |c| &c.chosen)
        .column("operation", |c| &c.operation)
        .build()
}

/// An estimate with its layers.
#[derive(Serialize)]
#[serde(transparent)]
pub struct WithLayers<'a>(pub &'a EstimateReport);

impl Report for WithLayers<'_> {
    fn terminal(&self) -> String {
        self.0.full_page(true)
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = self.0.tables();
        tables.push(layer_table(&self.0.layers));
        tables
    }

    /// The table of layers, since the user asked for it.
    fn csv(&self) -> Table {
        layer_table(&self.0.layers)
    }
}

impl Report for EstimateReport {
    fn terminal(&self) -> String {
        self.full_page(false)
    }

    fn tables(&self) -> Vec<Table> {
        let kernels = self.kernels.as_deref().map(kernel_table);
        let advice = self.advice.iter().map(advice::table);
        std::iter::once(with_verdicts(self.job_table(), self.verdicts()))
            .chain(kernels)
            .chain(advice)
            .collect()
    }
}

impl EstimateReport {
    /// The job and its figures, in one row.
    fn job_table(&self) -> Table {
        let mut table = Table::of("", std::slice::from_ref(self))
            .column("model", |r| &r.asked.model)
            .column("batch", |r| r.asked.batch)
            .column("precision", |r| r.asked.precision.to_string())
            .column("optimizer", |r| r.asked.optimizer.to_string())
            .column("runtime", |r| r.asked.runtime.to_string())
            .column_as(REQUIRED, "required_bytes", |r| r.peak.required_bytes)
            .column_as("reserved", "reserved_bytes", |r| r.peak.reserved_bytes)
            .column_as("device", "device_bytes", |r| r.peak.device_bytes)
            .column_as("live", "live_bytes", |r| r.peak.live_bytes);
        for category in Category::iter() {
            let csv_name = format!("{category}_bytes");
            table = table.column_as(category.to_string(), csv_name, |r| r.at_peak[category]);
        }
        if let Some(range) = self.range {
            table = table
                .column_as("live, least", "least_live_bytes", |_| range.least_bytes)
                .column_as("live, most", "most_live_bytes", |_| range.most_bytes);
        }
        table.build()
    }
}

/// The column of the least memory with which a step completes.
pub(crate) const REQUIRED: &str = "required";

/// The one row of `job` for each of `verdicts`, with the required memory of its card and with the columns of the verdict
/// after it. Without a verdict it is `job`.
pub(crate) fn with_verdicts(job: Table, verdicts: &[Verdict]) -> Table {
    if verdicts.is_empty() {
        return job;
    }
    let mut table = Table::of("", verdicts)
        .column("gpu", |v| &v.gpu.name)
        .column("fits", |v| v.fits)
        .column_as("headroom", "headroom_bytes", |v| {
            Cell::headroom(v.headroom_bytes)
        })
        .column_as("first run fits", "first_run_fits", |v| v.first_run_fits)
        .column_as("fits with a lag", "lag_fits", |v| v.lag_fits)
        .column_as("without overwriting", "fits_without_overwriting", |v| {
            v.fits_without_overwriting
        })
        .column_as("fits in every run", "every_run_fits", |v| v.every_run_fits)
        .column_as("why", "reason", |v| v.reason.as_ref())
        .build();
    let required = job.columns.iter().position(|c| c.name == REQUIRED);
    table.columns.splice(..0, job.columns);
    for (row, verdict) in table.rows.iter_mut().zip(verdicts) {
        row.splice(..0, job.rows[0].clone());
        if let Some(required) = required {
            row[required] = verdict.required_bytes.into();
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_info::GpuName;
    use crate::output::csv;

    fn verdict(name: &str, fits: bool, every_run_fits: Option<bool>) -> Verdict {
        Verdict {
            gpu: GpuName {
                name: name.into(),
                usable_bytes: Bytes(10),
                overhead_bytes: Bytes::ZERO,
                provenance: None,
            },
            fits,
            required_bytes: Bytes(if fits { 7 } else { 12 }),
            headroom_bytes: if fits { 3 } else { -2 },
            reason: (!fits).then(|| "an allocation, in the forward phase".into()),
            first_run_fits: fits.then_some(true),
            lag_fits: None,
            fits_without_overwriting: fits.then_some(true),
            every_run_fits,
        }
    }

    /// A reader of the rows finds each verdict that the exit status is about.
    #[test]
    fn each_verdict_has_a_row() {
        let job = || {
            Table::of("", &["net"])
                .column("model", |name| *name)
                .build()
        };
        let render = |verdicts: &[Verdict]| csv::render(&with_verdicts(job(), verdicts)).unwrap();
        assert_eq!(render(&[]), "model\nnet\n");
        let verdicts = [
            verdict("large", true, Some(false)),
            verdict("small", false, None),
        ];
        let rows = "model,gpu,fits,headroom_bytes,first_run_fits,lag_fits,\
            fits_without_overwriting,every_run_fits,reason\n\
            net,large,true,3,true,,true,false,\n\
            net,small,false,-2,,,,,\"an allocation, in the forward phase\"\n";
        assert_eq!(render(&verdicts), rows);
    }
}
