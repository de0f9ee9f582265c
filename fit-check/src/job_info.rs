//! The description of a job, of the configuration of burn and of a card, for every answer.

use estimator::{Bytes, Provenance, Tuning};
use model_zoo::{BaseFormat, Input, Job, Lora, Model, OptimizerKind, Precision, Strategy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model_source::WeightsCheck;
use crate::resolve::{Card, ResolvedRequest};
use crate::several_gpus::GpuGroup;

/// Version of the JSON interface.
pub const SCHEMA: u32 = 3;

/// The configuration of burn that an answer is about.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Burn {
    /// Its version.
    pub version: String,
    /// Whether kernels are fused.
    pub fusion: bool,
    /// Whether kernels are tuned.
    pub autotune: bool,
    /// The only runs that the answer is about: those after kernels were tuned (warm), or the first, which tunes them (cold);
    /// none if it is about both, or if kernels are not tuned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
}

impl Burn {
    /// The simulated version of burn, from the lock file.
    pub const VERSION: &str = env!("BURN_VERSION");

    /// The configuration of burn in this program; `tuning` is that of the only runs that an answer is about, and counts only
    /// if burn tunes its kernels.
    pub fn this(tuning: Option<Tuning>) -> Self {
        let autotune = cfg!(feature = "autotune");
        Self {
            version: Self::VERSION.into(),
            fusion: cfg!(feature = "fusion"),
            autotune,
            tuning: tuning.filter(|_| autotune),
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

/// The job that an answer is about.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct JobInfo {
    /// Version of this interface.
    pub schema: u32,
    /// The model's name.
    pub model: String,
    /// Samples in a batch; absent if the batch is the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// Tokens in a batch, if samples are made of tokens.
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
    /// Batches per optimizer step, if there is more than one.
    #[serde(skip_serializing_if = "is_one")]
    pub accumulate: usize,
    /// Whether the backward pass recomputes activations.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checkpointing: bool,
    /// Path prefixes of frozen parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// Low-rank adapters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<Adapters>,
    /// How the model's weights file agrees with its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsCheck>,
    /// The training loop, if it is not one of the user's own on one GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<&'static str>,
    /// The configuration of burn.
    pub burn: Burn,
}

fn is_one(count: &usize) -> bool {
    *count == 1
}

impl JobInfo {
    /// The description of `request`, with its batch or without.
    pub fn new<M: Model>(request: &ResolvedRequest<M>, batch: Option<usize>) -> Self {
        Self {
            weights: request.weights.clone(),
            ..Self::of(
                &request.model,
                &request.job,
                request.runtime,
                request.only,
                batch,
            )
        }
    }

    /// The description of a job on a runtime, with its batch or without; `tuning` as for [`Burn::this`].
    pub fn of(
        model: &impl Model,
        job: &Job,
        runtime: estimator::Runtime,
        tuning: Option<Tuning>,
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
            strategy: match job.strategy {
                Strategy::Single => None,
                Strategy::Learner => Some("learner"),
                Strategy::Ddp(_) => Some("ddp"),
            },
            burn: Burn::this(tuning),
        }
    }
}

/// Low-rank adapters.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Adapters {
    /// The rank.
    pub rank: usize,
    /// The projections with an adapter.
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
    /// Its name; the size if only a size was given.
    pub name: String,
    /// Its usable memory.
    pub usable_bytes: Bytes,
    /// The memory that a process takes on it besides the pools; on several GPUs, with NCCL at its most on GPU 0.
    pub overhead_bytes: Bytes,
    /// How many GPUs share the job, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GpuGroup>,
    /// How its memory is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

impl GpuName {
    /// The memory that the card leaves to the job.
    pub fn available(&self) -> Bytes {
        self.usable_bytes.saturating_sub(self.overhead_bytes)
    }

    /// The description of `card`.
    pub fn new(card: &Card) -> Self {
        Self {
            name: card.name(),
            group: card.group,
            usable_bytes: card.usable(),
            overhead_bytes: card.device.card.overhead,
            provenance: card.gpu.map(|gpu| gpu.provenance),
        }
    }
}
