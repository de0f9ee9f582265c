//! Finds the devices on which a step fits.

use burn::tensor::FloatDType;

use crate::analysis::Breakdown;
use crate::card::{DeviceSpec, QueueLag};
use crate::device_groups::group_by_kernels;
use crate::job::{Program, TrainingJob};
use crate::parallel::parallel_map;
use crate::queue_lag::Lagged;
use crate::replay::replay;
use crate::run::Run;
use crate::simulated::Simulated;
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
/// # Errors
///
/// Each device has a result of its own. The errors are those of [`estimate`](fn@crate::estimate) for such a device. An
/// error other than [`Error::OutOfMemory`] and [`Error::NeverTuned`] also counts for smaller devices with the same kernels,
/// on which the step is not run.
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
///
/// # Errors
///
/// As for [`find_devices`].
pub fn search_devices(
    program: &impl Program,
    batch: u64,
    devices: &[DeviceSpec],
) -> Vec<Result<DeviceFit, Error>> {
    // The devices with the most memory first: their runs tell that the step is far too large for others.
    let mut indices: Vec<_> = (0..devices.len()).collect();
    let room = |index: &usize| devices[*index].available().unwrap_or(Bytes(u64::MAX));
    indices.sort_by_key(|index| std::cmp::Reverse(room(index)));
    let groups = group_by_kernels(indices, |index| devices[*index].clone());
    let found = parallel_map(&groups, |group| {
        let mut search = GroupSearch {
            program,
            batch,
            runs: Vec::new(),
            cannot_run: None,
        };
        let fits = group.iter().map(|index| search.fit(&devices[*index]));
        fits.collect::<Vec<_>>()
    });
    let indices = groups.into_iter().flatten();
    let mut found: Vec<_> = indices.zip(found.into_iter().flatten()).collect();
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, fit)| fit).collect()
}

/// The search among devices with the same kernels.
struct GroupSearch<'a, P> {
    program: &'a P,
    batch: u64,
    runs: Vec<UnlimitedRun>,
    /// Why the step runs on none of the devices.
    cannot_run: Option<Error>,
}

impl<P: Program> GroupSearch<'_, P> {
    /// Finds out whether the step fits on `device`.
    fn fit(&mut self, device: &DeviceSpec) -> Result<DeviceFit, Error> {
        if let Some(run) = self.runs.iter().find(|run| run.holds_for(device)) {
            return Ok(run.fit(device));
        }
        let mut runs = self.runs.iter();
        if let Some(run) = runs.find(|run| run.is_far_too_large_for(device)) {
            return Ok(run.refused());
        }
        if let Some(error) = &self.cannot_run {
            return Err(error.clone());
        }
        match UnlimitedRun::of(self.program, self.batch, device) {
            Ok(run) => {
                let fit = run.fit(device);
                self.runs.push(run);
                Ok(fit)
            }
            Err(error) => {
                // On a device with other memory burn's tuner can try other kernels, and settle.
                if !matches!(error, Error::OutOfMemory(_) | Error::NeverTuned) {
                    self.cannot_run = Some(error.clone());
                }
                Err(error)
            }
        }
    }
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
    simulated: Simulated,
    lagged: Lagged,
    required_bytes: Bytes,
    /// Bytes that are in use at once with any kernels.
    certain_bytes: Bytes,
}

impl UnlimitedRun {
    fn of(program: &impl Program, batch: u64, device: &DeviceSpec) -> Result<Self, Error> {
        let mut simulated = program.simulate_unlimited(batch, device)?;
        let estimate = simulated.estimate()?;
        // The run stands for one on the device.
        simulated.trials.limit = device.largest_trial();
        Ok(Self {
            required_bytes: estimate.peak.required_bytes,
            certain_bytes: certain(&estimate.at_peak),
            simulated,
            lagged: Lagged::default(),
        })
    }

    /// Whether burn's tuner would choose the same kernels on `device`.
    fn holds_for(&self, device: &DeviceSpec) -> bool {
        self.simulated.chooses_as_on(device)
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
            let recording = self.lagged.of(&self.simulated.recording, lag);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Runtime;
    use crate::record::Recording;
    use crate::simulated::TrialSizes;

    /// A step that needs no memory. It fails on cards of 16 GiB, and runs for each card on its own, since burn's tuner
    /// tries a buffer that is too large for all of them.
    struct Failing {
        error: Error,
        runs: AtomicUsize,
    }

    impl Program for Failing {
        fn simulate(&self, _batch: u64, spec: DeviceSpec) -> Result<Simulated, Error> {
            self.runs.fetch_add(1, Ordering::Relaxed);
            let limit = spec.largest_trial();
            // A quarter of the card.
            if limit == Bytes::gib(4) {
                return Err(self.error.clone());
            }
            Ok(Simulated {
                trials: TrialSizes {
                    limit,
                    largest: Bytes::gib(100),
                },
                ..Simulated::of(spec, Recording::default())
            })
        }
    }

    /// Whether there is an answer for cards of 8, 16 and 24 GiB if those of 16 GiB fail with `error`, and the number of
    /// runs.
    fn answers(error: Error) -> ([bool; 3], usize) {
        let step = Failing {
            error,
            runs: AtomicUsize::new(0),
        };
        let devices = [8, 16, 24].map(|gib| {
            let unlimited = DeviceSpec::unlimited(Runtime::Cuda);
            unlimited.with_memory(Bytes::gib(gib), Bytes::ZERO)
        });
        let found = search_devices(&step, 1, &devices);
        let answered = [0, 1, 2].map(|index: usize| found[index].is_ok());
        (answered, step.runs.into_inner())
    }

    #[test]
    fn an_error_on_one_device_leaves_the_answers_for_the_others() {
        assert_eq!(answers(Error::NeverTuned), ([true, false, true], 3));
    }

    /// The largest card comes first.
    #[test]
    fn a_step_without_a_kernel_is_not_run_again() {
        for error in [Error::NoKernel("a feature".into()), Error::TooManyCards] {
            assert_eq!(answers(error), ([false, false, true], 2));
        }
    }
}
