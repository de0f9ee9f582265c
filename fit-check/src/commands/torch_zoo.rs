//! Networks of the zoo in PyTorch (`--framework pytorch`), from what was recorded beforehand: no Python is started.

use std::collections::BTreeMap;
use std::path::Path;

use estimator::Bytes;
use model_zoo::Variant;
use serde_json::json;
use strum::VariantNames;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::kept::{self, Kept};
use torch_memory::recorder::allocator_variable;
use torch_memory::stream::Recording;

use crate::cli;
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::job_info::SCHEMA;
use crate::output;
use crate::output::torch::WithModules;
use crate::resolve::Card;
use crate::torch_program::TorchReport;
use crate::torch_program::batches::{TorchTableReport, TorchTableRow, of_kept};
use crate::torch_program::plot::{layer_names, plot};
use crate::torch_program::report::{Approximation, ProcessReport, Torch};
use crate::user_error::UserError;
use crate::values;

/// A framework that trains a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
enum Framework {
    Burn,
    PyTorch,
}

/// Whether `framework`, as typed, is PyTorch.
///
/// # Errors
///
/// It is neither PyTorch nor burn.
pub(super) fn is_asked(framework: &str) -> Result<bool, UserError> {
    let framework: Framework = values::choice("--framework", framework, Framework::VARIANTS)?;
    Ok(framework == Framework::PyTorch)
}

/// A network that was recorded.
struct Network {
    variant: Variant,
    precision: String,
    kept: Kept,
    config: AllocatorConfig,
}

impl Network {
    /// The recorded network that `model` names, in a number format.
    fn find(model: &str, precision: &str, options: &cli::Options) -> Result<Self, UserError> {
        refuse(options)?;
        if Path::new(model).exists() {
            return Err(UserError::new(format!(
                "{model}: files are not followed with --framework pytorch"
            ))
            .hint("`fit-check run -- python train.py` follows a program that trains this model"));
        }
        let variant = model_zoo::find(model)?;
        let kept = kept::find(variant.name, precision);
        let kept = kept.map_err(|error| UserError::new(format!("{model}: {error}")))?;
        let kept = kept.ok_or_else(|| missing(&variant, precision))?;
        let conf = allocator_variable().unwrap_or_default();
        let config = conf.parse().map_err(|error| {
            UserError::new(format!("{}={conf}: {error}", AllocatorConfig::VARIABLES[0]))
                .hint("unset it, or write it as PyTorch's page \"CUDA semantics\" says")
        })?;
        Ok(Self {
            variant,
            precision: precision.into(),
            kept,
            config,
        })
    }

    fn recording(&self, batch: u64) -> Recording {
        Recording {
            process: self.kept.process.clone(),
            trace: self.kept.scaling.at(batch),
            ..Recording::default()
        }
    }

    /// `resnet-50, batch 32, fp32`
    fn headline(&self, batch: Option<u64>) -> String {
        let batch = batch.map_or(String::new(), |batch| format!(", batch {batch}"));
        format!("{}{batch}, {}", self.variant.name, self.precision)
    }
}

/// Refuses what a recorded network does not follow.
fn refuse(options: &cli::Options) -> Result<(), UserError> {
    let typed = [
        ("--optimizer", options.optimizer.is_some()),
        ("--accumulate", options.accumulate.is_some()),
        ("--checkpointing", options.checkpointing),
        ("--freeze", !options.freeze.is_empty()),
        ("--lora", options.lora.is_some()),
        ("a size of a sample", options.sizes.any()),
    ];
    match typed.into_iter().find(|(_, typed)| *typed) {
        Some((option, _)) => Err(UserError::new(format!("{option} is not followed with --framework pytorch")).hint(
            "these networks were recorded with the recipe of `fit-check models`; `fit-check run -- python train.py` follows a program of yours",
        )),
        None => Ok(()),
    }
}

fn missing(variant: &Variant, precision: &str) -> UserError {
    let known = ["fp32", "mixed"];
    let name = variant.name;
    if !known.contains(&precision) {
        return UserError::invalid_value("--precision", precision)
            .hint("--precision is fp32 or mixed (autocast to bf16) with --framework pytorch");
    }
    UserError::new(format!("{name} was not recorded in PyTorch ({precision})")).hint(format!(
        "recorded are {}; `fit-check run -- python train.py` follows a program of yours",
        kept::names(precision).join(", ")
    ))
}

