//! The rows and columns of a table: models in each precision, and cards.

use std::fmt;

use clap::Parser;
use estimator::{Found, Gpu, Runtime, Tuning};
use model_zoo::{InputSize, Job, Model, Precision, Request};
use strum::VariantNames;

use crate::cli::{self, Cli, Command};
use crate::job_info::JobInfo;
use crate::lower_bound::need_network;
use crate::model_source::{self, AnyModel};
use crate::preset::{self, Preset, Published, Unit};
use crate::resolve::{self, Batch, Card};
use crate::table::{BatchCell, Row};
use crate::user_error::UserError;
use crate::values;

/// The classes of cards that are the columns by default.
const CLASSES: [&str; 6] = ["8GB", "12GB", "16GB", "24GB", "48GB", "80GB"];

/// A model in one precision.
#[derive(Debug)]
pub(super) struct Entry {
    /// The model, as typed.
    pub(super) typed: String,
    pub(super) model: AnyModel,
    pub(super) job: Job,
    pub(super) unit: Unit,
    pub(super) published_as: Option<String>,
}

/// The rows and columns of a table.
#[derive(Debug)]
pub struct Plan {
    pub(super) preset: Option<Preset>,
    pub(super) runtime: Runtime,
    pub(super) tuning: Tuning,
    pub(super) entries: Vec<Entry>,
    pub(super) cards: Vec<Card>,
}

impl Plan {
    /// Resolves the command line.
    ///
    /// # Errors
    ///
    /// A value is invalid; the error has a hint.
    pub fn new(raw: &cli::Table) -> Result<Self, UserError> {
        let runtime = resolve::runtime(&raw.cards)?;
        let preset = raw.preset.as_ref();
        let preset = preset.map(|name| values::choice("--preset", name, Preset::VARIANTS));
        let preset = preset.transpose()?;
        Ok(Self {
            preset,
            runtime,
            tuning: resolve::tuning(&raw.cards)?,
            entries: entries(raw, preset)?,
            cards: cards(raw, preset, runtime)?,
        })
    }

    /// Resolves a command as a user types it.
    ///
    /// # Errors
    ///
    /// The command is not `table`, or a value is invalid.
    pub fn typed(command: &str) -> anyhow::Result<Self> {
        match Cli::try_parse_from(command.split_whitespace())?.command {
            Command::Table(raw) => Ok(Self::new(&raw)?),
            _ => anyhow::bail!("`{command}` makes no table"),
        }
    }

    /// Keeps only the rows of one model.
    pub fn only(mut self, model: &str) -> Self {
        self.entries.retain(|entry| entry.model.name() == model);
        self
    }

    /// Keeps each published row once, in the number formats of its measurement.
    pub fn published_only(mut self) -> Self {
        let measured = preset::lambda_2020();
        self.entries.retain(|entry| {
            measured.iter().any(|row| {
                Some(&row.name) == entry.published_as.as_ref()
                    && row.precision == entry.job.precision
            })
        });
        self
    }
}

/// The models of the command line or of the preset, each in every precision.
fn entries(raw: &cli::Table, preset: Option<Preset>) -> Result<Vec<Entry>, UserError> {
    let default: &[Precision] = match preset {
        Some(_) => &[Precision::Fp32, Precision::Mixed],
        None => &[Precision::Fp32],
    };
    let precisions = match raw.precision.as_slice() {
        [] => default.to_vec(),
        named => {
            let named = named.iter().map(|text| resolve::precision(text));
            named.collect::<Result<_, _>>()?
        }
    };
    let mut entries = Vec::new();
    let mut add = |name: &str, published: Option<Published>| {
        let (model, origin) = model_source::find(name)?;
        need_network(&model, &origin, "table")?;
        for precision in &precisions {
            let typed = resolve::request(*precision, &raw.options, Batch::default())?;
            let request = match &published {
                Some(row) => over(typed, row.request()),
                None => typed,
            };
            entries.push(Entry {
                typed: name.into(),
                job: resolve::job_of(&model, request)?,
                model: model.clone(),
                unit: published.as_ref().map_or(Unit::Samples, |row| row.unit),
                published_as: published.as_ref().map(|row| row.name.clone()),
            });
        }
        Ok::<_, UserError>(())
    };
    match preset {
        Some(Preset::Lambda2020) => {
            for row in preset::lambda_2020() {
                add(&row.model.clone(), Some(row))?;
            }
        }
        None if raw.models.is_empty() => {
            for variant in model_zoo::variants() {
                add(variant.name, None)?;
            }
        }
        None => {
            for name in &raw.models {
                add(name, None)?;
            }
        }
    }
    Ok(entries)
}

