//! The answers of `estimate`, `max-batch`, `verify`, `models` and `gpus`, which every format shows. The field names are
//! the program's JSON interface.
//!
//! The file is long because it has the types of these answers, and how they follow from the values of the library.
//! The other answers are beside what computes them: `table` in [`crate::table`], `gpus --fits` in
//! [`crate::gpu_search`], `verify --list` in `measure`, `run` in `counting_driver`, `cache` in `commands/cache.rs`,
//! `cargo fit-check` in `cargo/report.rs`.

use estimator::{
    Breakdown, Bytes, Choice, Estimate, FirstRun, Gpu, LargestBatch, LayerMemory, Limit, Overhead,
    Parameters, Phase, PhaseMemory,
};
use model_zoo::{Input, Model, OptimizerKind, Rank, Variant};
use schemars::JsonSchema;
use serde::Serialize;
use torch_memory::{definitions, kept};

use crate::advice::Advice;
use crate::comparison::{Errors, Figures};
use crate::job_info::{GpuName, JobInfo};
use crate::measure::{DeviceKind, DeviceReport, Mode, Outcome};
use crate::resolve::{Card, ResolvedRequest};
use crate::several_gpus::GpuGroup;
use crate::step::LENGTH_STEP;
use crate::torch_program::kept::{TorchBatch, TorchFigure};

/// The figures at the peak of memory.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Peak {
    /// Bytes in use at the peak of a run with tuned kernels, or of the first run if only that was asked about.
    pub live_bytes: Bytes,
    /// Bytes that the pools reserve in that run on a card with unlimited memory. It can be more than `required_bytes`, since
    /// the pools give pages back before they fail, and less, since `required_bytes` is enough for every run of the step that
    /// has to complete, and others can need more than this one.
    pub reserved_bytes: Bytes,
    /// The least memory with which every run of the step completes that has to: the first of a process, in which burn tunes
    /// its kernels, and those after it. With a card: no more than it leaves to the job if the step fits, and more if it does
    /// not, unless a single allocation is too large.
    pub required_bytes: Bytes,
    /// The most that `nvidia-smi` shows of the process: what the pools reserve in any of these runs, up to what the card has
    /// for them, and what the process takes besides the pools.
    pub device_bytes: Bytes,
    /// The phase of the peak.
    pub phase: Phase,
    /// The optimizer step of the peak, counted from 1; 0 if it is before the first.
    pub step: usize,
    /// The layer of the peak.
    pub layer: Option<String>,
    /// The kernel of the peak.
    pub kernel: Option<String>,
}

impl Peak {
    /// The figures of `estimate` on the named `card`, or on one with unlimited memory.
    fn new(estimate: &Estimate, card: Option<&Card>, overhead: Bytes) -> Self {
        let peak = estimate.peak.clone();
        let first = estimate.first_run.map(|first| first.reserved_bytes);
        let reserved = peak.reserved_bytes.max(first.unwrap_or_default());
        let available = card.map_or(Bytes(u64::MAX), Card::available);
        Self {
            live_bytes: peak.live_bytes,
            reserved_bytes: peak.reserved_bytes,
            required_bytes: peak.required_bytes,
            device_bytes: reserved.min(available) + overhead,
            phase: peak.phase,
            step: peak.step,
            layer: peak.layer,
            kernel: peak.kernel,
        }
    }
}