/// The answer of `estimate`.
pub(super) fn estimate(raw: &cli::Estimate) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    raw.plots.check(&raw.output)?;
    let network = Network::find(
        &raw.job.model,
        &raw.job.step.precision,
        &raw.job.step.options,
    )?;
    if raw.tokens.is_some() {
        return Err(
            UserError::new("--tokens is not followed with --framework pytorch")
                .hint("--batch N says how many samples")
                .into(),
        );
    }
    let batch = values::optional_count("--batch", raw.batch.as_deref())?;
    let batch = batch.unwrap_or(network.variant.batch) as u64;
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    let recording = network.recording(batch);
    let process = |card| ProcessReport::new(&recording, card, &network.config);
    let report = TorchReport {
        schema: SCHEMA,
        program: network.headline(Some(batch)),
        torch: Torch::of(&network.kept.process),
        steps: recording.steps,
        processes: match cards.is_empty() {
            true => vec![process(None)],
            false => cards.iter().map(|card| process(Some(card))).collect(),
        },
        approximations: vec![beforehand()],
        information: BTreeMap::from([(
            "optimizer".into(),
            json!(network.variant.optimizer.to_string()),
        )]),
    };
    match raw.layers {
        true => output::write(&WithModules(&report), &raw.output)?,
        false => output::write(&report, &raw.output)?,
    }
    if raw.plots.any() {
        let names = layer_names(&recording.trace);
        let process = &report.processes[0];
        raw.plots.write(&plot(
            &report,
            process,
            &recording.trace,
            &network.config,
            &names,
        ))?;
    }
    Ok(if report.fits() { FITS } else { DOES_NOT_FIT })
}

/// What the recording of another day and card does not know.
fn beforehand() -> Approximation {
    Approximation {
        kind: "recorded beforehand".into(),
        text: format!(
            "with the kernels for an {}, at two small batches",
            kept::RECORDED_ON
        ),
        bytes: Bytes::ZERO,
        count: 1,
    }
}

/// The answer of `max-batch`.
pub(super) fn max_batch(raw: &cli::MaxBatch) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let network = Network::find(
        &raw.job.model,
        &raw.job.step.precision,
        &raw.job.step.options,
    )?;
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    if cards.is_empty() {
        return Err(UserError::no_card("max-batch needs a card").into());
    }
    let report = of_kept(
        network.headline(None),
        &network.kept,
        network.config,
        &cards,
    );
    output::write(&report, &raw.output)?;
    Ok(match report.cards.iter().all(|card| card.max_batch > 0) {
        true => FITS,
        false => DOES_NOT_FIT,
    })
}

/// The answer of `table`.
pub(super) fn table(raw: &cli::Table, cards: &[Card]) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    if raw.preset.is_some() {
        return Err(
            UserError::new("--preset is not followed with --framework pytorch")
                .hint("name models, or leave them out for all that were recorded")
                .into(),
        );
    }
    let precisions = match raw.precision.as_slice() {
        [] => vec!["fp32".to_string()],
        named => named.to_vec(),
    };
    let mut rows = Vec::new();
    let mut torch = Torch::default();
    for precision in &precisions {
        let every = kept::names(precision)
            .into_iter()
            .map(str::to_string)
            .collect();
        let models = if raw.models.is_empty() {
            every
        } else {
            raw.models.clone()
        };
        for model in models {
            let network = Network::find(&model, precision, &raw.options)?;
            torch = Torch::of(&network.kept.process);
            let report = of_kept(String::new(), &network.kept, network.config, cards);
            rows.push(TorchTableRow {
                model: network.variant.name.into(),
                precision: network.precision,
                batches: report.cards.iter().map(|card| card.max_batch).collect(),
            });
        }
    }
    let report = TorchTableReport {
        schema: SCHEMA,
        torch,
        cards: cards.iter().map(Card::label).collect(),
        rows,
    };
    output::write(&report, &raw.output)?;
    Ok(FITS)
}
