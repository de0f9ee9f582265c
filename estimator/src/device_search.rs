//! Finds the devices on which a step fits.

use burn::tensor::FloatDType;
use recording::{Breakdown, Bytes};

use crate::Error;
use crate::card::DeviceSpec;
use crate::device_groups::group_by_kernels;
use crate::job::{Program, TrainingJob};
use crate::parallel::parallel_map;
use crate::run::Run;
use crate::step_runs::StepRuns;
use crate::verdict::Verdict;

/// Finds out whether `step` fits on each of `devices`, in their order. The step creates floats of the type
/// `precision`. It runs once for all devices on which burn chooses the same kernels, and its calls are then replayed in
/// the memory of each.
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
/// let fits: Vec<bool> = found.into_iter().map(|verdict| verdict.unwrap().fits()).collect();
/// assert_eq!(fits, [false, true]);
/// ```
pub fn find_devices(
    devices: &[DeviceSpec],
    precision: FloatDType,
    step: impl Fn(&mut Run) + Sync,
) -> Vec<Result<Verdict, Error>> {
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
) -> Vec<Result<Verdict, Error>> {
    // The devices with the most memory first: their runs tell that the step is far too large for others.
    let mut indices: Vec<_> = (0..devices.len()).collect();
    let room = |index: &usize| devices[*index].available().unwrap_or(Bytes(u64::MAX));
    indices.sort_by_key(|index| std::cmp::Reverse(room(index)));
    let groups = group_by_kernels(indices, |index| devices[*index].clone());
    let mut searches = parallel_map(&groups, |group| {
        let mut search = GroupSearch {
            program,
            batch,
            runs: Vec::new(),
            cannot_run: None,
        };
        search.run_on(&devices[group[0]]);
        search
    });
    for index in 1..searches.len() {
        let (before, search) = searches.split_at_mut(index);
        let known = before.iter().flat_map(|search| &search.runs);
        search[0].share_with(known);
    }
    let groups_and_searches = groups.iter().zip(searches).collect::<Vec<_>>();
    let found = parallel_map(groups_and_searches, |(group, mut search)| {
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
    runs: Vec<Runs<'a, P>>,
    /// Why the step runs on none of the devices.
    cannot_run: Option<Error>,
}

/// The runs of a step on some device.
struct Runs<'a, P> {
    runs: StepRuns<'a, P>,
    /// Bytes that are in use at once with any kernels.
    certain: Bytes,
}

impl<'a, P: Program> GroupSearch<'a, P> {
    /// Finds out whether the step fits on `device`.
    fn fit(&mut self, device: &DeviceSpec) -> Result<Verdict, Error> {
        if let Some(known) = self.runs.iter().find(|known| known.runs.hold_for(device)) {
            return known.runs.verdict(device);
        }
        let mut runs = self.runs.iter();
        let room = device.available();
        if let Some(known) = runs.find(|known| room.is_some_and(|room| room < known.certain)) {
            // With any kernels the step is far too large.
            return known.runs.verdict(device);
        }
        if let Some(error) = &self.cannot_run {
            return Err(error.clone());
        }
        match self.run_on(device) {
            None => self.runs[self.runs.len() - 1].runs.verdict(device),
            Some(error) => Err(error),
        }
    }

    /// Adds the runs on `device`, or returns why there are none.
    fn run_on(&mut self, device: &DeviceSpec) -> Option<Error> {
        match Runs::of(self.program, self.batch, device) {
            Ok(mut new) => {
                let mut known = self.runs.iter();
                known.find(|known| new.runs.share_with(&known.runs));
                self.runs.push(new);
                None
            }
            Err(error) => {
                // On a device with other memory burn's tuner can try other kernels, and settle.
                if !matches!(error, Error::OutOfMemory(_) | Error::NeverTuned) {
                    self.cannot_run = Some(error.clone());
                }
                Some(error)
            }
        }
    }

    /// Shares the runs besides the shown one with those of `known` that make the same calls.
    fn share_with<'b>(&mut self, known: impl Iterator<Item = &'b Runs<'a, P>> + Clone)
    where
        'a: 'b,
        P: 'b,
    {
        for runs in &mut self.runs {
            known
                .clone()
                .find(|known| runs.runs.share_with(&known.runs));
        }
    }
}

impl<'a, P: Program> Runs<'a, P> {
    fn of(program: &'a P, batch: u64, device: &DeviceSpec) -> Result<Self, Error> {
        let runs = StepRuns::of(program, batch, device)?;
        let certain = certain(&runs.at_peak()?);
        Ok(Self { runs, certain })
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Runtime;
    use crate::run_kind::RunKind;
    use crate::simulated::Simulated;
    use recording::Recording;

    /// A step that needs no memory. It fails on cards of 16 GiB, and runs for each card on its own, since burn's tuner
    /// tries the largest buffer that each allows, and one more byte.
    struct Failing {
        error: Error,
        runs: AtomicUsize,
    }

    impl Program for Failing {
        fn simulate(&self, _batch: u64, spec: DeviceSpec) -> Result<Simulated, Error> {
            if RunKind::on(&spec).is_usual() {
                self.runs.fetch_add(1, Ordering::Relaxed);
            }
            let limit = spec.largest_trial();
            // A quarter of the card.
            if limit == Bytes::gib(4) {
                return Err(self.error.clone());
            }
            let mut run = Simulated::of(spec, Recording::default());
            run.trials.add(limit, limit);
            run.trials.add(limit + Bytes(1), limit);
            Ok(run)
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
