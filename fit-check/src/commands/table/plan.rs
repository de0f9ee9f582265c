//! The rows and columns of a table: models in each precision, and cards.

use std::fmt;

use clap::Parser;
use estimator::{CellResult, Gpu, Runtime, Tuning};
use model_zoo::{InputSize, Job, Model, Precision, Request};
use strum::VariantNames;

use crate::cli::{self, Cli, Command};
use crate::commands::{self, torch};
use crate::job_info::JobInfo;
use crate::model_source::{self, AnyModel, Origin, WeightsCheck};
use crate::preset::{self, Preset, Published, Unit};
use crate::resolve::{self, Batch, Card};
use crate::several_gpus::{self, for_strategy};
use crate::table::{BatchCell, Row, TorchCells};
use crate::torch_program::fitting::{driven_cards, driven_class};
use crate::user_error::UserError;
use crate::values;

/// The classes of cards that are the columns by default.
const CLASSES: [&str; 6] = ["8GB", "12GB", "16GB", "24GB", "48GB", "80GB"];

/// A model in one precision.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) model: AnyModel,
    /// How its weights file agrees with its network.
    weights: Option<WeightsCheck>,
    pub(super) job: Job,
    pub(super) unit: Unit,
    pub(super) published_as: Option<String>,
}

/// The rows and columns of a table.
#[derive(Debug)]
pub struct Plan {
    pub(super) preset: Option<Preset>,
    pub(super) runtime: Runtime,
    pub(super) only: Option<Tuning>,
    pub(super) entries: Vec<Entry>,
    pub(super) cards: Vec<Card>,
    /// Whether PyTorch's batches stand beside burn's.
    pub(super) with_pytorch: bool,
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
        let strategy = several_gpus::strategy(raw.options.strategy.as_deref())?;
        let nccl = raw.options.nccl.as_deref();
        Ok(Self {
            preset,
            runtime,
            only: resolve::only(&raw.cards)?,
            entries: entries(raw, preset)?,
            cards: for_strategy(cards(raw, preset, runtime)?, strategy, nccl, runtime)?,
            with_pytorch: torch::both_are_asked(&raw.framework),
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

/// The models of the command line or of the preset, each in every precision and with each of the sizes.
fn entries(raw: &cli::Table, preset: Option<Preset>) -> Result<Vec<Entry>, UserError> {
    let default: &[Precision] = match preset {
        Some(_) => &[Precision::Fp32, Precision::Mixed],
        None => &[Precision::Fp32],
    };
    let precisions = match raw.precision.as_slice() {
        [] => default.to_vec(),
        named => {
            let named = named.iter().flat_map(|list| list.split(','));
            let named = named.map(str::trim).filter(|text| !text.is_empty());
            named.map(resolve::precision).collect::<Result<_, _>>()?
        }
    };
    let sizes = raw.options.sizes.each().into_iter();
    let sizes: Vec<_> = sizes
        .map(|sizes| cli::Options {
            sizes,
            ..raw.options.clone()
        })
        .collect();
    let mut entries = Vec::new();
    let mut add = |name: &str, published: Option<Published>| {
        let (model, origin) = find(name, raw.hub.offline)?;
        let mut weights = None;
        let each = precisions
            .iter()
            .flat_map(|precision| sizes.iter().map(move |options| (precision, options)));
        for (precision, options) in each {
            let typed = resolve::request(*precision, options, Batch::default())?;
            let request = match &published {
                Some(row) => over(typed, row.request()),
                None => typed,
            };
            let job = resolve::job_of(&model, request)?;
            // A network that cannot be built has errors in its cells.
            let compare = || model_source::compare(&model, &origin, &job).unwrap_or_default();
            entries.push(Entry {
                weights: weights.get_or_insert_with(compare).clone(),
                job,
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

/// The model called `name`; the hint of the error says how to type several.
fn find(name: &str, offline: bool) -> Result<(AnyModel, Origin), UserError> {
    let is_list = name.contains(',') && !model_source::is_path(name);
    model_source::find(name, offline).map_err(|error| match is_list {
        true => error.hint(format!(
            "separate models by spaces: {}",
            name.replace(',', " ")
        )),
        false => error,
    })
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

/// The cards of the command line, else for each class the one with the least usable memory that PyTorch runs on.
pub(super) fn torch_cards(raw: &cli::Table) -> Result<Vec<Card>, UserError> {
    let is_typed = raw.gpus.is_some() || !raw.cards.gpu.is_empty() || raw.cards.memory.is_some();
    if raw.gpus.as_deref().is_some_and(is_all) {
        let driven = driven_cards(Some("13")).into_iter();
        return Ok(driven.map(|(_, card)| card).collect());
    }
    let named: Vec<String> = named(raw).into_iter().map(String::from).collect();
    if !named.is_empty() && raw.cards.memory.is_none() {
        return commands::run::cards(&named, None);
    }
    if is_typed {
        return cards(raw, None, Runtime::Cuda);
    }
    let classes = CLASSES.iter().filter_map(|class| driven_class(class));
    Ok(classes.map(|(_, card)| card).collect())
}

/// The cards of the command line, else of the preset, else one card for each class.
pub(super) fn cards(
    raw: &cli::Table,
    preset: Option<Preset>,
    runtime: Runtime,
) -> Result<Vec<Card>, UserError> {
    let named = match raw.gpus.as_deref().is_some_and(is_all) {
        true => {
            let typed = raw.cards.gpu.iter().map(String::as_str);
            typed.chain(every_card(runtime)).collect()
        }
        false => named(raw),
    };
    let memory = raw.cards.memory.as_deref();
    let tuning = resolve::only(&raw.cards)?.unwrap_or_default();
    let cards = resolve::cards(&named, memory, runtime, tuning)?;
    match (cards.is_empty(), preset) {
        (false, _) => Ok(cards),
        (true, _) if raw.gpus.is_some() => Err(UserError::new("--gpus names no card")
            .hint("--gpus is `all`, or names with commas between them: rtx-3090,l4,24GB")),
        (true, Some(Preset::Lambda2020)) => Ok(preset::cards(runtime, tuning)),
        (true, None) => resolve::cards(&CLASSES, memory, runtime, tuning),
    }
}

/// The names of cards on the command line.
fn named(raw: &cli::Table) -> Vec<&str> {
    let list = raw.gpus.as_deref().unwrap_or_default();
    let listed = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let typed = raw.cards.gpu.iter().map(String::as_str);
    typed.chain(listed).collect()
}

/// Whether `list` means every card.
fn is_all(list: &str) -> bool {
    list.trim().eq_ignore_ascii_case("all")
}

/// The names of every card that `runtime` drives, the least usable memory first.
fn every_card(runtime: Runtime) -> Vec<&'static str> {
    let driven = Gpu::all().iter().filter(|gpu| gpu.is_driven_by(runtime));
    let mut driven: Vec<_> = driven.collect();
    driven.sort_by_key(|gpu| gpu.usable_bytes);
    driven.into_iter().map(Gpu::alias).collect()
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.model.name(), self.job.precision)
    }
}

impl Entry {
    /// The cell with what was `found`.
    pub(super) fn cell(&self, found: CellResult) -> BatchCell {
        BatchCell::new(found.fit, found.method, self.job.input.tokens())
    }

    /// The row of `plan` with these `cells`.
    pub(super) fn row(&self, plan: &Plan, cells: Vec<BatchCell>) -> Row {
        let published = match &self.model {
            AnyModel::Published(variant) => Some(&**variant),
            _ => None,
        };
        let pytorch = plan
            .with_pytorch
            .then(|| TorchCells::of(published, &self.job, &plan.cards));
        Row {
            asked: JobInfo {
                weights: self.weights.clone(),
                ..JobInfo::of(&self.model, &self.job, plan.runtime, plan.only, None)
            },
            pytorch: pytorch.flatten(),
            published_as: self.published_as.clone(),
            unit: self.unit,
            cells,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of `fit-check table` with these arguments.
    fn refused(arguments: &str) -> String {
        let plan = Plan::typed(&format!("fit-check table {arguments}"));
        plan.unwrap_err().to_string()
    }

    #[test]
    fn all_cards_and_a_size_exclude_each_other() {
        for cards in ["--gpus all", "--gpus l4", "--gpu l4"] {
            let error = refused(&format!("resnet-20 {cards} --memory 8GB"));
            assert!(
                error.contains("--gpu and --memory exclude each other"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_hint_to_a_list_with_commas_says_how_to_type_it() {
        let typed = [
            (
                "resnet-20,alexnet",
                "separate models by spaces: resnet-20 alexnet",
            ),
            ("resnet-20 --gpu l4,a10", "repeat --gpu: --gpu l4 --gpu a10"),
        ];
        for (arguments, hint) in typed {
            let error = refused(arguments);
            assert!(error.ends_with(&format!("\nhint: {hint}")), "{error}");
        }
    }

    #[test]
    fn precisions_are_a_list_or_repeated() {
        for typed in [
            "--precision fp32,mixed",
            "--precision fp32 --precision mixed",
        ] {
            let plan = Plan::typed(&format!("fit-check table resnet-20 {typed}")).unwrap();
            let precisions = plan.entries.iter().map(|entry| entry.job.precision);
            let precisions: Vec<_> = precisions.collect();
            assert_eq!(precisions, [Precision::Fp32, Precision::Mixed], "{typed}");
        }
    }

    #[test]
    fn sizes_are_a_list() {
        let plan = Plan::typed("fit-check table gpt2 bert-base --seq 64,128 --precision fp32,bf16");
        let plan = plan.unwrap();
        let rows = plan.entries.iter();
        let rows: Vec<_> = rows
            .map(|entry| (entry.model.name(), entry.job.input.seq.unwrap()))
            .collect();
        let of = |name| [64_usize, 128, 64, 128].map(|seq| (name, seq));
        assert_eq!(rows, [of("gpt2"), of("bert-base")].as_flattened());
        let error = refused("gpt2 --seq 64,,128");
        assert!(error.contains("is no value of --seq"), "{error}");
    }

    #[test]
    fn a_row_says_that_weights_do_not_match() {
        let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/own_models/tiny-bert");
        let plan = Plan::typed(&format!("fit-check table {files} --classes 5")).unwrap();
        let row = plan.entries[0].row(&plan, Vec::new());
        let weights = row.asked.weights.expect("there is a file of weights");
        assert_eq!((weights.matching, weights.differences()), (39, 2));
    }

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
