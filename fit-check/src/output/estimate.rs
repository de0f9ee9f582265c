//! The answer of `estimate`.

use std::fmt::Write;

use estimator::{Breakdown, Bytes, Category, Choice, LayerMemory};
use serde::Serialize;
use strum::IntoEnumIterator;

use super::advice;
use super::cells::TableBuilder;
use super::job_lines::{
    assumptions, headline, nccl_lines, needs, number_format, sample, verdict_lines,
};
use super::terminal::{FAINT, TITLE, bar, columns, grouped, styled, width, wrapped, wrapped_lines};
use super::{Cell, Report, Table};
use crate::job_info::JobInfo;
use crate::report::{EstimateReport, Peak, Verdict};

/// The columns of a line of the breakdown before its bar.
const BEFORE_BAR: usize = 36;

/// A line for each category that has anything at the peak.
pub(crate) fn breakdown(at_peak: &Breakdown) -> String {
    let total = at_peak.total().as_f64().max(1.0);
    let longest = (width() - BEFORE_BAR).min(30);
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
            bar(share, longest)
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
        lines += &wrapped_lines(&verdict_lines(verdict, None), 2);
    }
    if !verdicts.is_empty() {
        lines.push('\n');
    }
    lines + &figure_lines(figures) + "\n"
}

/// `figures`, one a line. The first stands out.
fn figure_lines(figures: &[Figure]) -> String {
    let mut lines = String::new();
    for (index, figure) in figures.iter().enumerate() {
        let amount = format!("{:<9} {:>10}", figure.name, figure.bytes.to_string());
        let amount = match index {
            0 => styled(TITLE, amount),
            _ => amount,
        };
        let line = wrapped(&figure.meaning, 24, 24);
        let _ = writeln!(lines, "  {amount}  {}", line.trim_start());
    }
    lines
}

/// The moment of the peak: `in the backward phase of step 2, at layer4.2.bn3`.
fn moment(peak: &Peak) -> String {
    let mut moment = match peak.step {
        0 => format!("in the {} phase", peak.phase),
        step => format!("in the {} phase of step {step}", peak.phase),
    };
    if let Some(layer) = peak.layer.as_ref().filter(|layer| !layer.is_empty()) {
        let _ = write!(moment, ", at {layer}");
    }
    moment
}

/// What few people need of `report`, one figure a line.
pub(crate) fn details(report: &EstimateReport) -> Vec<Figure> {
    let peak = &report.peak;
    let mut figures = vec![Figure::new(
        "reserved",
        peak.reserved_bytes,
        "by burn's pools in a run with tuned kernels, if the card has room",
    )];
    if let Some(first) = &report.first_run {
        figures.push(Figure::new(
            "first run",
            first.reserved_bytes,
            format!(
                "reserved by the pools in the first run, in which burn tunes its kernels, if the card has room; {} in use",
                first.live_bytes
            ),
        ));
    }
    if report.overhead_bytes.0 > 0 {
        figures.push(Figure::new(
            "process",
            report.overhead_bytes,
            "besides the pools: context and libraries",
        ));
    }
    for phase in &report.phases {
        figures.push(Figure::new(
            "phase",
            phase.peak_live_bytes,
            format!(
                "at most in use in the {} phase, {} at its end",
                phase.phase, phase.live_bytes
            ),
        ));
    }
    figures
}

/// The figures of `report` that its page for a browser begins with.
pub(crate) fn figures(report: &EstimateReport) -> Vec<Figure> {
    let peak = &report.peak;
    let mut figures = vec![
        Figure::new(
            "needs",
            peak.required_bytes,
            "the least memory with which the first run and those after it complete",
        ),
        Figure::new(
            "shown",
            peak.device_bytes,
            "the most that nvidia-smi shows of the process",
        ),
        Figure::new(
            "in use",
            peak.live_bytes,
            format!("at the peak, {}", moment(peak)),
        ),
    ];
    figures.extend(details(report));
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
        format!("the breakdown is of {first}; on {name} the step needs other memory\n")
    });
    let lines = wrapped_lines(&lines.collect::<String>(), 2);
    match lines.is_empty() {
        true => lines,
        false => lines + "\n",
    }
}

impl EstimateReport {
    /// What is needed, and of how much.
    fn needs(&self) -> String {
        let peak = &self.peak;
        needs(
            self.verdicts(),
            peak.required_bytes,
            peak.device_bytes,
            self.overhead_bytes,
        )
    }

