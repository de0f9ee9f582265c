//! The curves of a table whose rows are jobs at several sizes of their sample.

use std::path::PathBuf;

use indexmap::IndexMap;
use maud::{Markup, html};
use model_zoo::{Input, InputSize};

use super::file::{File, check_apart};
use super::job_lines::headline;
use crate::cli;
use crate::job_info::JobInfo;
use crate::plots::curve::{self, Sweep};
use crate::plots::{chart, title};
use crate::table::{Row, TableReport};
use crate::torch_program::batches::{TorchTableReport, TorchTableRow};
use crate::user_error::UserError;

const TOKENS: &str = "tokens in a sequence";
const PIXELS: &str = "pixels on each side of an image";

impl TableReport {
    /// A curve for each job that has rows at several lengths of a sequence, or else sizes of an image.
    pub(crate) fn sweeps(&self) -> Vec<Sweep> {
        match self.sweeps_over(InputSize::Seq, TOKENS) {
            none if none.is_empty() => self.sweeps_over(InputSize::Image, PIXELS),
            sweeps => sweeps,
        }
    }

    fn sweeps_over(&self, size: InputSize, unit: &'static str) -> Vec<Sweep> {
        let mut jobs: IndexMap<String, Vec<(u64, &Row)>> = IndexMap::new();
        for row in &self.rows {
            if let Some(number) = number(&row.asked.input, size) {
                let rows = jobs.entry(name_without(row, size)).or_default();
                rows.push((number, row));
            }
        }
        let cards: Vec<_> = self.cards.iter().map(|card| card.label.as_str()).collect();
        let batch = |row: &&Row, card: usize| row.cells[card].max_batch.unwrap_or_default();
        sweeps_of(jobs, unit, &cards, batch)
    }
}

/// The value of `size`, if it is one number; that of an image is its side, if it is square.
fn number(input: &Input, size: InputSize) -> Option<u64> {
    let number = match size {
        InputSize::Image => {
            let [height, width] = input.image?;
            (height == width).then_some(height)?
        }
        _ => input.seq?,
    };
    Some(number as u64)
}

/// The job of `row`, whatever its `size`.
fn name_without(row: &Row, size: InputSize) -> String {
    let mut input = row.asked.input;
    match size {
        InputSize::Image => input.image = None,
        _ => input.seq = None,
    }
    title(&headline(&JobInfo {
        input,
        ..row.asked.clone()
    }))
}

impl TorchTableReport {
    /// A curve for each network, or for the program, that has rows with several lengths of a sequence.
    pub(crate) fn sweeps(&self) -> Vec<Sweep> {
        let mut jobs: IndexMap<String, Vec<(u64, &TorchTableRow)>> = IndexMap::new();
        for row in &self.rows {
            let Some(seq) = row.seq else {
                continue;
            };
            let name = match &self.program {
                Some(program) => program.clone(),
                None => format!("{} in PyTorch, {}", row.model, row.precision),
            };
            jobs.entry(title(&name)).or_default().push((seq, row));
        }
        let cards: Vec<_> = self.cards.iter().map(String::as_str).collect();
        sweeps_of(jobs, TOKENS, &cards, |row, card| row.batches[card])
    }
}

/// The curves of those of `jobs` that have rows at several sizes, with what `batch` says of a row on one of `cards`.
fn sweeps_of<R>(
    jobs: IndexMap<String, Vec<(u64, R)>>,
    unit: &'static str,
    cards: &[&str],
    batch: impl Fn(&R, usize) -> u64,
) -> Vec<Sweep> {
    let jobs = jobs.into_iter().filter(|(_, rows)| rows.len() > 1);
    let sweeps = jobs.map(|(title, mut rows)| {
        rows.sort_by_key(|(size, _)| *size);
        let of_card = |card| {
            let points = rows.iter().map(|(size, row)| (*size, batch(row, card)));
            points.filter(|(_, batch)| *batch > 0).collect()
        };
        let lines = cards.iter().enumerate();
        let lines = lines.map(|(card, label)| (label.to_string(), of_card(card)));
        Sweep {
            title,
            unit,
            cards: lines.collect(),
        }
    });
    sweeps.collect()
}

/// The file into which the curves of a table are drawn, if one was named.
#[derive(Clone, Debug, Default)]
pub(crate) struct CurveFile(Option<PathBuf>);

impl CurveFile {
    /// The file that `raw` names, checked before any work is done for it.
    ///
    /// # Errors
    ///
    /// There is one size alone, or the file cannot be written.
    pub(crate) fn new(raw: &cli::Table) -> Result<Self, UserError> {
        let named = Self(raw.svg.clone());
        if let Some(file) = named.file() {
            if !raw.options.sizes.are_swept() {
                return Err(
                    UserError::new("--svg draws the largest batch over several sizes")
                        .hint("name them: --seq 512,1024,2048, or --image 224,384"),
                );
            }
            file.check()?;
            let answer = raw.output.output.as_deref().map(|path| ("--output", path));
            check_apart(answer.into_iter().chain([(file.option, file.path)]))?;
        }
        Ok(named)
    }

    /// Draws `sweeps`, if a file was named.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn save(&self, sweeps: &[Sweep]) -> anyhow::Result<()> {
        match self.file() {
            Some(file) => file.save(curve::render(sweeps)),
            None => Ok(()),
        }
    }

    fn file(&self) -> Option<File<'_>> {
        Some(File {
            path: self.0.as_deref()?,
            option: "--svg",
            otherwise: "leave it out",
        })
    }
}

/// The curves on a page, for a wide screen and for a narrow one.
pub(super) fn charts(sweeps: &[Sweep]) -> Markup {
    html! {
        @for sweep in sweeps { (chart::on_page(|canvas| curve::draw(sweep, canvas))) }
    }
}
