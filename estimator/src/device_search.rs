//! Finds the devices on which a step fits.

use burn::tensor::FloatDType;

use crate::analysis::Breakdown;
use crate::card::{DeviceSpec, QueueLag};
use crate::device_groups::group_by_kernels;
use crate::job::{Program, TrainingJob};
use crate::parallel::parallel_map;
use crate::queue_lag::Lagged;
use crate::record::Recording;
use crate::replay::replay;
use crate::run::{Run, TrialSizes};
use crate::verdict::is_close;
use crate::{Bytes, Error};

/// What the search found out about a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFit {
    /// The least memory with which the step completes on such a device. If the device has no room even for what kernels do
    /// not change, this is the figure of a larger device of its kernel group.
    pub required_bytes: Bytes,
    /// Whether the step fits on the device.
    pub fits: bool,
    /// Whether it also fits with each of [`QueueLag::REQUIRED`](crate::QueueLag::REQUIRED); `None` if there is enough
    /// memory to spare, or if the step does not fit without lag.
    pub lag_fits: Option<bool>,
}

/// Finds out whether `step` fits on each of `devices`, in their order. The step creates floats of the type
/// `precision`. It runs once for all devices on which burn chooses the same kernels, and its calls are then replayed in
/// the memory of each. (On a device whose kernels are not tuned before, burn could choose others if the device were fuller
/// than the one of the run.)
///
/// # Examples
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{FloatDType, Tensor};
/// use estimator::{Gpu, Phase, Runtime, find_devices};
///
/// let devices = ["rtx-2080", "rtx-3090"].map(|name| Gpu::find(name).unwrap().spec(Runtime::Cuda));
/// let found = find_devices(&devices, FloatDType::F32, |run| {
///     let device = run.device();
///     // 9 GB of weights: too much for the 8 GB of the first card.
///     let layer = LinearConfig::new(1 << 16, 34_000).init(&device);
///     run.module("", &layer);
///     let output = layer.forward(Tensor::<2>::zeros([1, 1 << 16], &device));
///     run.end(Phase::Forward);
///     drop(output);
/// });
/// let fits: Vec<bool> = found.into_iter().map(|fit| fit.unwrap().fits).collect();
/// assert_eq!(fits, [false, true]);
/// ```
pub fn find_devices(
    devices: &[DeviceSpec],
    precision: FloatDType,
    step: impl Fn(&mut Run) + Sync,
) -> Vec<Result<DeviceFit, Error>> {
    let job = TrainingJob::new(precision, |_, run: &mut Run| step(run));
    search_devices(&job, 1, devices)
}

/// Like [`find_devices`], for `program` with `batch` samples.
pub fn search_devices(
    program: &(impl Program + Sync),
    batch: u64,
    devices: &[DeviceSpec],
) -> Vec<Result<DeviceFit, Error>> {
    // The devices with the most memory first: their runs tell that the step is far too large for others.
    let mut indices: Vec<_> = (0..devices.len()).collect();
    let room = |index: &usize| devices[*index].available().unwrap_or(Bytes(u64::MAX));
    indices.sort_by_key(|index| std::cmp::Reverse(room(index)));
    let groups = group_by_kernels(indices, |index| devices[*index].clone());
    let found = parallel_map(&groups, |group| {
        let mut runs: Vec<UnlimitedRun> = Vec::new();
        let fits = group.iter().map(|index| {
            let device = &devices[*index];
            if !runs.iter().any(|run| run.holds_for(device)) {
                if let Some(run) = runs.iter().find(|run| run.is_far_too_large_for(device)) {
                    return Ok(run.refused());
                }
                runs.push(UnlimitedRun::of(program, batch, device)?);
            }
            let run = runs.iter().find(|run| run.holds_for(device));
            Ok(run.expect("a run on the device holds for it").fit(device))
        });
        fits.collect::<Result<Vec<_>, Error>>()
    });
    let found = groups.into_iter().zip(found).flat_map(|(group, found)| {
        let found: Vec<_> = match found {
            Ok(fits) => fits.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); group.len()],
        };
        group.into_iter().zip(found)
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, fit)| fit).collect()
}

/// The part of what is in use at the peak that is in use with any kernels. Kernels need more or less room to work, some
/// leave a gradient in a larger buffer, and some lay an activation out in another order, whose rows CUDA pads to no more than
/// twice their size (a power of two: `cubecl-cuda` 0.11.3, `optimal_align`).
fn certain(at_peak: &Breakdown) -> Bytes {
    at_peak.parameters
        + at_peak.optimizer
        + at_peak.inputs
        + at_peak.buffers
        + at_peak.activations / 2
}

/// The run of a step on a device without its limit, which tells whether the step fits on devices with the same kernels.
struct UnlimitedRun {
    recording: Recording,
    lagged: Lagged,
    required_bytes: Bytes,
    /// Bytes that are in use at once with any kernels.
    certain_bytes: Bytes,
    /// What burn's tuner tried, and what it could have tried on the device.
    trials: TrialSizes,
}

impl UnlimitedRun {
    fn of(program: &impl Program, batch: u64, device: &DeviceSpec) -> Result<Self, Error> {
        let simulated = program.simulate_unlimited(batch, device)?;
        let estimate = simulated.estimate()?;
        Ok(Self {
            required_bytes: estimate.peak.required_bytes,
            certain_bytes: certain(&estimate.at_peak),
            trials: TrialSizes {
                limit: device.largest_trial(),
                ..simulated.trials
            },
            recording: simulated.recording,
            lagged: Lagged::default(),
        })
    }

    /// Whether burn's tuner would choose the same kernels on `device`.
    fn holds_for(&self, device: &DeviceSpec) -> bool {
        self.trials.hold_for(device.largest_trial())
    }

    /// Whether `device` has no room for the step with any kernels.
    fn is_far_too_large_for(&self, device: &DeviceSpec) -> bool {
        let room = device.available();
        room.is_some_and(|room| room < self.certain_bytes)
    }

    /// What is found out about a device for which the step is far too large.
    fn refused(&self) -> DeviceFit {
        DeviceFit {
            required_bytes: self.required_bytes,
            fits: false,
            lag_fits: None,
        }
    }

    fn fit(&self, device: &DeviceSpec) -> DeviceFit {
        let completes = |lag| {
            let recording = self.lagged.of(&self.recording, lag);
            replay(device, recording, |id| recording.buffer(id).bytes).completed()
        };
        let fits = completes(QueueLag::None);
        let is_close = fits && is_close(device, self.required_bytes);
        DeviceFit {
            required_bytes: self.required_bytes,
            fits,
            lag_fits: is_close.then(|| QueueLag::REQUIRED.iter().copied().all(completes)),
        }
    }
}