/// Whether a step fits on a card: whether it completes there in the first run of a process, in which burn tunes its kernels, and
/// in the runs after it; with the device's thread level with the program and behind it; and where burn overwrites no operand that
/// this thread may be allocating.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Verdict {
    /// The card.
    pub gpu: GpuName,
    /// Whether the step fits.
    pub fits: bool,
    /// The least memory with which all of these runs complete, with the kernels of this card: no more than the card leaves to the
    /// job if the step fits, and more if it does not, unless a single allocation is too large.
    pub required_bytes: Bytes,
    /// The memory that the card leaves to the job minus `required_bytes`: not negative if the step fits, and negative if it does
    /// not, unless a single allocation is too large.
    pub headroom_bytes: i64,
    /// Why the step does not fit: the allocation that the card refused, and in which run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Verdict {
    /// The verdict of the estimator on `card`.
    pub fn new(card: &Card, verdict: &estimator::Verdict) -> Self {
        Self {
            gpu: GpuName::new(card),
            fits: verdict.fits(),
            required_bytes: verdict.required_bytes,
            headroom_bytes: verdict.headroom_bytes,
            reason: verdict.refused.as_ref().map(ToString::to_string),
        }
    }

    /// The memory that the card leaves to the job.
    pub fn available(&self) -> Bytes {
        self.gpu.available()
    }
}

/// The answer of `estimate`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct EstimateReport {
    /// The job.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// The parameters of the modules.
    pub parameters: Parameters,
    /// The highest peak of all steps; with several cards, that with the kernels of the first.
    pub peak: Peak,
    /// Bytes in use at the peak, by category.
    pub at_peak: Breakdown,
    /// What each GPU of several takes: GPU 0, whose figures are also those of `peak` and `at_peak`, and the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuShare>,
    /// The cards on which the step fits with what NCCL takes at least, and not with what it takes at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nccl_decides: Vec<String>,
    /// Phases of the step with the peak; those of the last step if the peak is before the first.
    pub phases: Vec<PhaseMemory>,
    /// Layers.
    pub layers: Vec<LayerMemory>,
    /// Whether `layers` are those of the step without fusion, although burn fuses.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub layers_unfused: bool,
    /// The verdict on the first card.
    #[serde(flatten)]
    pub verdict: Option<Verdict>,
    /// The verdicts on all cards, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<Verdict>,
    /// The memory that a process takes besides the pools.
    pub overhead_bytes: Bytes,
    /// The first run of a process by itself, in which burn tunes the kernels, on a card with unlimited memory: with less, burn
    /// leaves kernels out that it has no room to try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_run: Option<FirstRun>,
    /// The range of the peak over burn's kernels, if the user asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// The kernels that burn's tuner chose for the largest operations, if the user asked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<Vec<Choice>>,
    /// What PyTorch takes for the same job, if that was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<TorchFigure>,
    /// Changes that would make the job fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Whether the page says how to ask for advice.
    #[serde(skip)]
    pub offers_advice: bool,
}

/// What a GPU of several takes.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GpuShare {
    /// Its index, or those of the GPUs that take the same: `0`, `1-3`.
    pub gpus: String,
    /// How many they are.
    pub count: usize,
    /// The communicators of NCCL on each.
    pub nccl_communicators: u64,
    /// The highest peak of all steps on the first named card.
    #[serde(flatten)]
    pub peak: Peak,
    /// Bytes in use at the peak, by category.
    pub at_peak: Breakdown,
}

/// The most bytes in use, with the kernels that need the least memory and with those that need the most, of
/// those that burn's tuner chooses between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Range {
    /// With the kernels that need the least memory.
    pub least_bytes: Bytes,
    /// With the kernels that need the most memory.
    pub most_bytes: Bytes,
}

impl EstimateReport {
    /// The report on `request`, from its estimate and its verdict on each card.
    pub fn new<M: Model>(
        request: &ResolvedRequest<M>,
        estimate: Estimate,
        verdicts: Vec<Verdict>,
    ) -> Self {
        let overhead = overhead(request);
        let mut peak = Peak::new(&estimate, request.cards.first(), overhead);
        if let Some(first) = verdicts.first() {
            peak.required_bytes = first.required_bytes;
        }
        let capability = request.cards.first();
        let capability = capability.map(|card| card.device.card.compute_capability);
        Self {
            asked: JobInfo::new(request, Some(request.job.batch)),
            parameters: estimate.parameters,
            peak,
            at_peak: estimate.at_peak,
            gpus: Vec::new(),
            nccl_decides: Vec::new(),
            phases: estimate.phases,
            layers: estimate.layers,
            layers_unfused: false,
            verdict: verdicts.first().cloned(),
            cards: match verdicts.len() {
                0 | 1 => Vec::new(),
                _ => verdicts,
            },
            overhead_bytes: overhead,
            first_run: estimate.first_run,
            range: None,
            kernels: None,
            pytorch: TorchFigure::of(
                request.origin.published.as_deref(),
                &request.job,
                capability,
            ),
            advice: None,
            offers_advice: false,
        }
    }

