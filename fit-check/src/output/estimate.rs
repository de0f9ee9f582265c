//! The answer of `estimate`.

use std::fmt::Write;

use estimator::{Breakdown, Bytes, Category, Choice, LayerMemory};
use strum::IntoEnumIterator;

use super::advice;
use super::job_lines::{assumptions, headline, verdict_line};
use super::terminal::{FAINT, TITLE, bar, columns, grouped, styled};
use super::{Cell, Report, Table, column};
use crate::report::{EstimateReport, Verdict};

fn breakdown(at_peak: &Breakdown) -> String {
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
pub(crate) struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its amount.
    pub bytes: Bytes,
    /// Its meaning.
    pub meaning: String,
}

/// The figures of `report`, the most important one first.
pub(crate) fn figures(report: &EstimateReport) -> Vec<Figure> {
    let peak = &report.peak;
    let figure = |name, bytes, meaning: String| Figure {
        name,
        bytes,
        meaning,
    };
    let mut figures = vec![
        figure(
            "required",
            peak.required_bytes,
            "the least memory with which the step completes".into(),
        ),
        figure(
            "reserved",
            peak.reserved_bytes,
            "held by burn's pools where there is room".into(),
        ),
    ];
    if report.overhead_bytes.0 > 0 {
        let overhead = report.overhead_bytes;
        figures.push(figure(
            "device",
            peak.device_bytes,
            format!("the whole device then: with {overhead} for the process"),
        ));
    }
    let mut live = format!("in use at the peak: {} phase", peak.phase);
    for (what, name) in [("layer", &peak.layer), ("kernel", &peak.kernel)] {
        if let Some(name) = name {
            let _ = write!(live, ", {what} {name}");
        }
    }
    if let Some(first) = &report.first_run {
        figures.push(figure(
            "first run",
            first.reserved_bytes,
            "reserved in the first run, where kernels are tuned, with room for it".into(),
        ));
    }
    figures.push(figure("live", peak.live_bytes, live));
    if let Some(range) = &report.range {
        figures.push(figure(
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

impl EstimateReport {
    /// The page; with `layers`, it has the table of layers.
    fn full_page(&self, layers: bool) -> String {
        let mut page = format!("{}\n\n", headline(&self.asked));
        let verdicts = self.verdicts();
        for verdict in verdicts {
            let _ = writeln!(page, "  {}", verdict_line(verdict));
        }
        if !verdicts.is_empty() {
            page.push('\n');
        }
        for (index, figure) in figures(self).iter().enumerate() {
            let amount = format!("{:<9} {:>10}", figure.name, figure.bytes.to_string());
            let amount = match index {
                0 => styled(TITLE, amount),
                _ => amount,
            };
            let _ = writeln!(page, "  {amount}  {}", figure.meaning);
        }
        page.push('\n');
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

fn layer_table(layers: &[LayerMemory]) -> Table {
    let rows = layers.iter().map(|layer| {
        vec![
            layer.path.clone().into(),
            layer.kind.clone().into(),
            layer.parameter_bytes.into(),
            layer.activation_bytes.into(),
            layer.gradient_bytes.into(),
            layer.optimizer_bytes.into(),
        ]
    });
    Table {
        title: "Layers".into(),
        columns: vec![
            column("layer", "layer"),
            column("kind", "kind"),
            column("parameters", "parameters_bytes"),
            column("activations", "activations_bytes"),
            column("gradients", "gradients_bytes"),
            column("optimizer", "optimizer_bytes"),
        ],
        rows: rows.collect(),
    }
}

fn kernel_table(kernels: &[Choice]) -> Table {
    let rows = kernels.iter().map(|choice| {
        vec![
            choice.result_bytes.into(),
            choice.scratch_bytes.into(),
            choice.least_scratch_bytes.into(),
            choice.most_scratch_bytes.into(),
            choice.chosen.clone().into(),
            choice.operation.clone().into(),
        ]
    });
    Table {
        title: "Kernels that burn's tuner chose".into(),
        columns: vec![
            column("result", "result_bytes"),
            column("scratch", "scratch_bytes"),
            column("least", "least_scratch_bytes"),
            column("most", "most_scratch_bytes"),
            column("chosen", "chosen"),
            column("operation", "operation"),
        ],
        rows: rows.collect(),
    }
}

/// An estimate with its layers.
pub struct WithLayers<'a>(pub &'a EstimateReport);

impl serde::Serialize for WithLayers<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

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
        std::iter::once(verdict_table(self.job_cells(), self.verdicts()))
            .chain(kernels)
            .chain(advice)
            .collect()
    }
}

/// A cell, and the names of its column for people and in CSV.
pub(crate) type NamedCell = (&'static str, &'static str, Cell);

impl EstimateReport {
    /// The job and its figures.
    fn job_cells(&self) -> Vec<NamedCell> {
        let peak = &self.peak;
        let asked = &self.asked;
        let mut cells: Vec<NamedCell> = vec![
            ("model", "model", asked.model.clone().into()),
            ("batch", "batch", asked.batch.into()),
            ("precision", "precision", asked.precision.to_string().into()),
            ("optimizer", "optimizer", asked.optimizer.to_string().into()),
            ("runtime", "runtime", asked.runtime.to_string().into()),
            ("required", "required_bytes", peak.required_bytes.into()),
            ("reserved", "reserved_bytes", peak.reserved_bytes.into()),
            ("device", "device_bytes", peak.device_bytes.into()),
            ("live", "live_bytes", peak.live_bytes.into()),
        ];
        for category in Category::iter() {
            let (name, csv_name) = category_column(category);
            cells.push((name, csv_name, self.at_peak[category].into()));
        }
        if let Some(range) = self.range {
            let [least, most] = [range.least_bytes, range.most_bytes];
            cells.push(("live, least", "least_live_bytes", least.into()));
            cells.push(("live, most", "most_live_bytes", most.into()));
        }
        cells
    }
}

/// A table with a row for each of `verdicts`: the cells of `job`, then those of the verdict. Without a verdict it has one
/// row, the cells of `job`.
pub(crate) fn verdict_table(job: Vec<NamedCell>, verdicts: &[Verdict]) -> Table {
    let with_verdict = |verdict| [job.clone(), verdict_cells(verdict)].concat();
    let rows: Vec<Vec<NamedCell>> = match verdicts {
        [] => vec![job],
        _ => verdicts.iter().map(with_verdict).collect(),
    };
    let columns = rows[0]
        .iter()
        .map(|(name, csv_name, _)| column(*name, *csv_name));
    let cells = |row: &Vec<NamedCell>| row.iter().map(|(_, _, cell)| cell.clone()).collect();
    Table {
        title: String::new(),
        columns: columns.collect(),
        rows: rows.iter().map(cells).collect(),
    }
}

fn verdict_cells(verdict: &Verdict) -> Vec<NamedCell> {
    let headroom = Cell::Difference(verdict.headroom_bytes);
    let first_run_fits = verdict.first_run_fits.into();
    let every_run_fits = verdict.every_run_fits.into();
    vec![
        ("gpu", "gpu", verdict.gpu.name.clone().into()),
        ("fits", "fits", verdict.fits.into()),
        ("headroom", "headroom_bytes", headroom),
        ("first run fits", "first_run_fits", first_run_fits),
        ("fits with a lag", "lag_fits", verdict.lag_fits.into()),
        ("fits in every run", "every_run_fits", every_run_fits),
    ]
}

/// The names of a category's column, for people and in CSV.
fn category_column(category: Category) -> (&'static str, &'static str) {
    match category {
        Category::Parameters => ("parameters", "parameters_bytes"),
        Category::Gradients => ("gradients", "gradients_bytes"),
        Category::Optimizer => ("optimizer", "optimizer_bytes"),
        Category::Activations => ("activations", "activations_bytes"),
        Category::Temporaries => ("temporaries", "temporaries_bytes"),
        Category::Inputs => ("inputs", "inputs_bytes"),
        Category::Buffers => ("buffers", "buffers_bytes"),
    }
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
            headroom_bytes: if fits { 3 } else { -2 },
            reason: None,
            first_run_fits: fits.then_some(true),
            lag_fits: None,
            every_run_fits,
        }
    }

    /// A reader of the rows finds each verdict that the exit status is about.
    #[test]
    fn each_verdict_has_a_row() {
        let job = || -> Vec<NamedCell> { vec![("model", "model", "net".into())] };
        let render = |verdicts: &[Verdict]| csv::render(&verdict_table(job(), verdicts)).unwrap();
        assert_eq!(render(&[]), "model\nnet\n");
        let verdicts = [
            verdict("large", true, Some(false)),
            verdict("small", false, None),
        ];
        let rows = "model,gpu,fits,headroom_bytes,first_run_fits,lag_fits,every_run_fits\n\
            net,large,true,3,true,,false\n\
            net,small,false,-2,,,\n";
        assert_eq!(render(&verdicts), rows);
    }
}
