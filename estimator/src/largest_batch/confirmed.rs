//! The calls of a step at any batch, as far as a run confirmed them: on other devices with the same kernels the largest
//! batch then follows from replays.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::predictor::{Prediction, Predictor};
use super::proposer::Proposer;
use super::scaling::Scaling;
use super::{FirstRejected, LargestBatch, LargestFit, Method};
use crate::card::{DeviceSpec, QueueLag};
use crate::estimate::Estimate;
use crate::job::Program;
use crate::queue_lag::resized;
use crate::record::Recording;
use crate::simulated::{Parameters, Simulated};
use crate::{Error, Tuning};

/// How far runs have confirmed a predictor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Validation {
    /// The [share](Scaling::share) of the latest run.
    share: Option<f64>,
    /// The batch of the latest run that matched the prediction call by call: smaller batches count as
    /// predicted too, down to the recorded ones.
    predicted: Option<u64>,
}

impl Validation {
    /// Whether some run matched the prediction.
    pub fn is_any(&self) -> bool {
        self.predicted.is_some()
    }

    /// Adds a run of the largest `batch` on `device`.
    pub fn add(
        &mut self,
        scaling: &Scaling,
        batch: u64,
        recording: &Recording,
        device: &DeviceSpec,
    ) {
        self.share = scaling.share(batch, device);
        if scaling.matches(batch, recording) {
            self.predicted = Some(batch);
        }
    }

    /// The largest batch on a device like `device`, by replays; or, if that batch needs a run, the batch at which to begin
    /// the search with runs.
    pub fn replay<P: Program>(
        &self,
        predictor: &Predictor<P>,
        device: &DeviceSpec,
    ) -> Result<LargestFit, u64> {
        let predicted = predictor.predicted(device, self.share);
        let predicted = predictor.with_each_lag(predicted, device);
        let covered = self.covers(predictor, &predicted);
        let refused = covered.then(|| predictor.refused(&predicted, device));
        Ok(LargestFit {
            batch: predicted.batch,
            at_max: None,
            next: predicted.next,
            refused: refused.flatten().ok_or(predicted.batch)?,
        })
    }

    /// Whether `predicted` needs no run: a recording covers both batches, and a run with as many samples or
    /// more was as predicted.
    fn covers<P: Program>(&self, predictor: &Predictor<P>, predicted: &Prediction) -> bool {
        // With no sample there is nothing to run.
        let known = |batch| batch == 0 || predictor.knows(batch);
        let validated = self.predicted.is_some_and(|most| predicted.next <= most);
        validated && known(predicted.batch) && known(predicted.next)
    }
}

/// The calls of a step at any batch up to one that ran, on devices with the same kernels. They can be kept: the
/// largest batch on another of these devices then needs no run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConfirmedCalls {
    scaling: Arc<Scaling>,
    parameters: Parameters,
    batch: u64,
    device: DeviceSpec,
}

impl ConfirmedCalls {
    /// What `run`, of `batch` samples, confirms of the calls that `proposer` predicts; `None` if it made others. On a
    /// [cold](Tuning::Cold) card burn's tuner is part of the step, and may do something else on another.
    pub(super) fn by<P: Program>(
        run: Simulated,
        batch: u64,
        proposer: &Proposer<P>,
    ) -> Option<Self> {
        let scaling = proposer.predictor()?.scaling();
        let warm = run.spec.simulation.tuning == Tuning::Warm;
        let confirmed = warm && scaling.matches(batch, &run.recording);
        confirmed.then(|| Self {
            scaling: Arc::new(scaling.with_calls_of(run.recording)),
            parameters: run.parameters,
            batch,
            device: run.spec,
        })
    }

    /// The number of samples in the run that confirmed the calls: the largest batch on its device.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// The device of that run.
    pub fn device(&self) -> &DeviceSpec {
        &self.device
    }

    /// The largest batch of `program`, whose calls these are, on a device like `device`, by replays as in
    /// [`largest_fits`](super::largest_fits); `None` if it takes a run. The answer is as that of
    /// [`largest_batch`](super::largest_batch), but says nothing of other [overwriting](crate::InPlace), and names no kernel:
    /// with another number of samples another one may be faster. The bytes in use can differ by some bytes of the metadata of
    /// launches.
    ///
    /// If not even two samples fit, `program` runs with one.
    ///
    /// # Errors
    ///
    /// As for [`estimate`](fn@crate::estimate).
    pub fn largest_batch<P: Program>(
        &self,
        program: &P,
        device: &DeviceSpec,
    ) -> Result<Option<LargestBatch>, Error> {
        if !self.hold_for(device) {
            return Ok(None);
        }
        let unlimited = device.without_limit();
        let predictor = Predictor::new(program, self.scaling.clone(), unlimited.clone());
        // As where the step is run: `Proposer::proposed`.
        let guess = predictor.guess(device);
        let validation = Validation {
            share: self.scaling.share(guess, device),
            predicted: Some(self.batch),
        };
        let Ok(fit) = validation.replay(&predictor, device) else {
            return Ok(None);
        };
        let at_max = (fit.batch > 0).then(|| self.estimate(&predictor, fit.batch, device));
        let next = match self.estimate(&predictor, fit.next, &unlimited) {
            Err(Error::OutOfMemory(_)) => {
                let lifted = unlimited.without_binding_limit();
                self.estimate(&predictor, fit.next, &lifted)
            }
            next => next,
        };
        let smaller = (1..fit.batch).rev().find(|batch| program.accepts(*batch));
        Ok(Some(LargestBatch {
            batch: fit.batch,
            limit: fit.limit(),
            at_max: at_max.transpose()?,
            next: FirstRejected {
                batch: fit.next,
                estimate: next?,
                refused: fit.refused,
            },
            smaller_refused: smaller.filter(|batch| predictor.predicts_refusal(*batch, device)),
            fits_without_overwriting: None,
            method: Method::Replay,
        }))
    }

    /// Whether a device like `device` makes the same calls and has no more memory, as far as can be said before a replay.
    fn hold_for(&self, device: &DeviceSpec) -> bool {
        let same_kernels = device.kernel_group() == self.device.kernel_group();
        let smaller = device
            .available()
            .is_some_and(|memory| Some(memory) <= self.device.available());
        same_kernels && smaller && device.simulation.tuning == Tuning::Warm
    }

    /// The estimate for `batch` samples on a device like `device`.
    fn estimate<P: Program>(
        &self,
        predictor: &Predictor<P>,
        batch: u64,
        device: &DeviceSpec,
    ) -> Result<Estimate, Error> {
        let (recording, sizes) = predictor.step(batch, QueueLag::None);
        let recording = resized(recording, sizes);
        let mut estimate = Simulated::by_replay(device, &recording, self.parameters).estimate()?;
        estimate.peak.kernel = None;
        Ok(estimate)
    }
}
