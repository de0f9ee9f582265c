//! A training step at any batch.

use burn::tensor::FloatDType;
use recording::Recording;

use crate::card::DeviceSpec;
use crate::run::Run;
use crate::simulated::Simulated;
use crate::tuned_devices::TunedDevices;
use crate::{Error, Tuning};

/// A training step at any batch, on any device.
pub trait Program: Sync {
    /// Runs the step with `batch` samples on a new device like `spec`.
    ///
    /// # Errors
    ///
    /// The step itself failed. A card that is too small is no error: the recording then contains the failure.
    fn simulate(&self, batch: u64, spec: DeviceSpec) -> Result<Simulated, Error>;

    /// The calls of the step with `batch` samples on a device like `spec`, to propose a batch from them. They are those of
    /// [`simulate`](Self::simulate) if burn makes the same calls while it still searches for what it can fuse as later.
    ///
    /// # Errors
    ///
    /// As for [`simulate`](Self::simulate).
    fn sketch(&self, batch: u64, spec: DeviceSpec) -> Result<Recording, Error> {
        Ok(self.simulate(batch, spec)?.recording)
    }

    /// Runs the step on a device like `spec` with unlimited memory. If a buffer of the step is larger than
    /// the device's limit for a single buffer, this lifts that limit as well.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    fn simulate_unlimited(&self, batch: u64, spec: &DeviceSpec) -> Result<Simulated, Error> {
        let unlimited = spec.without_limit();
        let simulated = self.simulate(batch, unlimited.clone())?;
        match simulated.recording.failure {
            None => Ok(simulated),
            Some(_) => self.simulate(batch, unlimited.without_binding_limit()),
        }
    }

    /// Whether the step can run with `batch` samples, on any card: never without samples, and some networks compare
    /// samples with each other, in pairs or groups.
    fn accepts(&self, batch: u64) -> bool {
        batch > 0
    }

    /// The only runs that have to complete for the step to fit: the first, in which burn tunes its kernels, or those after it;
    /// `None` if all have to.
    fn only(&self) -> Option<Tuning> {
        None
    }
}

type Step<'a> = dyn Fn(u64, &mut Run) + Sync + 'a;
type AcceptsBatch<'a> = dyn Fn(u64) -> bool + Sync + 'a;

/// A closure that runs a training step, with what burn learns about it: burn searches once for what it can
/// fuse, whatever the batch, the card and the kernel preference.
pub struct TrainingJob<'a> {
    step: Box<Step<'a>>,
    accepts: Box<AcceptsBatch<'a>>,
    only: Option<Tuning>,
    devices: TunedDevices,
}

impl<'a> TrainingJob<'a> {
    /// A job whose `step` trains with the number of samples that it is given, and creates floats of the type
    /// `precision`.
    pub fn new(precision: FloatDType, step: impl Fn(u64, &mut Run) + Sync + 'a) -> Self {
        Self {
            step: Box::new(step),
            accepts: Box::new(|_| true),
            only: None,
            devices: TunedDevices::new(precision),
        }
    }

    /// Restricts the job to the numbers of samples that `accepts` returns true for.
    pub fn accepting(mut self, accepts: impl Fn(u64) -> bool + Sync + 'a) -> Self {
        self.accepts = Box::new(accepts);
        self
    }

    /// Asks only whether the first run fits, or those after it: see [`Program::only`].
    pub fn only(mut self, tuning: Option<Tuning>) -> Self {
        self.only = tuning;
        self
    }

    /// Tunes kernels in less time, but does not report the [runs](crate::FirstRun) in which burn tunes them.
    pub fn without_first_runs(mut self) -> Self {
        self.devices = self.devices.without_first_runs();
        self
    }
}

impl Program for TrainingJob<'_> {
    fn simulate(&self, batch: u64, spec: DeviceSpec) -> Result<Simulated, Error> {
        let step = |run: &mut Run| (self.step)(batch, run);
        self.devices.simulate(batch, spec, step)
    }

    fn sketch(&self, batch: u64, spec: DeviceSpec) -> Result<Recording, Error> {
        let step = |run: &mut Run| (self.step)(batch, run);
        Ok(self.devices.sketch(batch, spec, step)?.recording)
    }

    fn accepts(&self, batch: u64) -> bool {
        batch > 0 && (self.accepts)(batch)
    }

    fn only(&self) -> Option<Tuning> {
        self.only
    }
}
