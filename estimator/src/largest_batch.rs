//! The largest batch that fits on a device.

mod devices;
mod predictor;
mod scaling;
mod search;

use std::cell::Cell;

use burn::tensor::FloatDType;
use serde::{Deserialize, Serialize};

use crate::card::{DeviceSpec, QueueLag};
use crate::estimate::Estimate;
use crate::job::{Program, TrainingJob};
use crate::record::Refusal;
use crate::run::{Aborted, Run, Simulated};
use crate::{Error, OutOfMemory};
pub use devices::{BatchObserver, Found, Method, largest_fits};
pub use predictor::{Prediction, Predictor};
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
}

/// Finds the largest batch of `step` that fits on `device`, whose memory must be limited, and how much memory
/// it takes. `step` trains with the number of samples that it is given, and creates floats of the type
/// `precision`.
///
/// # Errors
///
/// The step itself failed, or every batch fits ([`Error::NoLimit`]).
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
///     run.end(Phase::Forward)?;
///     drop(output);
///     Ok(())
/// })?;
/// // A sample takes at least 260 KiB of the 24 GB.
/// assert!(found.batch > 10_000 && found.batch < 24_000_000_000 / (260 << 10));
/// assert_eq!(found.next.batch, found.batch + 1);
/// # Ok::<(), estimator::Error>(())
/// ```
pub fn max_batch(
    device: &DeviceSpec,
    precision: FloatDType,
    step: impl Fn(u64, &mut Run) -> Result<(), Aborted> + Sync,
) -> Result<LargestBatch, Error> {
    let job = TrainingJob::new(precision, step).without_first_runs();
    let predictor = Predictor::learn(&job, device)?;
    largest_batch(&job, predictor.as_ref(), device)
}

/// Finds the largest batch of `program` that fits on a device like `spec`, whose memory must be limited, and
/// how much memory it takes. The batch fits both without queue lag and with a full queue ([`QueueLag`]): on a
/// full card the lag can decide.
///
/// # Errors
///
/// The step itself failed, or every batch fits ([`Error::NoLimit`]).
pub fn largest_batch<P: Program>(
    program: &P,
    predictor: Option<&Predictor<P>>,
    spec: &DeviceSpec,
) -> Result<LargestBatch, Error> {
    let fit = largest_fit(program, predictor, spec)?;
    let next = program.simulate(fit.next, spec.without_limit().without_binding_limit())?;
    let at_max = fit.at_max.as_ref().map(Simulated::estimate).transpose()?;
    Ok(LargestBatch {
        batch: fit.batch,
        limit: fit.limit(),
        at_max,
        next: FirstRejected {
            batch: fit.next,
            estimate: next.estimate()?,
            refused: fit.refused,
        },
    })
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
/// without queue lag and with a full queue ([`QueueLag`]).
///
/// `predictor` proposes an answer quickly. This function then runs the step on such a device with that batch
/// and with the next one, to show that the first fits and the second does not.
///
/// # Errors
///
/// The step itself failed, or every batch fits ([`Error::NoLimit`]).
pub fn largest_fit<P: Program>(
    program: &P,
    predictor: Option<&Predictor<P>>,
    spec: &DeviceSpec,
) -> Result<LargestFit, Error> {
    let any_lag = AnyQueueLag::new(program);
    let proposed = predictor.map(|predictor| any_lag.proposed(predictor, spec));
    search_near(&any_lag, proposed.transpose()?.unwrap_or_default(), spec)
}

/// Like [`largest_fit`], with `proposed` in place of a predictor.
fn largest_fit_near(
    program: &impl Program,
    proposed: u64,
    spec: &DeviceSpec,
) -> Result<LargestFit, Error> {
    search_near(&AnyQueueLag::new(program), proposed, spec)
}

/// Searches from `proposed` for the largest batch of `program` on a device like `spec`.
fn search_near(
    program: &impl Program,
    proposed: u64,
    spec: &DeviceSpec,
) -> Result<LargestFit, Error> {
    let mut at_max = None;
    let mut at_least = None;
    let fits = |batch: u64| {
        let simulated = program.simulate(batch, spec.clone())?;
        let fits = simulated.recording.failure.is_none();
        *(if fits { &mut at_max } else { &mut at_least }) = Some(simulated);
        Ok::<_, Error>(fits)
    };
    // The proposal is nearly always the answer, so the search begins there and goes outwards.
    let accepts = |batch| program.accepts(batch);
    let (most, least) = gallop(proposed, 1, MAX_BATCH, accepts, fits)?;
    let refused = at_least.and_then(|simulated| simulated.outcome().err());
    Ok(LargestFit {
        batch: most,
        at_max,
        next: least,
        refused: refused.ok_or(Error::NoLimit { batch: most })?,
    })
}

/// A program that runs both without queue lag and with a full queue: if the step fits without lag and not
/// with the full queue, the device counts as refusing it.
struct AnyQueueLag<'a, P> {
    program: &'a P,
    /// A batch that is known to fit with a full queue.
    fits_full_queue: Cell<Option<u64>>,
}

impl<'a, P: Program> AnyQueueLag<'a, P> {
    fn new(program: &'a P) -> Self {
        Self {
            program,
            fits_full_queue: Cell::new(None),
        }
    }

    /// The batch that `predictor` proposes for a device like `spec`. If that batch does not fit with a full
    /// queue, a predictor of runs with a full queue may lower it.
    fn proposed(&self, predictor: &Predictor<P>, spec: &DeviceSpec) -> Result<u64, Error> {
        let proposed = predictor.predicted(spec, None).batch;
        let full_queue = with_full_queue(spec);
        if proposed == 0 || self.run_with_full_queue(proposed, &full_queue)?.is_none() {
            return Ok(proposed);
        }
        let lower = predictor.with_full_queue();
        let lower = lower.map(|predictor| predictor.predicted(spec, None).batch);
        Ok(proposed.min(lower.unwrap_or(proposed)))
    }

    /// Runs the step on a device like `full_queue`; returns the run only if the step does not fit there.
    fn run_with_full_queue(
        &self,
        batch: u64,
        full_queue: &DeviceSpec,
    ) -> Result<Option<Simulated>, Error> {
        if self.fits_full_queue.get() == Some(batch) {
            return Ok(None);
        }
        let run = self.program.simulate(batch, full_queue.clone())?;
        if run.recording.failure.is_none() {
            self.fits_full_queue.set(Some(batch));
            return Ok(None);
        }
        Ok(Some(run))
    }
}

/// A device like `spec` with a full queue.
fn with_full_queue(spec: &DeviceSpec) -> DeviceSpec {
    spec.clone().with_queue_lag(QueueLag::Full)
}

impl<P: Program> Program for AnyQueueLag<'_, P> {
    fn simulate(&self, batch: u64, spec: DeviceSpec) -> Result<Simulated, Error> {
        let full_queue = spec.card.total.map(|_| with_full_queue(&spec));
        let without_lag = self.program.simulate(batch, spec)?;
        match full_queue {
            Some(full_queue) if without_lag.recording.failure.is_none() => {
                let refused = self.run_with_full_queue(batch, &full_queue)?;
                Ok(refused.unwrap_or(without_lag))
            }
            _ => Ok(without_lag),
        }
    }

    fn accepts(&self, batch: u64) -> bool {
        self.program.accepts(batch)
    }
}
