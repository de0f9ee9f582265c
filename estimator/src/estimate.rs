//! The estimate for one program: how much memory it takes, when, and what for.

use burn::tensor::FloatDType;
use recording::analysis::{PeakPosition, last_step, steps};
use recording::{Analysis, Breakdown, Bytes, LayerMemory, Phase, PhaseMemory, Recording};
use serde::{Deserialize, Serialize};

use crate::card::DeviceSpec;
use crate::job::TrainingJob;
use crate::run::Run;
use crate::run_kind::RunKind;
use crate::simulated::{FirstRun, Parameters, Simulated};
use crate::step_runs::StepRuns;
use crate::{Error, OutOfMemory};

/// The moment with the most bytes in use, and the memory that a card needs for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Peak {
    /// Bytes in use. No card with less memory can run the step.
    pub live_bytes: Bytes,
    /// The most bytes that the pools reserve in this run on a card with unlimited memory.
    pub reserved_bytes: Bytes,
    /// The least memory, in whole MiB, with which the step completes. It can be less than the reserved bytes, since on a
    /// nearly full card the pools give pages back before they fail; and more, since other runs of the step may need more
    /// than the one whose peak this is.
    pub required_bytes: Bytes,
    /// The phase in which the peak occurs.
    pub phase: Phase,
    /// The optimizer step in which it occurs, counted from 1; 0 if it is before the first.
    pub step: usize,
    /// The layer that is active at the peak.
    pub layer: Option<String>,
    /// The kernel for which the last buffer was allocated.
    pub kernel: Option<String>,
}

/// How much memory a program takes, when, and what for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The tensors that the program's modules hold.
    pub parameters: Parameters,
    /// The highest peak of all steps.
    pub peak: Peak,
    /// Bytes in use at the peak, by category; they add up to [`Peak::live_bytes`].
    pub at_peak: Breakdown,
    /// The phases of the step with the peak; those of the last step if the peak is before the first.
    pub phases: Vec<PhaseMemory>,
    /// The layers, in the order in which they are first used.
    pub layers: Vec<LayerMemory>,
    /// The run in which burn tuned the kernels, if that was a separate one.
    pub first_run: Option<FirstRun>,
}

impl Simulated {
    /// Computes how much memory the program takes, when, and what for.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]: the program did not complete on the card; see [`Simulated::outcome`].
    pub fn estimate(&self) -> Result<Estimate, OutOfMemory> {
        self.outcome()?;
        Ok(self.estimate_that_requires(self.required()))
    }

    /// The estimate of a program that requires so much memory.
    pub(crate) fn estimate_that_requires(&self, required_bytes: Bytes) -> Estimate {
        let recording = &self.recording;
        let analysis = Analysis::of(recording);
        let peak = analysis.timeline.peak(recording);
        let position = peak.map_or(0, |peak| peak.position);
        let at_peak = at_peak(&analysis, recording, peak);
        let active_op = analysis.active_op(recording, position);
        let phases = analysis.timeline.phases(recording);
        let names: Vec<_> = phases.iter().map(|phase| phase.phase).collect();
        let steps = steps(&names);
        let step = steps
            .iter()
            .position(|step| peak.is_some_and(|peak| step.contains(&peak.mark)));
        let shown = match step {
            Some(step) => steps[step].clone(),
            None => last_step(names.iter().copied()),
        };
        Estimate {
            parameters: self.parameters,
            peak: Peak {
                live_bytes: peak.map_or(Bytes::ZERO, |peak| peak.live),
                reserved_bytes: self.reserved_in_training(),
                required_bytes,
                phase: peak
                    .and_then(|peak| recording.marks.get(peak.mark))
                    .map_or(Phase::Init, |mark| mark.phase),
                step: step.map_or(0, |step| step + 1),
                layer: active_op.layer,
                kernel: active_op.kernel,
            },
            at_peak,
            phases: phases[shown].to_vec(),
            layers: analysis.layers(recording),
            first_run: self.first_run.as_deref().map(FirstRun::of),
        }
    }

    /// What is in use at the peak.
    pub(crate) fn at_peak(&self) -> Breakdown {
        let analysis = Analysis::of(&self.recording);
        let peak = analysis.timeline.peak(&self.recording);
        at_peak(&analysis, &self.recording, peak)
    }

    /// Whether the program completed on the card.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]: the card refused an allocation. The error names its size, phase and layer.
    pub fn outcome(&self) -> Result<(), OutOfMemory> {
        match &self.recording.failure {
            None => Ok(()),
            Some(failure) => {
                let analysis = Analysis::of(&self.recording);
                let run = RunKind::on(&self.spec);
                Err(OutOfMemory::of(failure, &self.recording, &analysis, run))
            }
        }
    }
}

/// What is in use at the `peak` of `recording`.
fn at_peak(analysis: &Analysis, recording: &Recording, peak: Option<PeakPosition>) -> Breakdown {
    let peak = peak.map(|peak| analysis.breakdown(recording, peak.position));
    peak.unwrap_or_default()
}

/// Runs `program` on a card like `device` with unlimited memory and computes how much memory it takes, when,
/// and what for. The program creates floats of the type `precision`.
///
/// # Errors
///
/// As for [`simulate`](crate::simulate). Also [`Error::OutOfMemory`] if the program needs a buffer that is larger than
/// `device` allows with each kernel that burn's tuner can try.
///
/// # Examples
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{FloatDType, Tensor};
/// use estimator::{Gpu, Phase, Runtime, estimate};
///
/// let device = Gpu::find("rtx-3090").unwrap().spec(Runtime::Cuda);
/// let estimate = estimate(&device, FloatDType::F32, |run| {
///     let device = run.device();
///     let layer = LinearConfig::new(1024, 1024).init(&device);
///     run.module("", &layer);
///     let output = layer.forward(Tensor::<2>::zeros([64, 1024], &device));
///     run.end(Phase::Forward);
///     drop(output);
/// })?;
/// // Weights, bias, input and output of a linear layer.
/// let bytes = 4 * (1024 * 1024 + 1024 + 2 * 64 * 1024);
/// assert!(estimate.peak.live_bytes.0 >= bytes);
/// # Ok::<(), estimator::Error>(())
/// ```
pub fn estimate(
    device: &DeviceSpec,
    precision: FloatDType,
    program: impl Fn(&mut Run) + Sync,
) -> Result<Estimate, Error> {
    let job = TrainingJob::new(precision, |_, run: &mut Run| program(run));
    StepRuns::of(&job, 1, device)?.estimate()
}