/// The `typed` settings, and `published` ones where none were typed.
fn over(typed: Request, published: Request) -> Request {
    let mut input = published.input;
    for size in InputSize::ALL {
        if let Some(value) = typed.input.get(*size) {
            input.set(*size, value).expect("a value of the same size");
        }
    }
    Request {
        optimizer: typed.optimizer.or(published.optimizer),
        input,
        ..typed
    }
}

/// The cards of the command line, else of the preset, else one card for each class.
fn cards(
    raw: &cli::Table,
    preset: Option<Preset>,
    runtime: Runtime,
) -> Result<Vec<Card>, UserError> {
    let list = raw.gpus.as_deref().unwrap_or_default();
    let all = list.trim().eq_ignore_ascii_case("all");
    let listed = list.split(',').map(str::trim);
    let listed = listed.filter(|name| !all && !name.is_empty());
    let named: Vec<&str> = raw
        .cards
        .gpu
        .iter()
        .map(String::as_str)
        .chain(listed)
        .collect();
    let memory = raw.cards.memory.as_deref();
    let tuning = resolve::tuning(&raw.cards)?;
    let mut cards = resolve::cards(&named, memory, runtime, tuning)?;
    if all {
        cards.extend(every_card(runtime, tuning));
    }
    match (cards.is_empty(), preset) {
        (false, _) => Ok(cards),
        (true, _) if raw.gpus.is_some() => Err(UserError::new("--gpus names no card")
            .hint("--gpus is `all`, or names with commas between them: rtx-3090,l4,24GB")),
        (true, Some(Preset::Lambda2020)) => Ok(preset::cards(runtime, tuning)),
        (true, None) => resolve::cards(&CLASSES, memory, runtime, tuning),
    }
}

/// Every card that `runtime` drives, the least usable memory first.
fn every_card(runtime: Runtime, tuning: Tuning) -> Vec<Card> {
    let driven = Gpu::all().iter().filter(|gpu| gpu.is_driven_by(runtime));
    let mut cards: Vec<_> = driven.map(|gpu| Card::of(gpu, runtime, tuning)).collect();
    cards.sort_by_key(Card::usable);
    cards
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.model.name(), self.job.precision)
    }
}

impl Entry {
    /// The cell with what was `found`.
    pub(super) fn cell(&self, (found, method): Found) -> BatchCell {
        BatchCell::new(found, method, self.job.input.tokens())
    }

    /// The row with these `cells`.
    pub(super) fn row(&self, runtime: Runtime, tuning: Tuning, cells: Vec<BatchCell>) -> Row {
        Row {
            asked: JobInfo::of(&self.model, &self.job, runtime, tuning, None),
            published_as: self.published_as.clone(),
            unit: self.unit,
            cells,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_is_tuned_as_was_typed() {
        for cards_of in ["--gpus all", "--preset lambda-2020", "--gpus l4,24GB", ""] {
            let words = format!("fit-check table {cards_of} --tuning cold");
            let Command::Table(raw) = Cli::parse_from(words.split_whitespace()).command else {
                unreachable!("the command is table");
            };
            let preset = raw.preset.as_ref().map(|_| Preset::Lambda2020);
            let cards = cards(&raw, preset, Runtime::Cuda).unwrap();
            let tunings = cards.iter().map(|card| card.device.simulation.tuning);
            assert!(tunings.clone().count() > 1, "{words}");
            assert!(tunings.into_iter().all(|tuning| tuning == Tuning::Cold));
        }
    }
}
