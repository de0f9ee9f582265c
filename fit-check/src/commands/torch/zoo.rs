//! Networks of the zoo in PyTorch, from what was recorded beforehand: no Python is started.

use std::rc::Rc;

use model_zoo::{InputSize, Variant};
use torch_memory::allocator::AllocatorConfig;
use torch_memory::kept::{self, Kept};
use torch_memory::recorder::allocator_variable;

use crate::cli::{self, Advise};
use crate::input_options::TypedSizes;
use crate::resolve::Card;
use crate::torch_program::batches::Found;
use crate::torch_program::job::TorchJob;
use crate::torch_program::report::parsed_config;
use crate::torch_program::source::{Beforehand, Source, Step};
use crate::user_error::UserError;

/// A network that was recorded.
pub(super) struct Network {
    variant: Variant,
    precision: String,
    config: AllocatorConfig,
}

impl Network {
    /// The recorded network `variant`, in a number format.
    ///
    /// # Errors
    ///
    /// It was not recorded, or not with these options.
    pub(super) fn new(
        variant: Variant,
        precision: &str,
        options: &cli::Options,
        attention: Option<&str>,
    ) -> Result<Self, UserError> {
        if !kept::has(variant.name) {
            return Err(missing(&variant));
        }
        if let Some(option) = beyond_recipe(&variant, options, attention) {
            return Err(UserError::new(format!(
                "{} was recorded in PyTorch with the recipe of `fit-check models`, and not with {option}",
                variant.name
            ))
            .hint(OTHERWISE));
        }
        if !kept::PRECISIONS.contains(&precision) {
            return Err(UserError::invalid_value("--precision", precision).hint(
                "--precision is fp32 or mixed (autocast to bf16) for a network that was recorded beforehand",
            ));
        }
        Ok(Self {
            variant,
            precision: precision.into(),
            config: of_environment()?.unwrap_or_default(),
        })
    }
}

impl Source for Network {
    fn name(&self) -> &str {
        self.variant.name
    }

    fn job(&self, batch: Option<u64>) -> Option<TorchJob> {
        Some(TorchJob {
            model: self.variant.name.into(),
            batch,
            input: self.variant.input,
            precision: self.precision.clone(),
            optimizer: self.variant.optimizer.to_string(),
            ..TorchJob::default()
        })
    }

    fn usual_batch(&self) -> Result<u64, UserError> {
        Ok(self.variant.batch as u64)
    }

    fn steps(&self, batch: u64, cards: &[Card]) -> Result<Vec<Rc<Step>>, UserError> {
        self.kept_steps(batch, cards)
    }

    fn largest_batches(&self, cards: &[Card], advise: Advise) -> Result<Found, UserError> {
        self.kept_batches(cards, advise)
    }
}

impl Beforehand for Network {
    fn recorded_on(&self, card: Option<&Card>) -> Result<&str, UserError> {
        let capability = card.map(|card| card.device.card.compute_capability);
        Ok(kept::recorded_on(capability))
    }

    fn kept(&self, card: Option<&Card>) -> Result<Kept, UserError> {
        let name = self.variant.name;
        let capability = card.map(|card| card.device.card.compute_capability);
        let kept = kept::find(name, &self.precision, capability);
        let kept = kept.map_err(|error| UserError::new(format!("{name}: {error}")))?;
        kept.ok_or_else(|| missing(&self.variant))
    }

    fn config(&self) -> &AllocatorConfig {
        &self.config
    }
}

/// The configuration of the allocator in this environment, if it has one.
///
/// # Errors
///
/// PyTorch would refuse it.
pub(super) fn of_environment() -> Result<Option<AllocatorConfig>, UserError> {
    let conf = allocator_variable();
    conf.map(|text| parsed_config(&text)).transpose()
}

/// Where a network that was not recorded gets its answer.
const OTHERWISE: &str = "the path of a config.json, or a name on the Hugging Face Hub (owner/name), is recorded now, with its options; `fit-check run --gpu CARD -- python train.py` follows a program of yours";

/// Whether what was recorded of `variant` answers: it was trained as these options ask.
pub(super) fn is_recorded(
    variant: &Variant,
    precision: &str,
    options: &cli::Options,
    attention: Option<&str>,
) -> bool {
    kept::PRECISIONS.contains(&precision)
        && kept::has(variant.name)
        && beyond_recipe(variant, options, attention).is_none()
}

/// The option that asks for another step than the recipe of `variant`, if one was typed.
fn beyond_recipe(
    variant: &Variant,
    options: &cli::Options,
    attention: Option<&str>,
) -> Option<&'static str> {
    let usual = variant.optimizer.to_string();
    let is_usual = |typed: &String| typed.eq_ignore_ascii_case(&usual);
    let sizes = options.sizes.input().ok().filter(|input| {
        let mut sizes = InputSize::ALL.iter().copied();
        sizes.all(|size| input.get(size).is_none() || input.get(size) == variant.input.get(size))
    });
    let rest = cli::Options {
        optimizer: options.optimizer.clone().filter(|typed| !is_usual(typed)),
        sizes: match sizes {
            Some(_) => TypedSizes::default(),
            None => options.sizes.clone(),
        },
        ..options.clone()
    };
    typed(&rest, attention)
}

/// The option that says how a step is trained, if one was typed: what was recorded is as it is.
pub(super) fn typed(options: &cli::Options, attention: Option<&str>) -> Option<&'static str> {
    let typed = [
        ("--optimizer", options.optimizer.is_some()),
        ("--accumulate", options.accumulate.is_some()),
        ("--checkpointing", options.checkpointing),
        ("--freeze", !options.freeze.is_empty()),
        ("--lora", options.lora.is_some()),
        ("--attention", attention.is_some()),
    ];
    let typed = typed.into_iter().find(|(_, typed)| *typed);
    typed.map(|(option, _)| option).or(options.sizes.typed())
}

fn missing(variant: &Variant) -> UserError {
    let names: Vec<_> = kept::names().collect();
    UserError::new(format!("{} was not recorded in PyTorch", variant.name))
        .hint(format!("recorded are {}; {OTHERWISE}", names.join(", ")))
}