    /// What each GPU of several takes; nothing on one.
    fn gpus(&self) -> String {
        let [_, others] = self.gpus.as_slice() else {
            return String::new();
        };
        let who = match others.count {
            1 => "GPU 1 needs".to_string(),
            count => format!("GPU 1 to {count} need"),
        };
        let mut lines = format!(
            "this is GPU 0, which also keeps the model that the program built; {who} {}\n",
            others.peak.required_bytes
        );
        if let Some(verdict) = &self.verdict
            && let Some(nccl) = nccl_lines(&verdict.gpu)
        {
            let _ = writeln!(lines, "{nccl}");
        }
        if !self.nccl_decides.is_empty() {
            let cards = self.nccl_decides.join(", ");
            let _ = writeln!(
                lines,
                "NCCL decides on {cards}: if it takes the least of that, the step fits"
            );
        }
        wrapped_lines(&lines, 2)
    }

    /// The parameters, as a sentence.
    fn parameters(&self) -> String {
        let parameters = &self.parameters;
        let mut text = format!(
            "{} trainable parameters in {} tensors",
            grouped(parameters.trainable),
            parameters.tensors
        );
        if parameters.frozen > 0 {
            let all = parameters.trainable + parameters.frozen;
            let share = 100.0 * parameters.trainable as f64 / all as f64;
            let frozen = grouped(parameters.frozen);
            let _ = write!(text, ", {frozen} frozen ({share:.3} % are trained)");
        }
        if parameters.buffers > 0 {
            let _ = write!(text, ", {} in buffers", grouped(parameters.buffers));
        }
        text
    }

    /// The page, with what was asked for.
    fn page(&self, details: bool, layers: bool) -> String {
        let mut page = format!("{}\n\n", wrapped(&headline(&self.asked), 0, 2));
        page += &self.needs();
        page += &self.gpus();
        if let Some(pytorch) = &self.pytorch {
            let pytorch = format!(
                "in PyTorch {} the same job needs {} (--framework pytorch)",
                pytorch.version, pytorch.required_bytes
            );
            let _ = writeln!(page, "{}", wrapped(&pytorch, 2, 4));
        }
        let peak = format!(
            "{} in use at the peak, {}:",
            self.peak.live_bytes,
            moment(&self.peak)
        );
        let _ = writeln!(page, "\n{}\n", wrapped(&peak, 2, 4));
        page += &other_kernels(self);
        page += &breakdown(&self.at_peak);
        page.push('\n');
        if details {
            page += &figure_lines(&self::details(self));
            if let Some(kernel) = &self.peak.kernel {
                let kernel = format!("the last buffer of the peak is for kernel {kernel}");
                let _ = writeln!(page, "{}", wrapped(&kernel, 2, 4));
            }
            page.push('\n');
        }
        if let Some(range) = &self.range {
            let range = format!(
                "from {} to {} in use at the peak, whichever kernels burn's tuner prefers",
                range.least_bytes, range.most_bytes
            );
            let _ = writeln!(page, "{}\n", wrapped(&range, 2, 4));
        }
        let _ = writeln!(page, "{}", wrapped(&self.parameters(), 2, 4));
        let _ = writeln!(
            page,
            "{}",
            styled(FAINT, assumptions(&self.asked).trim_end())
        );
        if let Some(kernels) = &self.kernels {
            page.push('\n');
            page += &kernel_lines(kernels);
        }
        if layers {
            page.push('\n');
            if self.layers_unfused {
                let note = "without fusion, since a fused kernel computes several layers at once:";
                let _ = writeln!(page, "{}\n", wrapped(note, 2, 4));
            }
            page += &columns(&layer_table(&self.layers));
        }
        page += &advice::end_of_page(self.advice.as_ref(), self.offers_advice);
        page
    }
}

/// The kernels that burn's tuner chose, a paragraph each.
fn kernel_lines(kernels: &[Choice]) -> String {
    let mut page = format!(
        "  {}\n",
        styled(TITLE, "The kernels of the largest operations")
    );
    for choice in kernels {
        let operation = words(&choice.operation);
        let chosen = format!("{}: {}", styled(TITLE, words(&choice.chosen)), operation);
        let scratch = format!(
            "a result of {}; {} to work with, of {} to {} with other kernels",
            choice.result_bytes,
            choice.scratch_bytes,
            choice.least_scratch_bytes,
            choice.most_scratch_bytes
        );
        let _ = writeln!(page, "\n{}", wrapped(&chosen, 2, 4));
        let _ = writeln!(page, "{}", wrapped(&scratch, 4, 4));
    }
    page
}

