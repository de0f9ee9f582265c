//! The largest batch that fits on a device.

mod devices;
mod predictor;
mod scaling;
mod search;

use std::cell::Cell;
use std::sync::Arc;

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

/// What stands against a larger batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Limit {
    /// The card is full.
    #[serde(rename = "device memory")]
    DeviceMemory,
    /// No single allocation may be as large as one that the step needs.
    #[serde(rename = "single allocation")]
    SingleAllocation,
}

/// The first batch that does not fit.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstRejected {
    /// Samples in it.
    pub batch: u64,
    /// What it would take on a card with room.
    pub estimate: Estimate,
    /// What was refused on this one.
    pub refused: OutOfMemory,
}

/// The largest batch that fits on a card.
#[derive(Clone, Debug, PartialEq)]
pub struct LargestBatch {
    /// Samples in it; 0 if not even one fits.
    pub batch: u64,
    /// What it takes; none if not even one fits.
    pub at_max: Option<Estimate>,
    /// The first that does not fit.
    pub next: FirstRejected,
    /// What stands against it.
    pub limit: Limit,
}

/// The largest batch of `step` that fits on `device`, which has a memory, and what it takes. `step` trains
/// with the number of samples that it is given; the floats that it creates are of the type `precision`.
///
/// # Errors
///
/// The step itself failed.
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
/// // A sample has 260 KiB or more, of 24 GB.
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

/// The largest batch of `program` that fits on a device like `spec`, which has a memory, and what
/// it takes. It fits both where the device's thread keeps up with the program and where its queue is full
/// ([`QueueLag`]): on a full card that can decide.
///
/// # Errors
///
/// The step itself failed.
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

/// The largest batch that fits on a card, and the next, which does not.
#[derive(Clone, Debug)]
pub struct LargestFit {
    /// Samples in it; 0 if not even one fits.
    pub batch: u64,
    /// The step with it, on the card; none if not even one sample fits, and if it was not run.
    pub at_max: Option<Simulated>,
    /// The first that does not fit: one sample more, where the step can be run with that.
    pub next: u64,
    /// What the card refused of it.
    pub refused: OutOfMemory,
}

impl LargestFit {
    /// What stands against a larger batch.
    pub fn limit(&self) -> Limit {
        match self.refused.refusal {
            Refusal::Full => Limit::DeviceMemory,
            Refusal::TooLarge { .. } => Limit::SingleAllocation,
        }
    }
}

/// The largest batch of `program` that fits on a device like `spec`, which has a memory, with any
/// [`QueueLag`].
///
/// `predictor` proposes an answer in no time; that its batch fits and that the next does not is
/// then found by running both steps on such a device.
///
/// # Errors
///
/// The step itself failed.
pub fn largest_fit<P: Program>(
    program: &P,
    predictor: Option<&Predictor<P>>,
    spec: &DeviceSpec,
) -> Result<LargestFit, Error> {
    let any_lag = AnyQueueLag::new(program);
    let proposed = predictor.map(|predictor| any_lag.proposed(predictor, spec));
    search_near(&any_lag, proposed.transpose()?.unwrap_or_default(), spec)
}

/// As [`largest_fit`], where something else proposes the answer `proposed`.
fn largest_fit_near(
    program: &impl Program,
    proposed: u64,
    spec: &DeviceSpec,
) -> Result<LargestFit, Error> {
    search_near(&AnyQueueLag::new(program), proposed, spec)
}

/// The largest batch of `program` as it is, looked for from `proposed` on.
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
    // The proposal is nearly always the answer: look there first, and then outwards.
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

/// A program on a device whose thread keeps up with it, and on one whose queue is full: where the step fits on
/// the first and not on the second, the device is said to refuse it.
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

    /// The batch that `predictor` proposes for a device like `spec`; if that does not fit with a full
    /// queue, the one that a predictor of such runs proposes.
    fn proposed(&self, predictor: &Predictor<P>, spec: &DeviceSpec) -> Result<u64, Error> {
        let proposed = predictor.predicted(spec, None).batch;
        let full_queue = with_full_queue(spec);
        if proposed == 0 || self.run_with_full_queue(proposed, &full_queue)?.is_none() {
            return Ok(proposed);
        }
        let Some(scaling) = Scaling::of(self.program, &full_queue)? else {
            return Ok(proposed);
        };
        let unlimited = full_queue.without_limit();
        let predictor = Predictor::new(self.program, Arc::new(scaling), unlimited);
        Ok(proposed.min(predictor.predicted(spec, None).batch))
    }

    /// The step on a device like `full_queue`, if it does not fit there.
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

/// A device like `spec` whose thread is as far behind the program as it can be.
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
