//! Finds the devices on which a step fits.

use burn::tensor::FloatDType;

use crate::card::DeviceSpec;
use crate::device_groups::group_by_kernels;
use crate::job::{Program, TrainingJob};
use crate::parallel::parallel_map;
use crate::replay::replay;
use crate::run::Run;
use crate::{Bytes, Error};

/// What the search found out about a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFit {
    /// The least memory with which the step completes on such a device.
    pub required_bytes: Bytes,
    /// Whether the step fits on the device.
    pub fits: bool,
}

/// Finds out whether `step` fits on each of `devices`, in their order. The step creates floats of the type
/// `precision`. It runs once for all devices with the same kernels, and its calls are then replayed in the
/// memory of each.
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
    let groups = group_by_kernels(0..devices.len(), |index| devices[*index].clone());
    let found = parallel_map(&groups, |group| {
        let simulated = program.simulate_unlimited(batch, &devices[group[0]])?;
        let required_bytes = simulated.estimate()?.peak.required_bytes;
        let recording = &simulated.recording;
        let fits = |device: &DeviceSpec| {
            replay(device, recording, |id| recording.buffer(id).bytes).completed()
        };
        let fits = group.iter().map(|index| DeviceFit {
            required_bytes,
            fits: fits(&devices[*index]),
        });
        Ok(fits.collect::<Vec<_>>())
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