/// Text in the form in which Rust prints values, in words: `Key { lhs_shape: [2, 3], kind: General }` becomes
/// `key, lhs shape 2x3, kind general`.
fn words(debug: &str) -> String {
    let mut text = String::new();
    let mut in_list = 0;
    let mut last = ' ';
    for sign in debug.chars() {
        match sign {
            '[' => in_list += 1,
            ']' => in_list = (in_list - 1).max(0),
            ',' if in_list > 0 => text.push('x'),
            ' ' if in_list > 0 => {}
            '(' | ')' if in_list > 0 => {}
            '{' | '(' if !text.is_empty() && last != ',' => text.push(','),
            '{' | '}' | '(' | ')' | ':' | '"' => {}
            '_' => text.push(' '),
            // The names of types: `MatmulKey`.
            upper if upper.is_uppercase() && last.is_lowercase() => {
                text.push(' ');
                text.extend(upper.to_lowercase());
            }
            upper if upper.is_uppercase() => text.extend(upper.to_lowercase()),
            other => text.push(other),
        }
        last = sign;
    }
    let parts = text.split(',').map(|part| {
        let words: Vec<_> = part.split_whitespace().collect();
        words.join(" ")
    });
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(", ")
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

/// An estimate, and what its page shows of it.
#[derive(Serialize)]
#[serde(transparent)]
pub struct EstimatePage<'a> {
    /// The estimate.
    pub report: &'a EstimateReport,
    /// Whether the page has what few people need.
    #[serde(skip)]
    pub details: bool,
    /// Whether it has the table of layers.
    #[serde(skip)]
    pub layers: bool,
}

impl Report for EstimatePage<'_> {
    fn terminal(&self) -> String {
        self.report.page(self.details, self.layers)
    }

    fn headline(&self) -> String {
        headline(&self.report.asked)
    }

    fn tables(&self) -> Vec<Table> {
        let report = self.report;
        let kernels = report.kernels.as_deref().map(kernel_table);
        let advice = report.advice.iter().map(advice::table);
        let layers = self.layers.then(|| layer_table(&report.layers));
        std::iter::once(with_verdicts(report.job_table(), report.verdicts()))
            .chain(kernels)
            .chain(advice)
            .chain(layers)
            .collect()
    }

    /// The table of layers, if the user asked for it.
    fn csv(&self) -> Table {
        match self.layers {
            true => layer_table(&self.report.layers),
            false => self.tables().swap_remove(0),
        }
    }
}

/// `table` with the columns that say of which job a row is: the framework, and all that decides the figures.
pub(crate) fn with_job<'a, T>(
    table: TableBuilder<'a, T>,
    asked: impl Fn(&'a T) -> &'a JobInfo,
) -> TableBuilder<'a, T> {
    table
        .column("framework", |r| format!("burn {}", asked(r).burn.version))
        .column("model", |r| &asked(r).model)
        .column("sample", |r| {
            sample(asked(r)).collect::<Vec<_>>().join(", ")
        })
        .column("precision", |r| number_format(asked(r).precision))
        .column("optimizer", |r| asked(r).optimizer.to_string())
        .column_as("batches a step", "accumulate", |r| asked(r).accumulate)
        .column("strategy", |r| asked(r).strategy)
        .column("runtime", |r| asked(r).runtime.to_string())
}

impl EstimateReport {
    /// The job and its figures, in one row.
    fn job_table(&self) -> Table {
        let table = Table::of("", std::slice::from_ref(self));
        let mut table = with_job(table, |r| &r.asked)
            .column("batch", |r| r.asked.batch)
            .column_as(REQUIRED, "required_bytes", |r| r.peak.required_bytes)
            .column_as("reserved", "reserved_bytes", |r| r.peak.reserved_bytes)
            .column_as("device", "device_bytes", |r| r.peak.device_bytes)
            .column_as("live", "live_bytes", |r| r.peak.live_bytes)
            .column("phase", |r| r.peak.phase.to_string())
            .column("step", |r| r.peak.step);
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

    #[test]
    fn values_are_read_as_words() {
        let key = "MatmulAutotuneKey { lhs_shape: [512, 64], kind: General, elem: \"f32\" }";
        let expected = "matmul autotune key, lhs shape 512x64, kind general, elem f32";
        assert_eq!(words(key), expected);
        assert_eq!(words("matmul_naive"), "matmul naive");
        assert_eq!(
            words("Key { padding: [(0, 1), (2, 3)] }"),
            "key, padding 0x1x2x3"
        );
    }

    fn verdict(name: &str, fits: bool) -> Verdict {
        Verdict {
            gpu: GpuName {
                name: name.into(),
                usable_bytes: Bytes(10),
                overhead_bytes: Bytes::ZERO,
                group: None,
                provenance: None,
            },
            fits,
            required_bytes: Bytes(if fits { 7 } else { 12 }),
            headroom_bytes: if fits { 3 } else { -2 },
            reason: (!fits).then(|| "an allocation, in the forward phase".into()),
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
        let verdicts = [verdict("large", true), verdict("small", false)];
        let rows = "model,gpu,fits,headroom_bytes,reason\n\
            net,large,true,3,\n\
            net,small,false,-2,\"an allocation, in the forward phase\"\n";
        assert_eq!(render(&verdicts), rows);
    }
}