    /// Adds what the GPUs besides GPU 0 take of the first named `card`, which is several GPUs.
    pub fn add_other_gpus(&mut self, card: &Card, group: GpuGroup, others: &Estimate) {
        let share = |rank, count, peak, at_peak| GpuShare {
            gpus: match (rank, count) {
                (Rank::First, _) => "0".into(),
                (Rank::Other, 1) => "1".into(),
                (Rank::Other, count) => format!("1-{count}"),
            },
            count,
            nccl_communicators: group.communicators(rank),
            peak,
            at_peak,
        };
        let nccl = |rank| group.nccl_on(rank).most_bytes;
        let fewer = nccl(Rank::First) - nccl(Rank::Other);
        let overhead = card.device.card.overhead.saturating_sub(fewer);
        let of_others = Peak::new(others, Some(card), overhead);
        self.gpus = vec![
            share(Rank::First, 1, self.peak.clone(), self.at_peak),
            share(Rank::Other, group.count - 1, of_others, others.at_peak),
        ];
    }

    /// The verdicts, card by card.
    pub fn verdicts(&self) -> &[Verdict] {
        match self.cards.is_empty() {
            true => self.verdict.as_slice(),
            false => &self.cards,
        }
    }

    /// Whether the step fits on every named card.
    pub fn fits(&self) -> bool {
        self.verdicts().iter().all(|verdict| verdict.fits)
    }
}

/// The memory that a process takes besides the pools on the first named card; without cards, on an unlimited
/// card.
fn overhead<M: Model>(request: &ResolvedRequest<M>) -> Bytes {
    match request.cards.first() {
        Some(card) => card.device.card.overhead,
        None => Overhead::of(request.unlimited().card.multiprocessors).cautious_bytes,
    }
}

/// The first batch that does not fit.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FirstRejected {
    /// Samples in the batch.
    pub batch: u64,
    /// Its peak on a card with unlimited memory. `required_bytes` is of the runs that were made of it.
    #[serde(flatten)]
    pub peak: Peak,
    /// The allocation that the card refused, and in which run.
    pub refused: String,
}

/// The largest batch on one card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CardBatch {
    /// The card.
    pub gpu: GpuName,
    /// Samples in the largest batch; 0 if not even one fits.
    pub max_batch: u64,
    /// Tokens in the largest batch, if samples are made of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The peak of the largest batch; with the meaning that it has in the answer of `estimate`.
    pub at_max: Option<Peak>,
    /// The first batch that does not fit.
    pub next: FirstRejected,
    /// What prevents a larger batch.
    pub limit: Limit,
    /// The same job in PyTorch, if it was recorded beforehand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<TorchBatch>,
}

impl CardBatch {
    /// The answer of `request` for `card`, from the largest batch that was found.
    pub fn new<M: Model>(request: &ResolvedRequest<M>, card: &Card, found: &LargestBatch) -> Self {
        let tokens = request.job.input.tokens();
        let peak = |estimate| Peak::new(estimate, Some(card), card.device.card.overhead);
        Self {
            gpu: GpuName::new(card),
            max_batch: found.batch,
            max_tokens: tokens.map(|tokens| found.batch * tokens as u64),
            at_max: found.at_max.as_ref().map(peak),
            next: FirstRejected {
                batch: found.next.batch,
                peak: peak(&found.next.estimate),
                refused: found.next.refused.to_string(),
            },
            limit: found.limit,
            pytorch: TorchBatch::of(request.origin.published.as_deref(), &request.job, card),
        }
    }
}

