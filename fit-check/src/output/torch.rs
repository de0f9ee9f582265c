//! The answers about PyTorch programs, as pages and as tables.

use std::fmt::Write;

use estimator::{Bytes, Category};
use serde::Serialize;
use strum::IntoEnumIterator;
use torch_memory::trace::Approximation;

use super::estimate::{Figure, breakdown, layer_table};
use super::job_lines::needs;
use super::terminal::{FAINT, GOOD, TITLE, columns, grouped, styled, wrapped};
use super::{Cell, Report, Table, TableBuilder};
use crate::plots;
use crate::report::Verdict;
use crate::several_gpus::Nccl;
use crate::torch_program::job::TorchJob;
use crate::torch_program::report::{ProcessReport, Torch, TorchReport};

/// The most approximations that a page lists; JSON has all.
const MAX_LISTED: usize = 8;

/// The figures of `process`, the most important one first.
pub(crate) fn figures(process: &ProcessReport) -> Vec<Figure> {
    let peak = &process.peak;
    let words = peak.words();
    let at = match words.is_empty() {
        true => String::new(),
        false => format!(", {}", words.join(", ")),
    };
    let overhead = process.overhead_bytes;
    let mut figures = vec![
        Figure::new(
            "needs",
            peak.required_bytes,
            "the least memory with which the steps complete",
        ),
        Figure::new(
            "allocated",
            peak.allocated_bytes,
            format!("torch.cuda.max_memory_allocated(){at}"),
        ),
        Figure::new(
            "reserved",
            peak.reserved_bytes,
            "torch.cuda.max_memory_reserved(), on a card with enough memory",
        ),
    ];
    if overhead > Bytes::ZERO {
        figures.push(Figure::new(
            "device",
            peak.device_bytes,
            format!(
                "the most that nvidia-smi would show: {overhead} of it for context and libraries"
            ),
        ));
    }
    figures
}

/// What the answer is about, and what it assumes.
pub(crate) fn assumptions(
    report: &TorchReport,
    process: &ProcessReport,
    title: &str,
) -> Vec<(&'static str, Vec<String>)> {
    let mut lines = vec![
        ("Program", vec![title.to_string()]),
        ("PyTorch", vec![stack(&report.torch)]),
        ("Card", plots::cards(process.verdicts())),
    ];
    lines.extend(
        report
            .recorded_on
            .as_deref()
            .map(|on| ("Method", vec![recorded(on, &report.recorded_batches)])),
    );
    let approximations = report.approximations.iter().map(approximation);
    let approximations: Vec<_> = approximations.collect();
    if !approximations.is_empty() {
        lines.push(("Not followed exactly", approximations));
    }
    lines
}

/// `data-dependent size: nonzero, train.py:7 (3 times, 2.00 MiB)`
fn approximation(found: &Approximation) -> String {
    let times = match found.count {
        0 | 1 => String::new(),
        count => format!("{} times", grouped(count)),
    };
    let bytes = match found.bytes {
        Bytes::ZERO => String::new(),
        bytes => bytes.to_string(),
    };
    let facts: Vec<_> = [times, bytes]
        .into_iter()
        .filter(|fact| !fact.is_empty())
        .collect();
    let facts = match facts.is_empty() {
        true => String::new(),
        false => format!(" ({})", facts.join(", ")),
    };
    format!("{}: {}{facts}", found.kind, found.text)
}

/// `resnet-50 in PyTorch 2.15.0: batch 32, 224x224 px, fp32, momentum`: the framework, and what is known of all that decides
/// the figures.
pub(crate) fn headline(program: &str, torch: &Torch, facts: &[String]) -> String {
    let mut line = format!("{} in PyTorch", styled(TITLE, program));
    let version = torch.short_version();
    if !version.is_empty() {
        let _ = write!(line, " {version}");
    }
    if !facts.is_empty() {
        let _ = write!(line, ": {}", facts.join(", "));
    }
    line
}

/// `PyTorch 2.15.0+cu132, Python 3.11.7`
pub(crate) fn stack(torch: &Torch) -> String {
    let mut parts = Vec::new();
    for (name, version) in [("PyTorch", &torch.version), ("Python", &torch.python)] {
        if !version.is_empty() {
            parts.push(format!("{name} {version}"));
        }
    }
    if !torch.allocator_conf.is_empty() {
        parts.push(format!("PYTORCH_CUDA_ALLOC_CONF={}", torch.allocator_conf));
    }
    parts.join(", ")
}

