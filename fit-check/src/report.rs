//! The answers, as every format shows them. The field names are the program's JSON interface.

use estimator::{
    Breakdown, Bytes, Choice, Estimate, FirstRun, Gpu, LargestBatch, LayerMemory, Limit, Overhead,
    Parameters, Phase, PhaseMemory,
};
use model_zoo::{Input, Model, OptimizerKind, Variant};
use schemars::JsonSchema;
use serde::Serialize;

use crate::advice::Advice;
use crate::comparison::{Errors, Figures};
use crate::job_info::{GpuName, JobInfo};
use crate::measure::{DeviceReport, Mode, Outcome};
use crate::resolve::{Card, ResolvedRequest};

/// The moment with the most memory.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Peak {
    /// In use.
    pub live_bytes: Bytes,
    /// Held by the pools where there is room.
    pub reserved_bytes: Bytes,
    /// The least with which the step completes.
    pub required_bytes: Bytes,
    /// `reserved_bytes` and what a process costs beside the pools.
    pub device_bytes: Bytes,
    /// In which phase.
    pub phase: Phase,
    /// In which layer.
    pub layer: Option<String>,
    /// For which kernel.
    pub kernel: Option<String>,
}

impl Peak {
    fn new(estimate: &Estimate, overhead: Bytes) -> Self {
        let peak = estimate.peak.clone();
        Self {
            live_bytes: peak.live_bytes,
            reserved_bytes: peak.reserved_bytes,
            required_bytes: peak.required_bytes,
            device_bytes: peak.reserved_bytes + overhead,
            phase: peak.phase,
            layer: peak.layer,
            kernel: peak.kernel,
        }
    }
}

/// Whether a step fits on a card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Verdict {
    /// The card.
    pub gpu: GpuName,
    /// Whether it does.
    pub fits: bool,
    /// What is left over, negative if it does not.
    pub headroom_bytes: i64,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the first run fits as well, in which kernels are tuned; none if that is not
    /// another one, or if not even the others fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_run_fits: Option<bool>,
    /// Whether it fits as well where the device's thread is behind the program
    /// ([`estimator::QueueLag`]); none where there is enough to spare, or where it does not fit anyway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_fits: Option<bool>,
}

impl Verdict {
    /// That of `verdict` about `card`.
    pub fn new(card: &Card, verdict: &estimator::Verdict) -> Self {
        Self {
            gpu: GpuName::new(card),
            fits: verdict.fits(),
            headroom_bytes: verdict.headroom_bytes,
            reason: verdict.refused.as_ref().map(ToString::to_string),
            first_run_fits: verdict.first_run_fits,
            lag_fits: verdict.lag_fits,
        }
    }
}

/// The answer of `estimate`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct EstimateReport {
    /// What was asked.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// What the modules hold.
    pub parameters: Parameters,
    /// The highest of all steps.
    pub peak: Peak,
    /// In use at the peak.
    pub at_peak: Breakdown,
    /// Phases of the last step.
    pub phases: Vec<PhaseMemory>,
    /// Layers.
    pub layers: Vec<LayerMemory>,
    /// Whether they are those of the step without fusion, though burn fuses.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub layers_unfused: bool,
    /// The first card.
    #[serde(flatten)]
    pub verdict: Option<Verdict>,
    /// All cards, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<Verdict>,
    /// What a process costs beside the pools.
    pub overhead_bytes: Bytes,
    /// The run in which kernels are tuned, where there is room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_run: Option<FirstRun>,
    /// The most in use with other kernels, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// What burn's tuner chose for the largest operations, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<Vec<Choice>>,
    /// What would make it fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Whether to say how to ask for advice.
    #[serde(skip)]
    pub offers_advice: bool,
}

/// The most that a step has in use with the leanest and with the hungriest of the kernels that burn's tuner
/// chooses between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Range {
    /// With the leanest.
    pub least_bytes: Bytes,
    /// With the hungriest.
    pub most_bytes: Bytes,
}

impl EstimateReport {
    /// From what was asked, what came out, and whether it fits on each card.
    pub fn new<M: Model>(
        request: &ResolvedRequest<M>,
        estimate: Estimate,
        mut verdicts: Vec<Verdict>,
    ) -> Self {
        let overhead = overhead(request);
        Self {
            asked: JobInfo::new(request, Some(request.job.batch)),
            parameters: estimate.parameters,
            peak: Peak::new(&estimate, overhead),
            at_peak: estimate.at_peak,
            phases: estimate.phases,
            layers: estimate.layers,
            layers_unfused: false,
            verdict: verdicts.first().cloned(),
            cards: match verdicts.len() {
                0 | 1 => Vec::new(),
                _ => std::mem::take(&mut verdicts),
            },
            overhead_bytes: overhead,
            first_run: estimate.first_run,
            range: None,
            kernels: None,
            advice: None,
            offers_advice: false,
        }
    }

    /// Card by card.
    pub fn verdicts(&self) -> &[Verdict] {
        match self.cards.is_empty() {
            true => self.verdict.as_slice(),
            false => &self.cards,
        }
    }

    /// Whether it fits on every card that was named.
    pub fn fits(&self) -> bool {
        self.verdicts().iter().all(|verdict| verdict.fits)
    }
}