/// The answer of `max-batch`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct MaxBatchReport {
    /// The job.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// The largest batch on each card.
    pub cards: Vec<CardBatch>,
    /// Changes that would let more samples fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Whether the page says how to ask for advice.
    #[serde(skip)]
    pub offers_advice: bool,
}

/// The first length that does not fit.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RejectedLength {
    /// Tokens in a sequence.
    pub seq: u64,
    /// The allocation that the card refused, and in which run.
    pub refused: String,
}

/// The longest sequence on one card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CardLength {
    /// The card.
    pub gpu: GpuName,
    /// Tokens in the longest sequence, a multiple of 64; 0 if not even 64 fit.
    pub max_seq: u64,
    /// The peak with the longest sequence; absent if every length fits that the model takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_max: Option<Peak>,
    /// The first length that does not fit; absent if every length fits that the model takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<RejectedLength>,
}

impl CardLength {
    /// The answer for `card`, from what was found in steps of `LENGTH_STEP` tokens.
    pub fn new(card: &Card, found: &LargestBatch) -> Self {
        let peak = |estimate| Peak::new(estimate, Some(card), card.device.card.overhead);
        Self {
            gpu: GpuName::new(card),
            max_seq: found.batch * LENGTH_STEP,
            at_max: found.at_max.as_ref().map(peak),
            next: Some(RejectedLength {
                seq: found.next.batch * LENGTH_STEP,
                refused: found.next.refused.to_string(),
            }),
        }
    }

    /// The answer for `card`, on which every length fits that the model takes, up to so many `tokens`.
    pub fn all(card: &Card, tokens: u64) -> Self {
        Self {
            gpu: GpuName::new(card),
            max_seq: tokens,
            at_max: None,
            next: None,
        }
    }
}

/// The answer of `max-seq`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct MaxSeqReport {
    /// The job.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// The longest sequence on each card.
    pub cards: Vec<CardLength>,
}

impl MaxSeqReport {
    /// The answer about the job `asked`, whose length is the answer.
    pub fn new(mut asked: JobInfo, cards: Vec<CardLength>) -> Self {
        asked.input.seq = None;
        asked.input.src_seq = None;
        asked.tokens = None;
        Self { asked, cards }
    }
}

/// The answer of `verify`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct VerifyReport {
    /// The job.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// The device of the measurement.
    pub device: DeviceReport,
    /// How the step was run.
    pub mode: Mode,
    /// How the run ended.
    pub ending: Outcome,
    /// The figures on a simulated card like the device.
    pub estimated: Figures,
    /// In which run these are the figures, if not in the usual one: of the runs that a step has to complete to fit, the one
    /// that is nearest to the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_run: Option<String>,
    /// The figures on the device.
    pub measured: Figures,
    /// How often burn's tuner was asked in the measured step for a kernel that it did not know, although the step
    /// was tuned before; none if never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuner_requests: Option<u64>,
    /// The errors of the estimate; none if the step did not come to the end of a phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Errors>,
    /// How far the estimate may be above the measurement, as a fraction of it.
    pub tolerance: f64,
    /// Whether the step ran, and the estimate is nowhere too low and nowhere too high by more
    /// than `tolerance`, but for the memory of the whole device, of which it is an upper bound.
    pub agrees: bool,
}

/// A batch that was trained on a device with a memory budget.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct BatchRun {
    /// Samples in it.
    pub batch: u64,
    /// The least memory that the batch needs, as estimated.
    pub required_bytes: Bytes,
    /// Whether it is estimated to fit.
    pub fits: bool,
    /// Whether it may train all the same: the simulated card completes some of the runs that a batch has to complete to fit.
    /// That is looked at if the batch trained.
    pub may_fit: bool,
    /// How often burn's tuner was asked for a kernel that it did not know, although the step was tuned before; none
    /// if never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuner_requests: Option<u64>,
    /// How it ended on the device.
    pub ending: Outcome,
}

