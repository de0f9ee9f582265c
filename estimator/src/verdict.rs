//! Whether a step fits on a device.

use burn::tensor::FloatDType;

use crate::card::DeviceSpec;
use crate::estimate::Estimate;
use crate::job::{Program, TrainingJob};
use crate::queue_lag::refused_with_lag;
use crate::races::fits_without_overwriting;
use crate::run::Run;
use crate::{Bytes, Error, OutOfMemory, Tuning};

/// Whether a step fits on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The allocation that the device refused; `None` if the step fits.
    pub refused: Option<OutOfMemory>,
    /// The least memory with which the step completes on such a device ([`Peak::required_bytes`](crate::Peak)).
    pub required_bytes: Bytes,
    /// The device's available memory minus `required_bytes`. The sign is not the verdict: with a negative value the
    /// step can still fit, since burn's pools free unused pages earlier on a full device, and with a positive one a
    /// single allocation can be too large.
    pub headroom_bytes: i64,
    /// Whether the [run](crate::FirstRun) in which burn tunes the kernels fits as well; `None` if there is no
    /// such run, or if the step itself does not fit.
    pub first_run_fits: Option<bool>,
    /// Whether the step also fits with each of [`QueueLag::REQUIRED`](crate::QueueLag::REQUIRED); `None` if there is
    /// enough memory to spare, or if the step does not fit without lag.
    pub lag_fits: Option<bool>,
    /// Whether the step also fits where burn overwrites no operand that the device's thread may be allocating
    /// ([`InPlace::Never`](crate::InPlace::Never)), as can happen now and then in a long training; `None` as for
    /// `lag_fits`, or if that run fails.
    pub fits_without_overwriting: Option<bool>,
}

impl Verdict {
    /// Whether the step fits.
    pub fn fits(&self) -> bool {
        self.refused.is_none()
    }
}

/// A device is nearly full if it has less than 1/`CLOSE` of the required memory to spare. The pages that the
/// pools take by chance then decide: at most 7.3 % were seen (DCGAN, batch 2: `tests/tests/simulated_card.rs`).
const CLOSE: u64 = 10;

/// Whether `device` is nearly full with a step that needs `required` memory.
pub(crate) fn is_close(device: &DeviceSpec, required: Bytes) -> bool {
    let available = device.available();
    available.is_some_and(|available| available.saturating_sub(required) < required / CLOSE)
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
    let estimate = job.simulate_unlimited(1, device)?.estimate()?;
    verdict(&job, 1, device, &estimate)
}

/// Computes whether `program` with `batch` samples fits on `device`, by running it there with the memory of
/// the card as the limit. `estimate` is its estimate with the kernels that burn chooses on such a device: see
/// [`Simulated::chooses_as_on`](crate::Simulated::chooses_as_on).
///
/// # Errors
///
/// The step itself failed.
pub fn verdict(
    program: &impl Program,
    batch: u64,
    device: &DeviceSpec,
    estimate: &Estimate,
) -> Result<Verdict, Error> {
    let run = program.simulate(batch, device.clone())?;
    let available = device.available().unwrap_or(Bytes(u64::MAX));
    let required = estimate.peak.required_bytes;
    let mut verdict = Verdict {
        refused: run.outcome().err(),
        required_bytes: required,
        headroom_bytes: available.signed_difference(required),
        first_run_fits: None,
        lag_fits: None,
        fits_without_overwriting: None,
    };
    if !verdict.fits() {
        return Ok(verdict);
    }
    if let Some(first) = &estimate.first_run {
        let has_room = first.reserved_bytes <= available;
        let first_fits = || {
            let cold = device.clone().with_tuning(Tuning::Cold);
            Ok::<_, Error>(program.simulate(batch, cold)?.outcome().is_ok())
        };
        verdict.first_run_fits = Some(has_room || first_fits()?);
    }
    if is_close(device, required) {
        verdict.lag_fits = Some(refused_with_lag(program, batch, &run)?.is_none());
        verdict.fits_without_overwriting = fits_without_overwriting(program, batch, device);
    }
    Ok(verdict)
}
