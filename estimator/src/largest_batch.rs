//! The largest batch that fits on a device.

mod agreement;
mod confirmed;
mod devices;
mod predictor;
mod proposer;
mod remembering;
mod scaling;
mod search;

use burn::tensor::FloatDType;
use serde::{Deserialize, Serialize};

use crate::card::DeviceSpec;
use crate::estimate::Estimate;
use crate::job::{Program, TrainingJob};
use crate::parallel::join;
use crate::races::{fits_without_overwriting, may_run_out};
use crate::record::Refusal;
use crate::run::Run;
use crate::simulated::Simulated;
use crate::{Error, OutOfMemory};
pub use confirmed::ConfirmedCalls;
pub use devices::{BatchObserver, CellResult, Method, largest_fits};
pub use proposer::Proposer;
use remembering::Remembering;
pub use scaling::Scaling;
use search::{MAX_BATCH, gallop};

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

/// The largest batch that fits on a card.
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
    /// The batch before `batch`, if it does not fit although `batch` does: with another batch the pools have pages of
    /// another size. It was only run if a replay predicted that, so `None` does not prove that it fits.
    pub smaller_refused: Option<u64>,
    /// Whether `batch` also fits where burn overwrites no operand that the device's thread may be allocating
    /// ([`InPlace::Never`](crate::InPlace::Never)). If not, a long training can run out of memory by chance;
    /// [`largest_in_every_run`] finds a batch that does not. `None` if not even one sample fits, or if that run says
    /// nothing, or if the batch was found by [replay](Method::Replay).
    pub fits_without_overwriting: Option<bool>,
    /// How the batch was found.
    pub method: Method,
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
/// how much memory it takes. The batch fits without queue lag and with each of
/// [`QueueLag::REQUIRED`](crate::QueueLag::REQUIRED): on a full card the lag can decide.
///
/// # Errors
///
/// The step itself failed, or every batch fits ([`Error::NoLimit`]).
pub fn largest_batch<P: Program>(
    program: &P,
    proposer: &Proposer<P>,
    spec: &DeviceSpec,
) -> Result<LargestBatch, Error> {
    Ok(largest_batch_with_run(program, proposer, spec)?.0)
}

/// Like [`largest_batch`]. Also returns the calls of the step, with which the largest batch on other devices follows without
/// a run; `None` if the step did not make the calls that were predicted from few samples.
///
/// # Errors
///
/// As for [`largest_batch`].
pub fn largest_batch_with_calls<P: Program>(
    program: &P,
    proposer: &Proposer<P>,
    spec: &DeviceSpec,
) -> Result<(LargestBatch, Option<ConfirmedCalls>), Error> {
    let (found, run) = largest_batch_with_run(program, proposer, spec)?;
    let calls = run.and_then(|run| ConfirmedCalls::by(run, found.batch, proposer));
    Ok((found, calls))
}

/// Like [`largest_batch`]. Also returns the run of the largest batch; `None` if not even one sample fits.
fn largest_batch_with_run<P: Program>(
    program: &P,
    proposer: &Proposer<P>,
    spec: &DeviceSpec,
) -> Result<(LargestBatch, Option<Simulated>), Error> {
    let program = Remembering::new(program).with_continued();
    let fit = fit(&program, proposer, spec)?;
    let next = program.on_unlimited(fit.next, spec)?;
    // An estimate is a matter of replays, so the step can run meanwhile.
    let estimates = || {
        let at_max = fit.at_max.as_ref().map(Simulated::estimate).transpose()?;
        Ok::<_, Error>((at_max, next.estimate()?))
    };
    let more_runs = || {
        let smaller_refused = smaller_refused(&program, proposer, fit.batch, spec)?;
        let fits_without_overwriting = match fit.batch {
            0 => None,
            batch => fits_without_overwriting(program.program, batch, spec),
        };
        Ok::<_, Error>((smaller_refused, fits_without_overwriting))
    };
    let (estimates, more_runs) = join(estimates, more_runs);
    let (at_max, estimate) = estimates?;
    let (smaller_refused, fits_without_overwriting) = more_runs?;
    let found = LargestBatch {
        batch: fit.batch,
        limit: fit.limit(),
        at_max,
        next: FirstRejected {
            batch: fit.next,
            estimate,
            refused: fit.refused,
        },
        smaller_refused,
        fits_without_overwriting,
        method: Method::Simulation,
    };
    Ok((found, fit.at_max))
}