impl BatchRun {
    /// Whether the batch ended as estimated on a device of this kind. On a software device any failure counts as being out of memory, since Mesa's driver crashes and does not
    /// report it. On others only that error counts.
    pub fn agrees(&self, device: DeviceKind) -> bool {
        let trained = self.ending == Outcome::Trained;
        let ran_out = match device {
            DeviceKind::Software => !trained && !self.ending.is_cut_short(),
            DeviceKind::Gpu | DeviceKind::Counting => {
                matches!(self.ending, Outcome::OutOfMemory(_))
            }
        };
        match self.fits {
            true => trained,
            false => self.may_fit && trained || ran_out,
        }
    }
}

/// The answer of `verify --max-batch`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct LimitReport {
    /// The job.
    #[serde(flatten)]
    pub asked: JobInfo,
    /// The device of the measurement.
    pub device: DeviceReport,
    /// The memory budget of the pools.
    pub budget_bytes: Bytes,
    /// The memory that the process took besides the pools when it trained the largest batch.
    pub overhead_bytes: Bytes,
    /// The largest batch that is estimated to fit, and the next one.
    pub runs: [BatchRun; 2],
    /// Whether both ended as estimated.
    pub agrees: bool,
}

/// The answer of `models`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ModelReport {
    /// Its name.
    pub name: &'static str,
    /// Its architecture.
    pub family: &'static str,
    /// The number of published trainable parameters.
    pub parameters: u64,
    /// The number of trainable tensors.
    pub tensors: u64,
    /// The number of elements in buffers: running statistics, and noise that is drawn once.
    pub buffers: u64,
    /// Sizes of a sample in the published recipe.
    pub input: Input,
    /// Batch of the published recipe.
    pub batch: usize,
    /// Optimizer of the published recipe.
    pub optimizer: OptimizerKind,
    /// The published recipe.
    pub recipe: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// The reference implementation.
    pub reference: &'static str,
    /// The differences from the reference implementation.
    pub differences: &'static [&'static str],
    /// Whether `--framework pytorch` answers for it.
    pub pytorch: InPyTorch,
}

/// What is known of a network in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InPyTorch {
    /// Its recipe was recorded: the answer needs no Python. Other options need one.
    Recorded,
    /// A public package builds it in a Python of the user's.
    WithPython,
    /// No public package builds it.
    No,
}

impl InPyTorch {
    fn of(name: &str) -> Self {
        if kept::has(name) {
            Self::Recorded
        } else if definitions::find(name).is_some() {
            Self::WithPython
        } else {
            Self::No
        }
    }
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
            pytorch: InPyTorch::of(variant.name),
        }
    }
}

/// The answer of `gpus`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GpuReport {
    /// The card.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// The memory that a process takes on it besides the pools.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch that fits only with some queue lag may train or not: on a real device the lag changes all the time.
    #[test]
    fn a_batch_ends_as_estimated() {
        let ending = [
            Outcome::Trained,
            Outcome::OutOfMemory(String::new()),
            Outcome::Failed(String::new()),
            Outcome::TimedOut(1),
        ];
        let agreements = |device, fits, may_fit| {
            ending.clone().map(|ending| {
                let run = BatchRun {
                    batch: 1,
                    required_bytes: Bytes(1),
                    fits,
                    may_fit,
                    tuner_requests: None,
                    ending,
                };
                run.agrees(device)
            })
        };
        for device in [DeviceKind::Gpu, DeviceKind::Counting, DeviceKind::Software] {
            // Only a software device may fail in any way when it is out of memory.
            let any = device == DeviceKind::Software;
            let ends = agreements(device, true, true);
            assert_eq!(ends, [true, false, false, false]);
            let ends = agreements(device, false, true);
            assert_eq!(ends, [true, true, any, false]);
            let ends = agreements(device, false, false);
            assert_eq!(ends, [false, true, any, false]);
        }
    }
}
