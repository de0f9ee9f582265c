//! The largest batch that fits on a device.

mod agreement;
mod devices;
mod gallop;
mod predictor;
mod proposer;
mod remembering;
mod scaling;
mod search;
mod validation;

use burn::tensor::FloatDType;
use serde::{Deserialize, Serialize};

use crate::card::DeviceSpec;
use crate::estimate::Estimate;
use crate::job::{Program, TrainingJob};
use crate::required::least_memory;
use crate::run::Run;
use crate::run_kind::Required;
use crate::simulated::Simulated;
use crate::step_runs::StepRuns;
use crate::{Error, OutOfMemory};
pub use devices::{BatchObserver, CellResult, Method, largest_fits};
pub use proposer::Proposer;
use recording::{Bytes, Refusal};
use remembering::Remembering;
pub use scaling::Scaling;
use search::Search;

/// What prevents a larger batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Limit {
    /// The card does not have enough memory.
    #[serde(rename = "device memory")]
    DeviceMemory,
    /// The runtime allows no single allocation as large as one that the step needs.
    #[serde(rename = "single allocation")]
    SingleAllocation,
}

/// The first batch that does not fit.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstRejected {
    /// Number of samples in the batch.
    pub batch: u64,
    /// The estimate for it on a card with unlimited memory.
    pub estimate: Estimate,
    /// The allocation that this card refused.
    pub refused: OutOfMemory,
}

/// The largest batch that fits on a card: see [`Verdict`](crate::Verdict).
#[derive(Clone, Debug, PartialEq)]
pub struct LargestBatch {
    /// Number of samples in the batch; 0 if not even one fits.
    pub batch: u64,
    /// The estimate for it; `None` if not even one sample fits.
    pub at_max: Option<Estimate>,
    /// The first batch that does not fit.
    pub next: FirstRejected,
    /// What prevents a larger batch.
    pub limit: Limit,
}

/// Finds the largest batch of `step` that fits on `device`, whose memory must be limited, and how much memory
/// it takes. `step` trains with the number of samples that it is given, and creates floats of the type
/// `precision`.
///
/// # Errors
///
/// As for [`estimate`](fn@crate::estimate), or every batch fits ([`Error::NoLimit`]).
///
/// # Examples
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{FloatDType, Tensor};
/// use estimator::{Gpu, Phase, Runtime, max_batch};
///
/// let device = Gpu::find("24GB").unwrap().spec(Runtime::Cuda);
/// let found = max_batch(&device, FloatDType::F32, |samples, run| {
///     let device = run.device();
///     let layer = LinearConfig::new(1 << 16, 1 << 10).init(&device);
///     run.module("", &layer);
///     let input = Tensor::<2>::zeros([samples as usize, 1 << 16], &device);
///     let output = layer.forward(input);
///     run.end(Phase::Forward);
///     drop(output);
/// })?;
/// // A sample takes at least 260 KiB of the 24 GB.
/// assert!(found.batch > 10_000 && found.batch < 24_000_000_000 / (260 << 10));
/// assert_eq!(found.next.batch, found.batch + 1);
/// # Ok::<(), estimator::Error>(())
/// ```
pub fn max_batch(
    device: &DeviceSpec,
    precision: FloatDType,
    step: impl Fn(u64, &mut Run) + Sync,
) -> Result<LargestBatch, Error> {
    let job = TrainingJob::new(precision, step).without_first_runs();
    let proposer = Proposer::learn(&job, device)?;
    largest_batch(&job, &proposer, device)
}

/// Finds the largest batch of `program` that fits on a device like `spec`, whose memory must be limited, and
/// how much memory it takes.
///
/// # Errors
///
/// The step itself failed, or every batch fits ([`Error::NoLimit`]).
pub fn largest_batch<P: Program>(
    program: &P,
    proposer: &Proposer<P>,
    spec: &DeviceSpec,
) -> Result<LargestBatch, Error> {
    let program = Remembering::new(program);
    let search = Search::new(&program, proposer, spec);
    let mut fit = search.find()?;
    let shown = Required::runs(program.only())[0].on(spec);
    let at_max = match std::mem::take(&mut fit.runs) {
        runs if runs.is_empty() => None,
        runs => {
            let run = program.on_unlimited(fit.batch, &shown)?;
            Some(StepRuns::with(&program, fit.batch, spec, run).estimate_with(&runs))
        }
    };
    let next = program.on_unlimited(fit.next, &shown)?;
    let required = least_that_is_refused(&next, &fit, spec);
    Ok(LargestBatch {
        batch: fit.batch,
        limit: fit.limit(),
        at_max,
        next: FirstRejected {
            batch: fit.next,
            estimate: next.estimate_that_requires(required),
            refused: fit.refused,
        },
    })
}

/// The least memory with which the run `next` completes, of a batch that does not fit on a device like `spec`: more than that has,
/// unless a single allocation is too large.
fn least_that_is_refused(next: &Simulated, fit: &LargestFit, spec: &DeviceSpec) -> Bytes {
    let required = next.required();
    match (fit.refused.refusal, spec.available()) {
        (Refusal::Full, Some(available)) if required <= available => {
            least_memory(&next.spec, &[&next.recording], available, next.reserved)
        }
        _ => required,
    }
}

/// The largest batch that fits on a card, and the next batch, which does not. Serialized without its runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LargestFit {
    /// Number of samples in the batch; 0 if not even one fits.
    pub batch: u64,
    /// The runs of the step with it on the card, as far as it was run.
    #[serde(skip)]
    pub(crate) runs: Vec<(Required, Simulated)>,
    /// The first batch that does not fit: the next one that the program accepts.
    pub next: u64,
    /// The allocation of that batch that the card refused.
    pub refused: OutOfMemory,
}

impl LargestFit {
    /// What prevents a larger batch.
    pub fn limit(&self) -> Limit {
        match self.refused.refusal {
            Refusal::Full => Limit::DeviceMemory,
            Refusal::TooLarge { .. } => Limit::SingleAllocation,
        }
    }
}

/// Finds the largest batch of `program` that fits on a device like `spec`, whose memory must be limited.
///
/// `proposer` proposes an answer quickly. This function then runs the step on such a device with that batch
/// and with the next one, to show that the first fits and the second does not.
///
/// # Errors
///
/// The step itself failed, or every batch fits ([`Error::NoLimit`]).
pub fn largest_fit<P: Program>(
    program: &P,
    proposer: &Proposer<P>,
    spec: &DeviceSpec,
) -> Result<LargestFit, Error> {
    Search::new(&Remembering::new(program), proposer, spec).find()
}
