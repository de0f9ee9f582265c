//! Resolves the command line into plain values.

use std::path::Path;

use estimator::{DeviceSpec, Runtime, Tuning};
use model_zoo::{
    BaseFormat, InputSize, Job, LoraRequest, Model, OptimizerKind, Precision, Request, SizeValue,
};
use strum::VariantNames;

pub use crate::card::{Card, cards, gpu};
use crate::cli;
use crate::model_source::{self, AnyModel, Origin, WeightsCheck};
use crate::several_gpus::{for_strategy, strategy};
use crate::step::untrained;
use crate::user_error::{UserError, either};
use crate::values::{choice, optional_count};

/// A training job, and the cards on which it should fit.
#[derive(Clone, Debug)]
pub struct ResolvedRequest<M = AnyModel> {
    /// The model.
    pub model: M,
    /// Where the model comes from.
    pub origin: Origin,
    /// How its weights file agrees with its network.
    pub weights: Option<WeightsCheck>,
    /// Its training step.
    pub job: Job,
    /// The simulated runtime.
    pub runtime: Runtime,
    /// The only runs that have to complete: the first, in which burn tunes its kernels, or those after it; none if all have to.
    pub only: Option<Tuning>,
    /// The cards; empty if none was named.
    pub cards: Vec<Card>,
}

impl ResolvedRequest {
    /// Resolves the command line.
    ///
    /// # Errors
    ///
    /// A value is invalid; the error has a hint.
    pub fn new(raw: &cli::Job, batch: Batch) -> Result<Self, UserError> {
        let (model, origin) = model_source::find(&raw.model, raw.hub.offline)?;
        let job = job(&model, &raw.step, batch)?;
        let mut request = Self::with_job(model, job, raw)?;
        request.weights = model_source::compare(&request.model, &origin, &request.job)?;
        request.origin = origin;
        Ok(request)
    }
}

impl<M: Model> ResolvedRequest<M> {
    /// Like [`ResolvedRequest::new`], for a given `model`.
    ///
    /// # Errors
    ///
    /// A value is invalid; the error has a hint.
    pub fn of(model: M, raw: &cli::Job, batch: Batch) -> Result<Self, UserError>
    where
        M: Sync,
    {
        let job = job(&model, &raw.step, batch)?;
        Self::with_job(model, job, raw)
    }

    fn with_job(model: M, job: Job, raw: &cli::Job) -> Result<Self, UserError> {
        let runtime = runtime(&raw.cards)?;
        let only = only(&raw.cards)?;
        let tuning = only.unwrap_or_default();
        let cards = cards(&raw.cards.gpu, raw.cards.memory.as_deref(), runtime, tuning)?;
        let nccl = raw.step.options.nccl.as_deref();
        let cards = for_strategy(cards, job.strategy, nccl, runtime)?;
        Ok(Self {
            model,
            origin: Origin::default(),
            weights: None,
            job,
            runtime,
            only,
            cards,
        })
    }

    /// An unlimited card with the kernels of the first named card.
    pub fn unlimited(&self) -> DeviceSpec {
        match self.cards.first() {
            Some(card) => card.device.without_limit(),
            None => DeviceSpec::unlimited(self.runtime),
        }
    }
}

/// A batch, as typed; if neither number is given, it is that of the published recipe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// The number of samples.
    pub samples: Option<&'a str>,
    /// The most tokens that all samples have together.
    pub tokens: Option<&'a str>,
}

impl<'a> Batch<'a> {
    /// The batch of the options `--batch` and `--tokens`.
    pub fn typed(samples: &'a Option<String>, tokens: &'a Option<String>) -> Self {
        Self {
            samples: samples.as_deref(),
            tokens: tokens.as_deref(),
        }
    }
}

/// The training job of `model` that `raw` and `batch` name.
///
/// # Errors
///
/// A value is invalid; the error has a hint.
pub fn job(model: &(impl Model + Sync), raw: &cli::Step, batch: Batch) -> Result<Job, UserError> {
    job_of(model, typed(raw, batch)?)
}

fn typed(raw: &cli::Step, batch: Batch) -> Result<Request, UserError> {
    request(precision(&raw.precision)?, &raw.options, batch)
}

