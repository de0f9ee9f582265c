//! Whether a step fits on a device.

use burn::tensor::FloatDType;
use recording::Bytes;

use crate::card::DeviceSpec;
use crate::job::TrainingJob;
use crate::run::Run;
use crate::step_runs::StepRuns;
use crate::{Error, OutOfMemory};

/// Whether a step fits on a device: whether it completes there in the first run of a process, in which burn tunes its kernels,
/// and in the runs after it; with the device's thread level with the program and behind it
/// ([`QueueLag::REQUIRED`](crate::QueueLag::REQUIRED)); and where burn overwrites no operand that this thread may be allocating
/// ([`InPlace::Never`](crate::InPlace::Never)).
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The allocation that the device refused; `None` if the step fits.
    pub refused: Option<OutOfMemory>,
    /// The least memory with which all of these runs complete on such a device: no more than it has if the step fits, and more
    /// if it does not, unless a single allocation is too large.
    pub required_bytes: Bytes,
    /// The device's available memory minus `required_bytes`: not negative if the step fits, and negative if it does not, unless a
    /// single allocation is too large.
    pub headroom_bytes: i64,
}

impl Verdict {
    /// The verdict on a device with so much `available` memory, or with unlimited memory.
    pub(crate) fn new(
        refused: Option<OutOfMemory>,
        required_bytes: Bytes,
        available: Option<Bytes>,
    ) -> Self {
        let available = available.unwrap_or(Bytes(u64::MAX));
        Self {
            refused,
            required_bytes,
            headroom_bytes: available.signed_difference(required_bytes),
        }
    }

    /// Whether the step fits.
    pub fn fits(&self) -> bool {
        self.refused.is_none()
    }
}

/// Computes whether `step` fits on `device`. The step creates floats of the type `precision`.
///
/// # Errors
///
/// As for [`estimate`](fn@crate::estimate).
///
/// # Examples
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{FloatDType, Tensor};
/// use estimator::{Gpu, Phase, Runtime, fits};
///
/// let device = Gpu::find("rtx-3090").unwrap().spec(Runtime::Cuda);
/// let verdict = fits(&device, FloatDType::F32, |run| {
///     let device = run.device();
///     let layer = LinearConfig::new(1024, 1024).init(&device);
///     run.module("", &layer);
///     let output = layer.forward(Tensor::<2>::zeros([64, 1024], &device));
///     run.end(Phase::Forward);
///     drop(output);
/// })?;
/// assert!(verdict.fits());
/// # Ok::<(), estimator::Error>(())
/// ```
pub fn fits(
    device: &DeviceSpec,
    precision: FloatDType,
    step: impl Fn(&mut Run) + Sync,
) -> Result<Verdict, Error> {
    let job = TrainingJob::new(precision, |_, run: &mut Run| step(run));
    StepRuns::of(&job, 1, device)?.verdict(device)
}