/// The batch before `batch`, if a device like `spec` refuses it, as [`LargestBatch::smaller_refused`].
fn smaller_refused<P: Program>(
    program: &Remembering<P>,
    proposer: &Proposer<P>,
    batch: u64,
    spec: &DeviceSpec,
) -> Result<Option<u64>, Error> {
    let smaller = (1..batch).rev().find(|batch| program.accepts(*batch));
    match smaller {
        Some(smaller) if proposer.predicts_refusal(smaller, spec) => {
            let (_, refused) = program.attempt(smaller, spec)?;
            Ok(refused.map(|_| smaller))
        }
        _ => Ok(None),
    }
}

/// The largest of up to `batch` samples, which fit on a device like `spec`, that fit there in every run that
/// [`may_run_out`](crate::may_run_out) tries. In a training of many steps each of these runs can happen now and then.
///
/// This is where one search ends: the next batch that the program accepts does not fit in every run, or is more than
/// `batch`. A larger one may fit again.
///
/// # Errors
///
/// The step itself failed.
pub fn largest_in_every_run(
    program: &impl Program,
    batch: u64,
    spec: &DeviceSpec,
) -> Result<u64, Error> {
    let accepts = |batch| program.accepts(batch);
    // What `may_run_out` tries contains the queue lags that are required.
    let fits = |batch| {
        let run = program.simulate(batch, spec.clone())?;
        Ok::<_, Error>(run.outcome().is_ok() && !may_run_out(program, batch, spec)?)
    };
    let (most, _) = gallop(batch, 1, batch + 1, accepts, fits)?;
    Ok(most)
}

/// The largest batch that fits on a card, and the next batch, which does not. Serialized without its run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LargestFit {
    /// Number of samples in the batch; 0 if not even one fits.
    pub batch: u64,
    /// The run of the step with it on the card; `None` if not even one sample fits, or if the step was not
    /// run.
    #[serde(skip)]
    pub at_max: Option<Simulated>,
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

/// Finds the largest batch of `program` that fits on a device like `spec`, whose memory must be limited,
/// without queue lag and with each of [`QueueLag::REQUIRED`](crate::QueueLag::REQUIRED).
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
    fit(&Remembering::new(program), proposer, spec)
}

/// [`largest_fit`] of `program`; `proposer` is one of the remembered program.
fn fit<P: Program>(
    program: &Remembering<P>,
    proposer: &Proposer<P>,
    spec: &DeviceSpec,
) -> Result<LargestFit, Error> {
    fit_near(program, proposer, proposer.guess(spec), spec)
}

/// Like [`fit`]; the search begins near `guess`.
fn fit_near<P: Program>(
    program: &Remembering<P>,
    proposer: &Proposer<P>,
    guess: u64,
    spec: &DeviceSpec,
) -> Result<LargestFit, Error> {
    let proposed = proposer.proposed(program, guess, spec)?;
    let accepts = |batch| program.accepts(batch);
    // Where it does not fit, replays find a smaller one sooner than runs.
    let is_refused = || {
        let attempt = Error::if_kernels(program.attempt(proposed, spec))?;
        Ok::<_, Error>(attempt.is_some_and(|(_, refused)| refused.is_some()))
    };
    let proposed = match accepts(proposed) && is_refused()? {
        true => proposer.with_each_lag(proposed, spec),
        false => proposed,
    };
    let mut at_max = None;
    let mut refused = None;
    let fits = |batch: u64| {
        let (run, refusal) = match program.attempt(batch, spec) {
            Err(error @ Error::NoKernel(_)) => {
                if !matches!(refused, Some(Err(_))) {
                    runs_at_all(program, spec)?;
                }
                refused = Some(Err(error));
                return Ok(false);
            }
            attempt => attempt?,
        };
        let fits = refusal.is_none();
        match refusal {
            None => at_max = Some(run),
            Some(refusal) => refused = Some(Ok(refusal)),
        }
        Ok::<_, Error>(fits)
    };
    // The proposal is nearly always the answer, so the search begins there and goes outwards.
    let (most, least) = gallop(proposed, 1, MAX_BATCH, accepts, fits)?;
    Ok(LargestFit {
        batch: most,
        at_max,
        next: least,
        refused: refused.unwrap_or(Err(Error::NoLimit { batch: most }))?,
    })
}

/// Shows that burn has a kernel for each call of the step with the fewest samples on a device like `spec`.
fn runs_at_all(program: &impl Program, spec: &DeviceSpec) -> Result<(), Error> {
    let fewest = (1..MAX_BATCH).find(|batch| program.accepts(*batch));
    if let Some(fewest) = fewest {
        program.sketch(fewest, spec.without_limit())?;
    }
    Ok(())
}