/// What a process costs beside the pools on the first card that was named, or on one like
/// an unlimited card.
fn overhead<M: Model>(request: &ResolvedRequest<M>) -> Bytes {
    match request.cards.first() {
        Some(card) => card.device.card.overhead,
        None => Overhead::of(request.unlimited().card.multiprocessors).cautious_bytes,
    }
}

/// The first batch that does not fit.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FirstRejected {
    /// Samples in it.
    pub batch: u64,
    /// What it would take where there is room.
    #[serde(flatten)]
    pub peak: Peak,
    /// What the card refused.
    pub refused: String,
}

/// The largest batch on one card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CardBatch {
    /// The card.
    pub gpu: GpuName,
    /// Samples in it; 0 if not even one fits.
    pub max_batch: u64,
    /// Tokens in it, where samples are made of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// What it takes.
    pub at_max: Option<Peak>,
    /// The first that does not fit.
    pub next: FirstRejected,
    /// What stands against it.
    pub limit: Limit,
}

impl CardBatch {
    /// From the card and what was found for it; `tokens` are those of a sample.
    pub fn new(card: &Card, found: &LargestBatch, tokens: Option<usize>) -> Self {
        let overhead = card.device.card.overhead;
        Self {
            gpu: GpuName::new(card),
            max_batch: found.batch,
            max_tokens: tokens.map(|tokens| found.batch * tokens as u64),
            at_max: found.at_max.as_ref().map(|at| Peak::new(at, overhead)),
            next: FirstRejected {
                batch: found.next.batch,
                peak: Peak::new(&found.next.estimate, overhead),
                refused: found.next.refused.to_string(),
            },
            limit: found.limit,
        }
    }
}

/// The answer of `max-batch`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct MaxBatchReport {
    /// What was asked.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// Card by card.
    pub cards: Vec<CardBatch>,
    /// What would let more samples fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Whether to say how to ask for advice.
    #[serde(skip)]
    pub offers_advice: bool,
}

/// The answer of `verify`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct VerifyReport {
    /// What was asked.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// The device that it was measured on.
    pub device: DeviceReport,
    /// How the step was run.
    pub mode: Mode,
    /// How the run ended.
    pub ending: Outcome,
    /// On a simulated card like the device.
    pub estimated: Figures,
    /// On the device.
    pub measured: Figures,
    /// Their difference.
    pub error: Errors,
    /// The most that the estimate may be above the measurement, relative to it.
    pub tolerance: f64,
    /// Whether the step ran, and the estimate is nowhere too low and nowhere too high by more
    /// than `tolerance`.
    pub agrees: bool,
}

/// A batch that was trained on a device with a budget.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct BatchRun {
    /// Samples in it.
    pub batch: u64,
    /// The least memory that it takes, as estimated.
    pub required_bytes: Bytes,
    /// Whether it is estimated to fit.
    pub fits: bool,
    /// How it ended on the device.
    pub ending: Outcome,
}

impl BatchRun {
    /// Whether it ended as estimated. A driver need not say that there is no memory left:
    /// Mesa's software device crashes.
    pub fn agrees(&self) -> bool {
        match self.fits {
            true => self.ending == Outcome::Trained,
            false => !matches!(self.ending, Outcome::Trained | Outcome::TimedOut(_)),
        }
    }
}

/// The answer of `verify --max-batch`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct LimitReport {
    /// What was asked.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// The device that it was measured on.
    pub device: DeviceReport,
    /// The memory that the pools may take.
    pub budget_bytes: Bytes,
    /// What the process took beside the pools when it trained the largest batch.
    pub overhead_bytes: Bytes,
    /// The largest batch that is estimated to fit, and the next.
    pub runs: [BatchRun; 2],
    /// Whether each ended as estimated.
    pub agrees: bool,
}

/// The answer of `models`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ModelReport {
    /// Its name.
    pub name: &'static str,
    /// Its architecture.
    pub family: &'static str,
    /// Published trainable parameters.
    pub parameters: u64,
    /// Tensors among which they are divided.
    pub tensors: u64,
    /// Elements of running statistics.
    pub buffers: u64,
    /// Sizes of the published recipe.
    pub input: Input,
    /// Batch of the published recipe.
    pub batch: usize,
    /// Optimizer of the published recipe.
    pub optimizer: OptimizerKind,
    /// The published recipe.
    pub recipe: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// The implementation that is followed.
    pub reference: &'static str,
    /// Where it differs from that.
    pub differences: &'static [&'static str],
}

impl From<&Variant> for ModelReport {
    fn from(variant: &Variant) -> Self {
        Self {
            name: variant.name,
            family: variant.family,
            parameters: variant.counts.trainable,
            tensors: variant.counts.tensors,
            buffers: variant.counts.buffers,
            input: variant.input,
            batch: variant.batch,
            optimizer: variant.optimizer,
            recipe: variant.recipe,
            paper: variant.paper,
            reference: variant.reference,
            differences: variant.differences,
        }
    }
}

/// The answer of `gpus`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GpuReport {
    /// The card.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// What a process costs on it beside the pools.
    pub overhead: Overhead,
}

impl From<&Gpu> for GpuReport {
    fn from(gpu: &Gpu) -> Self {
        Self {
            gpu: gpu.clone(),
            overhead: gpu.overhead(),
        }
    }
}