/// The number formats that `text` names.
///
/// # Errors
///
/// There are no number formats of this name.
pub fn precision(text: &str) -> Result<Precision, UserError> {
    choice("--precision", text, Precision::VARIANTS)
}

/// The training job of `model` that `request` describes.
///
/// # Errors
///
/// A value is invalid; the error has a hint.
pub fn job_of(model: &(impl Model + Sync), request: Request) -> Result<Job, UserError> {
    let job = sized_job(model, request)?;
    if !job.freeze.is_empty() {
        let paths = untrained(|device| job.parameter_paths(model, device))?;
        job.check_frozen(model.name(), &paths)?;
    }
    Ok(job)
}

/// The training job of `model` that `request` describes, whatever it freezes.
fn sized_job(model: &impl Model, request: Request) -> Result<Job, UserError> {
    let job = request.resolve(model)?;
    model.check(&job)?;
    countable(model.name(), &job)?;
    Ok(job)
}

/// The request of `raw` and `batch`, in the number formats `precision`.
///
/// # Errors
///
/// A value is invalid; the error has a hint.
pub fn request(
    precision: Precision,
    raw: &cli::Options,
    batch: Batch,
) -> Result<Request, UserError> {
    if batch.samples.is_some() && batch.tokens.is_some() {
        return Err(
            UserError::new("--batch and --tokens exclude each other").hint(
                "--batch counts samples; --tokens N is as many samples as have at most N tokens",
            ),
        );
    }
    Ok(Request {
        batch: optional_count("--batch", batch.samples)?,
        tokens: optional_count("--tokens", batch.tokens)?,
        precision,
        optimizer: raw.optimizer.as_deref().map(optimizer).transpose()?,
        input: raw.sizes.input()?,
        accumulate: accumulate(raw)?,
        checkpointing: raw.checkpointing,
        freeze: raw.freeze.clone(),
        lora: lora(raw)?,
        strategy: strategy(raw.strategy.as_deref())?,
    })
}

/// The optimizer called `text`. Names of transformers' option `--optim` that burn has nothing for are refused with a hint. Two states
/// of 8 bits, and the largest value of each 256 of them in 32 bits, are 2.03 bytes (`blocksize` in `bitsandbytes/optim/optimizer.py`).
fn optimizer(text: &str) -> Result<OptimizerKind, UserError> {
    let known = OptimizerKind::VARIANTS;
    let chosen = choice("--optimizer", text, known);
    let plain = text.to_lowercase();
    let is_small = ["8bit", "8-bit", "4bit", "4-bit", "paged"];
    if is_small.iter().any(|word| plain.contains(word)) {
        let error =
            format!("`{text}`: burn has no optimizer whose state is in 8 or 4 bits, or paged");
        return chosen.map_err(|_| {
            UserError::new(error).hint(format!(
                "--optimizer is {}; in PyTorch that of bitsandbytes keeps about 2 bytes for each parameter in place of Adam's 8: `--framework pytorch --optimizer adamw8bit` with the path of a config.json, or `fit-check run --gpu CARD -- python train.py`",
                either(known)
            ))
        });
    }
    // `adamw_torch_fused`: a fused step keeps the same state.
    let same = plain.split(['_', '-']).next().unwrap_or_default();
    let is_spelling = ["torch", "fused", "foreach", "apex", "hf"];
    match chosen {
        Err(error)
            if known.contains(&same) && is_spelling.iter().any(|word| plain.contains(word)) =>
        {
            Err(error.hint(format!(
                "burn has one optimizer of this kind: --optimizer {same}"
            )))
        }
        chosen => chosen,
    }
}

/// The most batches between two optimizer steps. From the second on the peak stays the same, and each is simulated.
const MAX_ACCUMULATED: usize = 1024;

fn accumulate(raw: &cli::Options) -> Result<usize, UserError> {
    match optional_count("--accumulate", raw.accumulate.as_deref())? {
        None => Ok(1),
        Some(count @ ..=MAX_ACCUMULATED) => Ok(count),
        Some(count) => Err(
            UserError::invalid_value("--accumulate", count).hint(format!(
                "--accumulate is at most {MAX_ACCUMULATED}: from the second batch on the peak stays the same"
            )),
        ),
    }
}

