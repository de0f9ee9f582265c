//! The answers about PyTorch programs, as pages and as tables.

use std::fmt::Write;

use estimator::{Bytes, Category};
use serde::Serialize;
use strum::IntoEnumIterator;

use super::estimate::{Figure, breakdown, layer_table, verdicts_and_figures};
use super::terminal::{FAINT, GOOD, TITLE, columns, grouped, styled};
use super::{Report, Table};
use crate::plots;
use crate::torch_program::report::{Approximation, ProcessReport, TorchReport};

/// The most approximations that a page lists; JSON has all.
const MAX_LISTED: usize = 8;

/// The figures of `process`, the most important one first.
pub(crate) fn figures(process: &ProcessReport) -> Vec<Figure> {
    let peak = &process.peak;
    let words = peak.words();
    let at = match words.is_empty() {
        true => String::new(),
        false => format!(": {}", words.join(", ")),
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
                "what nvidia-smi would show: reserved, plus {overhead} for context and libraries"
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
        ("PyTorch", vec![report.stack()]),
        ("Card", plots::cards(process.verdicts())),
    ];
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

impl TorchReport {
    /// `python train.py, 2 optimizer steps, AdamW`
    pub(crate) fn headline(&self) -> String {
        let mut parts = vec![styled(TITLE, &self.program)];
        parts.extend(match self.steps {
            0 => None,
            1 => Some("1 optimizer step".into()),
            steps => Some(format!("{steps} optimizer steps")),
        });
        let optimizer = self.information.get("optimizer");
        parts.extend(optimizer.and_then(|name| name.as_str()).map(str::to_string));
        parts.join(", ")
    }

    /// `PyTorch 2.15.0+cu132, Python 3.11.7`
    fn stack(&self) -> String {
        let torch = &self.torch;
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

    fn full_page(&self, layers: bool) -> String {
        let mut page = format!("{}\n\n", self.headline());
        for process in &self.processes {
            if self.processes.len() > 1 {
                let _ = writeln!(
                    page,
                    "  {}\n",
                    styled(TITLE, format!("rank {}", process.rank))
                );
            }
            page += &verdicts_and_figures(process.verdicts(), &figures(process));
            page += &process.text();
        }
        if !self.approximations.is_empty() {
            page += "  not followed exactly:\n";
            for found in self.approximations.iter().take(MAX_LISTED) {
                let _ = writeln!(page, "    {}", approximation(found));
            }
            let more = self.approximations.len().saturating_sub(MAX_LISTED);
            if more > 0 {
                let _ = writeln!(page, "    and {more} more: --format json lists them");
            }
            page.push('\n');
        }
        let stack = self.stack();
        if !stack.is_empty() {
            let _ = writeln!(page, "  {}", styled(FAINT, stack));
        }
        if layers && let Some(process) = self.largest() {
            page.push('\n');
            page += &columns(&layer_table(&process.layers));
        }
        page
    }
}

impl ProcessReport {
    /// The parts of a page after the figures.
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(error) = &self.out_of_memory {
            let _ = writeln!(text, "  {}\n", styled(FAINT, error));
        }
        for alternative in &self.alternatives {
            let fits = match alternative.fits {
                true => styled(GOOD, "fits"),
                false => "does not fit either".into(),
            };
            let _ = writeln!(
                text,
                "  {}: {fits}, needs {}",
                alternative.change, alternative.required_bytes
            );
        }
        if !self.alternatives.is_empty() {
            text.push('\n');
        }
        if let Some(at_peak) = &self.at_peak {
            text += &breakdown(at_peak);
            text.push('\n');
        }
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

    fn tables(&self) -> Vec<Table> {
        let mut table = Table::of("", &self.processes)
            .column("program", |_| &self.program)
            .column("rank", |process| u64::from(process.rank))
            .column("torch", |_| &self.torch.version)
            .column("steps", |_| u64::from(self.steps))
            .column("gpu", |process| {
                process.verdict.as_ref().map(|verdict| &verdict.gpu.name)
            })
            .column("fits", |process| {
                process.verdict.as_ref().map(|verdict| verdict.fits)
            })
            .column_as("headroom", "headroom_bytes", |process| {
                let headroom = process
                    .verdict
                    .as_ref()
                    .map(|verdict| verdict.headroom_bytes);
                headroom.map(super::Cell::headroom)
            })
            .column_as("needs", "required_bytes", |process| {
                process.peak.required_bytes
            })
            .column_as("allocated", "allocated_bytes", |process| {
                process.peak.allocated_bytes
            })
            .column_as("reserved", "reserved_bytes", |process| {
                process.peak.reserved_bytes
            })
            .column_as("device", "device_bytes", |process| {
                process.peak.device_bytes
            });
        for category in Category::iter() {
            let name = category.to_string();
            let csv_name = format!("{category}_bytes");
            table = table.column_as(name, csv_name, |process| {
                process.at_peak.as_ref().map(|at_peak| at_peak[category])
            });
        }
        let table = table.column_as("why", "reason", |process| {
            process
                .verdict
                .as_ref()
                .and_then(|verdict| verdict.reason.as_ref())
        });
        vec![table.build()]
    }
}
