//! A training step at any batch.

use std::fmt;

use burn::tensor::FloatDType;

use crate::Error;
use crate::card::DeviceSpec;
use crate::run::{Aborted, Run, Simulated};
use crate::tuned_devices::TunedDevices;

/// A training step at any batch, on any device.
pub trait Program {
    /// Runs the step with `batch` samples on a new device like `spec`.
    ///
    /// # Errors
    ///
    /// Not that the card is too small, which is in the recording: the step itself failed.
    fn simulate(&self, batch: u64, spec: DeviceSpec) -> Result<Simulated, Error>;

    /// Runs the step on a device like `spec` with as much memory as it asks for. Where the device allows no
    /// single buffer as large as one of the step's, that limit is lifted as well.
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

    /// Whether the step can be run with `batch` samples, on any card: some networks compare
    /// samples with each other, in pairs or groups.
    fn accepts(&self, batch: u64) -> bool {
        let _ = batch;
        true
    }

    /// Whether no answer is wanted any more: runs fail with [`Error::Interrupted`] from then on.
    fn interrupted(&self) -> bool {
        false
    }
}

type Step<'a> = dyn Fn(u64, &mut Run) -> Result<(), Aborted> + Sync + 'a;
type AcceptsBatch<'a> = dyn Fn(u64) -> bool + Sync + 'a;

/// A closure that trains a step, with everything that burn finds out about it: what can be fused is found
/// out once, whatever the batch, the card and the choice of kernels.
pub struct TrainingJob<'a> {
    step: Box<Step<'a>>,
    accepts: Box<AcceptsBatch<'a>>,
    interrupted: fn() -> bool,
    devices: TunedDevices,
}

impl<'a> TrainingJob<'a> {
    /// `step` trains with the number of samples that it is given; the floats that it creates are of the
    /// type `precision`.
    pub fn new(
        precision: FloatDType,
        step: impl Fn(u64, &mut Run) -> Result<(), Aborted> + Sync + 'a,
    ) -> Self {
        Self {
            step: Box::new(step),
            accepts: Box::new(|_| true),
            interrupted: || false,
            devices: TunedDevices::new(precision),
        }
    }

    /// The step can be run with those numbers of samples that `accepts` is true of.
    pub fn accepting(mut self, accepts: impl Fn(u64) -> bool + Sync + 'a) -> Self {
        self.accepts = Box::new(accepts);
        self
    }

    /// No run begins once `interrupted` is true: it fails with [`Error::Interrupted`].
    pub fn until(mut self, interrupted: fn() -> bool) -> Self {
        self.interrupted = interrupted;
        self
    }

    /// Kernels are tuned in less time, and nothing is said of the [runs](crate::FirstRun) in which they
    /// are.
    pub fn without_first_runs(mut self) -> Self {
        self.devices = self.devices.without_first_runs();
        self
    }
}

impl Program for TrainingJob<'_> {
    fn simulate(&self, batch: u64, spec: DeviceSpec) -> Result<Simulated, Error> {
        if (self.interrupted)() {
            return Err(Error::Interrupted);
        }
        let step = |run: &mut Run| (self.step)(batch, run);
        self.devices.simulate(batch, spec, step)
    }

    fn accepts(&self, batch: u64) -> bool {
        (self.accepts)(batch)
    }

    fn interrupted(&self) -> bool {
        (self.interrupted)()
    }
}

impl fmt::Debug for TrainingJob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainingJob")
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}