/// What stands behind a figure that was recorded beforehand, at `batches` and the next of each, with the kernels of the card
/// `recorded_on`, or of several.
pub(crate) fn recorded(recorded_on: &str, batches: &[u64]) -> String {
    let at = match batches {
        [one] => format!("batches {one} and {}", one + 1),
        [first, .., last] => format!("some batches from {first} to {}", last + 1),
        [] => "small batches".into(),
    };
    let which = match recorded_on {
        several if several.contains(", ") => "the nearest of ",
        // As the first letter is read out: an A100, an H200, an L4, an RTX 3090.
        card if card.starts_with(['A', 'H', 'L', 'R']) => "an ",
        _ => "a ",
    };
    format!("from recordings of {at}, with the kernels of {which}{recorded_on}")
}

/// `lines`, those that say something, as the faint end of a page.
pub(crate) fn notes(lines: &[String]) -> String {
    let lines = lines.iter().filter(|line| !line.is_empty());
    let mut page = String::new();
    for line in lines {
        let _ = writeln!(page, "{}", styled(FAINT, wrapped(line, 2, 4)));
    }
    page
}

/// The lines about what was not followed exactly, and an empty one; none if there is nothing of the kind.
pub(crate) fn not_followed(found: &[Approximation]) -> String {
    if found.is_empty() {
        return String::new();
    }
    let mut lines = String::from("  not followed exactly:\n");
    for found in found.iter().take(MAX_LISTED) {
        let _ = writeln!(lines, "{}", wrapped(&approximation(found), 4, 6));
    }
    let more = found.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        let _ = writeln!(lines, "    and {more} more: --format json lists them");
    }
    lines + "\n"
}

/// `3 optimizer steps`; none if there is no step.
pub(crate) fn steps(steps: usize) -> Option<String> {
    match steps {
        0 => None,
        1 => Some("1 optimizer step".into()),
        steps => Some(format!("{steps} optimizer steps")),
    }
}

impl TorchReport {
    /// What is known of all that decides the figures.
    fn facts(&self) -> Vec<String> {
        if let Some(job) = &self.job {
            return job.recipe();
        }
        if self.torch.version.is_empty() {
            return vec!["a memory snapshot".into()];
        }
        let optimizer = self.information.get("optimizer");
        let optimizer = optimizer.and_then(|name| name.as_str()).map(str::to_string);
        [steps(self.steps), optimizer]
            .into_iter()
            .flatten()
            .collect()
    }

    /// That several processes take memory by which they reach each other, of which PyTorch's counters know nothing.
    fn nccl(&self) -> String {
        let Nccl {
            least_bytes: least,
            most_bytes: most,
        } = Nccl::MEASURED;
        match self.processes.len() {
            0 | 1 => String::new(),
            _ => format!(
                "not counted: what NCCL takes beside PyTorch, {least} to {most} for each communicator, as others measured"
            ),
        }
    }

    fn full_page(&self, layers: bool) -> String {
        let mut page = format!("{}\n\n", wrapped(&self.headline(), 0, 2));
        for process in &self.processes {
            if self.processes.len() > 1 {
                let _ = writeln!(
                    page,
                    "  {}\n",
                    styled(TITLE, format!("rank {}", process.rank))
                );
            }
            page += &process.text();
        }
        page += &not_followed(&self.approximations);
        let gpus = self.processes.iter().flat_map(ProcessReport::verdicts);
        page += &notes(&[
            self.recorded_on
                .as_deref()
                .map(|on| recorded(on, &self.recorded_batches))
                .unwrap_or_default(),
            stack(&self.torch),
            self.torch.not_on(gpus.map(|verdict| &verdict.gpu)),
            self.nccl(),
            self.job
                .as_ref()
                .and_then(|job| job.note.clone())
                .unwrap_or_default(),
        ]);
        if layers && let Some(process) = self.largest() {
            page.push('\n');
            page += &columns(&layer_table(&process.layers));
        }
        page
    }
}

impl ProcessReport {
    /// The lines of the verdicts; without a card, what is needed.
    fn needs(&self) -> String {
        let peak = &self.peak;
        needs(
            self.verdicts(),
            peak.required_bytes,
            peak.device_bytes,
            self.overhead_bytes,
        )
    }

