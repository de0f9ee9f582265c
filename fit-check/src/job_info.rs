//! What every answer says of its job, of the burn that it speaks of, and of a card.

use estimator::{Bytes, Provenance, Tuning};
use model_zoo::{BaseFormat, Input, Job, Lora, Model, OptimizerKind, Precision};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model_source::Comparison;
use crate::resolve::{Card, ResolvedRequest};

/// Version of the JSON interface.
pub const SCHEMA: u32 = 2;

/// The burn that an answer speaks of.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Burn {
    /// Its version.
    pub version: String,
    /// Whether kernels are fused.
    pub fusion: bool,
    /// Whether kernels are tuned.
    pub autotune: bool,
    /// If they are: whether that was done before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
}

impl Burn {
    /// The version of burn that is simulated: that of the lock file.
    pub const VERSION: &str = env!("BURN_VERSION");

    /// The burn of this program; if it tunes its kernels, with `tuning`.
    pub fn this(tuning: Tuning) -> Self {
        let autotune = cfg!(feature = "autotune");
        Self {
            version: Self::VERSION.into(),
            fusion: cfg!(feature = "fusion"),
            autotune,
            tuning: autotune.then_some(tuning),
        }
    }

    /// `fusion on, autotune on (warm)`
    pub fn switches(&self) -> String {
        let switched = |on: bool| if on { "on" } else { "off" };
        let tuning = self.tuning.map(|tuning| format!(" ({tuning})"));
        format!(
            "fusion {}, autotune {}{}",
            switched(self.fusion),
            switched(self.autotune),
            tuning.unwrap_or_default()
        )
    }
}

/// What was asked.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct JobInfo {
    /// Version of this interface.
    pub schema: u32,
    /// The model's name.
    pub model: String,
    /// Samples in a batch; not where the batch is the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// Tokens in a batch, where samples are made of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
    /// Number formats.
    pub precision: Precision,
    /// Optimizer.
    pub optimizer: OptimizerKind,
    /// Simulated runtime.
    pub runtime: estimator::Runtime,
    /// Sizes of a sample.
    pub input: Input,
    /// Batches per optimizer step, if more than one.
    #[serde(skip_serializing_if = "is_one")]
    pub accumulate: usize,
    /// Whether activations are computed again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checkpointing: bool,
    /// Path prefixes that are not trained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// Low-rank adapters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<Adapters>,
    /// How the model's weights file agrees with its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Comparison>,
    /// The burn that it speaks of.
    pub burn: Burn,
}

fn is_one(count: &usize) -> bool {
    *count == 1
}

impl JobInfo {
    /// Of `request`, with its batch or without.
    pub fn new<M: Model>(request: &ResolvedRequest<M>, batch: Option<usize>) -> Self {
        Self {
            weights: request.comparison.clone(),
            ..Self::of(
                &request.model,
                &request.job,
                request.runtime,
                request.tuning,
                batch,
            )
        }
    }

    /// Of a job on a runtime, with its batch or without.
    pub fn of(
        model: &impl Model,
        job: &Job,
        runtime: estimator::Runtime,
        tuning: Tuning,
        batch: Option<usize>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            model: model.name().into(),
            batch,
            tokens: batch.zip(job.input.tokens()).map(|(b, t)| b * t),
            precision: job.precision,
            optimizer: job.optimizer,
            runtime,
            input: job.input,
            accumulate: job.accumulate,
            checkpointing: job.checkpointing,
            freeze: job.freeze.clone(),
            lora: job.lora.as_ref().map(Adapters::new),
            weights: None,
            burn: Burn::this(tuning),
        }
    }
}

/// Low-rank adapters.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Adapters {
    /// Their rank.
    pub rank: usize,
    /// The projections that have one.
    pub targets: Vec<&'static str>,
    /// The format of the frozen weights.
    pub base: BaseFormat,
}

impl Adapters {
    fn new(lora: &Lora) -> Self {
        Self {
            rank: lora.rank,
            targets: lora.targets.clone(),
            base: lora.base,
        }
    }
}

/// A card, as an answer names it.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GpuName {
    /// Its name; the size where only a size was given.
    pub name: String,
    /// Its memory.
    pub usable_bytes: Bytes,
    /// What a process costs on it beside the pools.
    pub overhead_bytes: Bytes,
    /// Where its memory is known from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

impl GpuName {
    /// Of `card`.
    pub fn new(card: &Card) -> Self {
        Self {
            name: match card.gpu {
                Some(gpu) => gpu.name.clone(),
                None => format!("{} of memory", card.usable()),
            },
            usable_bytes: card.usable(),
            overhead_bytes: card.device.card.overhead,
            provenance: card.gpu.map(|gpu| gpu.provenance),
        }
    }
}