fn lora(raw: &cli::Options) -> Result<Option<LoraRequest>, UserError> {
    let Some(rank) = optional_count("--lora", raw.lora.as_deref())? else {
        return Ok(None);
    };
    let targets = raw.lora_targets.iter().flat_map(|names| names.split(','));
    Ok(Some(LoraRequest {
        rank,
        targets: targets.map(|name| name.trim().to_lowercase()).collect(),
        base: choice("--lora-base", &raw.lora_base, BaseFormat::VARIANTS)?,
    }))
}

/// Refuses `more` models beside the first, for a `command` that takes one.
///
/// # Errors
///
/// There are more; the hint names the command that takes several.
pub fn one_model(command: &str, model: &str, more: &[String]) -> Result<(), UserError> {
    if more.is_empty() {
        return Ok(());
    }
    let models = [&[model.to_string()], more].concat();
    let hint = match models.iter().any(|word| is_program(word)) {
        true => "`fit-check run --gpu CARD -- python train.py` follows a PyTorch program, and `fit-check max-batch --gpu CARD -- python train.py --batch-size {batch}` finds its largest batch".to_string(),
        false => format!(
            "`fit-check table {}` has the largest batch of each, on several cards",
            models.join(" ")
        ),
    };
    Err(UserError::new(format!("{command} takes one model")).hint(hint))
}

/// Whether `word` is of a command that starts a program in Python.
fn is_program(word: &str) -> bool {
    let path = Path::new(word);
    let starts = path.file_name().unwrap_or_default().to_string_lossy();
    let starters = ["python", "torchrun", "accelerate"];
    path.extension().is_some_and(|ending| ending == "py")
        || starters.iter().any(|starter| starts.starts_with(starter))
}

/// The simulated runtime.
///
/// # Errors
///
/// There is no runtime of this name.
pub fn runtime(raw: &cli::Cards) -> Result<Runtime, UserError> {
    choice("--runtime", &raw.runtime, Runtime::VARIANTS)
}

/// The only runs that have to complete; none if all have to.
///
/// # Errors
///
/// There is no such state.
pub fn only(raw: &cli::Cards) -> Result<Option<Tuning>, UserError> {
    let typed = raw.tuning.as_ref();
    let tuning = typed.map(|text| choice("--tuning", text, Tuning::VARIANTS));
    tuning.transpose()
}

/// The largest tensor of a network is at most this many times its input: 64 channels in each
/// of three passes over a batch, with room to spare.
const WIDEST: u64 = 1 << 14;

/// Checks that 64 bits can count the sizes of the step's tensors.
fn countable(model: &str, job: &Job) -> Result<(), UserError> {
    let sizes = InputSize::ALL
        .iter()
        .filter_map(|size| job.input.get(*size));
    let sizes: Vec<_> = sizes
        .flat_map(SizeValue::numbers)
        .map(|size| size as u64)
        .collect();
    // Attention has a score for each pair of tokens.
    let pairs = job.input.seq.map_or(1, |tokens| tokens as u64);
    let counts = |sizes: &[u64]| {
        let mut all = sizes.iter().copied().chain([job.batch as u64, WIDEST]);
        let elements = all.try_fold(1u64, u64::checked_mul);
        elements.is_some_and(|elements| elements < 1 << 60)
    };
    match counts(&sizes) && counts(&[pairs, pairs]) {
        true => Ok(()),
        false => Err(UserError::new(format!(
            "the tensors of {model} would have more bytes than 64 bits can count"
        ))
        .hint("make --batch, --image or --seq smaller")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_that_64_bits_cannot_count_are_refused() {
        let resnet = model_zoo::find("resnet-50").unwrap();
        let request = |batch| Request {
            batch: Some(batch),
            ..Request::default()
        };
        assert!(job_of(&resnet, request(1 << 20)).is_ok());
        assert!(job_of(&resnet, request(u32::MAX as usize)).is_err());
        let long = |seq| {
            let llama = model_zoo::find("llama-2-7b").unwrap();
            let input = model_zoo::Input {
                seq: Some(seq),
                ..model_zoo::Input::default()
            };
            job_of(
                &llama,
                Request {
                    input,
                    ..Request::default()
                },
            )
        };
        assert!(long(1_000_000).is_ok());
        assert!(long(1_000_000_000).is_err());
    }
}