    /// The lines of a page about this process.
    fn text(&self) -> String {
        let mut text = self.needs();
        text.push('\n');
        if let Some(error) = &self.out_of_memory {
            let _ = writeln!(text, "{}\n", styled(FAINT, wrapped(error, 2, 2)));
        }
        for alternative in &self.alternatives {
            let fits = match alternative.fits {
                true => styled(GOOD, "fits"),
                false => "does not fit either".into(),
            };
            let line = format!(
                "{}: {fits}, needs {}",
                alternative.change, alternative.required_bytes
            );
            let _ = writeln!(text, "{}", wrapped(&line, 2, 4));
        }
        if !self.alternatives.is_empty() {
            text.push('\n');
        }
        let peak = &self.peak;
        let most = std::iter::once(format!("{} allocated at the peak", peak.allocated_bytes));
        let most: Vec<_> = most.chain(peak.words()).collect();
        let end = if self.at_peak.is_some() { ":" } else { "" };
        let _ = writeln!(
            text,
            "{}\n",
            wrapped(&format!("{}{end}", most.join(", ")), 2, 4)
        );
        if let Some(at_peak) = &self.at_peak {
            text += &breakdown(at_peak);
            text.push('\n');
        }
        let counters = format!(
            "torch.cuda.max_memory_allocated() is {}, max_memory_reserved() {} with enough memory",
            peak.allocated_bytes, peak.reserved_bytes
        );
        let _ = writeln!(text, "{}\n", wrapped(&counters, 2, 4));
        text
    }
}

/// A report with its layers.
#[derive(Serialize)]
#[serde(transparent)]
pub struct WithModules<'a>(pub &'a TorchReport);

impl Report for WithModules<'_> {
    fn terminal(&self) -> String {
        self.0.full_page(true)
    }

    fn headline(&self) -> String {
        self.0.headline()
    }

    fn tables(&self) -> Vec<Table> {
        let layers = self.0.largest().map(|process| layer_table(&process.layers));
        self.0.tables().into_iter().chain(layers).collect()
    }

    /// The table of modules, since the user asked for it.
    fn csv(&self) -> Table {
        self.tables().pop().unwrap_or_default()
    }
}

impl Report for TorchReport {
    fn terminal(&self) -> String {
        self.full_page(false)
    }

    fn headline(&self) -> String {
        headline(&self.program, &self.torch, &self.facts())
    }

    fn tables(&self) -> Vec<Table> {
        // A row for each verdict, or for each process if no card was named.
        let rows = self.processes.iter().flat_map(|process| {
            let verdicts = process.verdicts().iter().map(Some);
            let none = process.verdicts().is_empty().then_some(None);
            let verdicts = verdicts.chain(none);
            verdicts.map(move |verdict| (process, verdict))
        });
        let rows: Vec<(&ProcessReport, Option<&Verdict>)> = rows.collect();
        let table = with_job(Table::of("", &rows), self.job.as_ref(), &self.torch)
            .column("program", |_| &self.program);
        let mut table = match &self.job {
            Some(job) => table.column("batch", |_| job.batch),
            None => table
                .column("rank", |(process, _)| u64::from(process.rank))
                .column("steps", |_| self.steps),
        };
        table = table
            .column("gpu", |(_, verdict)| {
                verdict.map(|verdict| &verdict.gpu.name)
            })
            .column("fits", |(_, verdict)| verdict.map(|verdict| verdict.fits))
            .column_as("headroom", "headroom_bytes", |(_, verdict)| {
                verdict.map(|verdict| Cell::headroom(verdict.headroom_bytes))
            })
            .column_as("needs", "required_bytes", |(process, verdict)| {
                let of_card = verdict.map(|verdict| verdict.required_bytes);
                of_card.unwrap_or(process.peak.required_bytes)
            })
            .column_as("allocated", "allocated_bytes", |(process, _)| {
                process.peak.allocated_bytes
            })
            .column_as("reserved", "reserved_bytes", |(process, _)| {
                process.peak.reserved_bytes
            })
            .column_as("device", "device_bytes", |(process, _)| {
                process.peak.device_bytes
            });
        for category in Category::iter() {
            let name = category.to_string();
            let csv_name = format!("{category}_bytes");
            table = table.column_as(name, csv_name, |(process, _)| {
                process.at_peak.as_ref().map(|at_peak| at_peak[category])
            });
        }
        let table = table.column_as("why", "reason", |(_, verdict)| {
            verdict.and_then(|verdict| verdict.reason.as_ref())
        });
        vec![table.build()]
    }
}

/// `table` with the columns that say of which job its rows are: the framework, and all that decides the figures.
pub(crate) fn with_job<'a, T>(
    table: TableBuilder<'a, T>,
    job: Option<&TorchJob>,
    torch: &Torch,
) -> TableBuilder<'a, T> {
    let table = table.column("framework", |_| format!("PyTorch {}", torch.version));
    match job {
        None => table,
        Some(job) => table
            .column("sample", |_| job.sample())
            .column("precision", |_| job.number_format())
            .column("optimizer", |_| &job.optimizer),
    }
}
