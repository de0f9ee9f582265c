//! The answer of `verify` about a PyTorch program: its recording beside what its GPU counted.

use estimator::{Bytes, Phase};
use schemars::JsonSchema;
use serde::Serialize;
use torch_memory::counters::Counters;
use torch_memory::replay::Replay;
use torch_memory::stream::Recording;
use torch_memory::trace::Approximation;

use super::measured::Measured;
use super::report::{Torch, allocator_config, reason};
use crate::comparison::{is_near, relative, worse};
use crate::job_info::SCHEMA;
use crate::measure::Outcome;
use crate::user_error::UserError;

/// The answer of `verify` about a PyTorch program.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TorchVerifyReport {
    /// Version of this interface.
    pub schema: u32,
    /// The program and its arguments.
    pub program: String,
    /// The versions that decide the answer.
    pub torch: Torch,
    /// The GPU, as its driver calls it.
    pub gpu: String,
    /// Optimizer steps that the program made on it.
    pub steps: usize,
    /// How it ended there.
    pub ending: Outcome,
    /// The allocation for which the memory of the GPU is estimated to be too small; none if the program is estimated to fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Whether it made the phases of the recording there, one for one.
    pub same_phases: bool,
    /// The phases of the last step that was measured.
    pub phases: Vec<PhaseComparison>,
    /// The most of all steps; none if the program did not train.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_steps: Option<MostComparison>,
    /// The memory in use on the whole GPU; none if the program did not train, or NVML does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<FigureComparison>,
    /// What was not followed exactly in the recording.
    pub approximations: Vec<Approximation>,
    /// How far the estimate may be above the measurement, as a fraction of it.
    pub tolerance: f64,
    /// Whether the program trained, and the estimate is nowhere too low and nowhere too high by more than `tolerance`,
    /// but for the memory of the whole GPU, of which it is an upper bound; or whether it ran out of memory, as estimated.
    pub agrees: bool,
}

/// The memory at the end of a phase and within it.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct PhaseComparison {
    /// The phase: forward, from the update before; backward; optimizer.
    pub phase: Phase,
    /// Optimizer steps completed before it.
    pub step: usize,
    /// `torch.cuda.memory_allocated()` at its end.
    pub allocated: FigureComparison,
    /// The most within it.
    #[serde(flatten)]
    pub most: MostComparison,
}

/// The most memory within a phase or several.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct MostComparison {
    /// `torch.cuda.max_memory_allocated()`.
    pub max_allocated: FigureComparison,
    /// `torch.cuda.max_memory_reserved()`.
    pub max_reserved: FigureComparison,
}

/// A figure, estimated and measured.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct FigureComparison {
    /// What was estimated.
    pub estimated_bytes: Bytes,
    /// What was measured.
    pub measured_bytes: Bytes,
    /// The error of the estimate relative to the measurement; negative if the estimate is too low.
    pub error: f64,
}

/// The GPU that a program has.
#[derive(Clone, Debug)]
pub struct UsedGpu {
    /// Its name, as its driver prints it.
    pub name: String,
    /// The memory that nothing else uses.
    pub free: Bytes,
    /// What a process takes of it beside PyTorch's allocator.
    pub overhead: Bytes,
}

impl FigureComparison {
    fn new(estimated: Bytes, measured: Bytes) -> Self {
        Self {
            estimated_bytes: estimated,
            measured_bytes: measured,
            error: relative(estimated, measured),
        }
    }
}

impl MostComparison {
    /// The most of `estimated` beside the most of `measured`.
    fn new(estimated: &[Counters], measured: &[Counters]) -> Self {
        let most = |of: &[Counters], figure: fn(&Counters) -> u64| {
            Bytes(of.iter().map(figure).max().unwrap_or_default())
        };
        let compare =
            |figure| FigureComparison::new(most(estimated, figure), most(measured, figure));
        Self {
            max_allocated: compare(|counters| counters.max_allocated_bytes),
            max_reserved: compare(|counters| counters.max_reserved_bytes),
        }
    }

    fn errors(&self) -> [f64; 2] {
        [self.max_allocated.error, self.max_reserved.error]
    }
}

impl PhaseComparison {
    fn new(estimated: &Counters, measured: &Counters) -> Self {
        Self {
            phase: measured.phase,
            step: measured.step,
            allocated: FigureComparison::new(
                Bytes(estimated.allocated_bytes),
                Bytes(measured.allocated_bytes),
            ),
            most: MostComparison::new(&[*estimated], &[*measured]),
        }
    }
}

impl TorchVerifyReport {
    /// The report on `program`, of which there is a `recording`, and which was `measured` on `gpu`.
    ///
    /// # Errors
    ///
    /// The allocator's configuration is not PyTorch's.
    pub fn new(
        program: String,
        gpu: UsedGpu,
        recording: &Recording,
        measured: Measured,
        tolerance: f64,
    ) -> Result<Self, UserError> {
        let config = allocator_config(&recording.process)?;
        let trace = &recording.trace;
        let available = gpu.free.saturating_sub(gpu.overhead).0;
        let refused = Replay::of(trace, &config, available).refused;
        let capacity = match refused {
            None => available,
            Some(_) => u64::MAX,
        };
        let estimated = Counters::of(trace, &config, capacity);
        let counted = &measured.recording.counters;
        let trained = measured.ending == Outcome::Trained;
        let all_steps = trained.then(|| MostComparison::new(&estimated, counted));
        let device = measured.device.zip(all_steps).map(|(device, most)| {
            let reserved = most.max_reserved.estimated_bytes;
            FigureComparison::new(reserved + gpu.overhead, device)
        });
        let mut report = Self {
            schema: SCHEMA,
            program,
            torch: Torch::of(&measured.recording.process),
            gpu: gpu.name,
            steps: measured.recording.steps,
            same_phases: phases_of(&estimated) == phases_of(counted),
            refused: refused.map(|refused| reason(trace, &refused)),
            phases: last_step(&estimated, counted),
            all_steps,
            device,
            approximations: recording.approximations.clone(),
            tolerance,
            agrees: false,
            ending: measured.ending,
        };
        report.agrees = match (&report.ending, &report.refused) {
            (Outcome::Trained, None) => report.holds(),
            (Outcome::OutOfMemory(_), Some(_)) => true,
            _ => false,
        };
        Ok(report)
    }

    /// The worst error of what is allocated, and of what is reserved.
    pub fn worst_errors(&self) -> [f64; 2] {
        let most = self.phases.iter().map(|phase| phase.most);
        let most: Vec<_> = most.chain(self.all_steps).collect();
        let ends = self.phases.iter().map(|phase| phase.allocated.error);
        let allocated = ends.chain(most.iter().map(|most| most.errors()[0]));
        let reserved = most.iter().map(|most| most.errors()[1]);
        [allocated.reduce(worse), reserved.reduce(worse)].map(Option::unwrap_or_default)
    }

    fn holds(&self) -> bool {
        let near = |error| is_near(error, self.tolerance);
        self.same_phases
            && self.worst_errors().into_iter().all(near)
            && self.device.is_none_or(|device| device.error >= 0.0)
    }
}

fn phases_of(counters: &[Counters]) -> Vec<(Phase, usize)> {
    let phases = counters.iter();
    phases
        .map(|counters| (counters.phase, counters.step))
        .collect()
}

/// The phases of the last step of `measured`, beside the same of `estimated`.
fn last_step(estimated: &[Counters], measured: &[Counters]) -> Vec<PhaseComparison> {
    let last = measured.last().map(|counters| counters.step);
    let of_step = |of: &&Counters| Some(of.step) == last;
    let pairs = estimated
        .iter()
        .filter(of_step)
        .zip(measured.iter().filter(of_step));
    let same = pairs.filter(|(estimated, measured)| estimated.phase == measured.phase);
    same.map(|(estimated, measured)| PhaseComparison::new(estimated, measured))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use torch_memory::stream;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// One step: 4 MiB in the forward pass, in a segment of 20 MiB, and 18 MiB in the backward pass, in another.
    const RECORDED: &str = r#"["hello", {"version": 1, "torch": "2.15.0"}]
["p", "init", 0]
["p", "forward", 0]
["a", 0, 4194304, -1, -1, 0, 0, 0]
["p", "backward", 0]
["a", 1, 18874368, -1, -1, 0, 0, 0]
["f", 1]
["p", "optimizer", 0]
["bye", {"reason": "steps", "steps": 1}]
"#;

    /// The report where the GPU has `free` MiB, counts `counters` in its backward phase (in MiB), and has 40 MiB in use.
    pub(crate) fn report(free: u64, counters: [u64; 4], ending: Outcome) -> TorchVerifyReport {
        let line = |phase: &str, counters: [u64; 4]| {
            let [allocated, most, reserved, most_reserved] = counters.map(|mib| mib * MIB);
            format!("[\"c\", \"{phase}\", 0, {allocated}, {most}, {reserved}, {most_reserved}]\n")
        };
        let measured = [
            "[\"hello\", {\"version\": 1, \"torch\": \"2.15.0\"}]\n".into(),
            line("forward", [4, 4, 20, 20]),
            line("backward", counters),
            line("optimizer", [4, 4, 38, 38]),
            "[\"bye\", {\"reason\": \"steps\", \"steps\": 1}]\n".into(),
        ];
        let measured = Measured {
            recording: stream::read(measured.concat().as_bytes()).unwrap(),
            ending,
            device: Some(Bytes(40 * MIB)),
        };
        let gpu = UsedGpu {
            name: "NVIDIA Something".into(),
            free: Bytes(free * MIB),
            overhead: Bytes(10 * MIB),
        };
        let recording = stream::read(RECORDED.as_bytes()).unwrap();
        TorchVerifyReport::new("python train.py".into(), gpu, &recording, measured, 0.02).unwrap()
    }

    #[test]
    fn an_estimate_holds_that_is_what_the_gpu_counts() {
        let report = report(100, [4, 22, 38, 38], Outcome::Trained);
        assert!(report.agrees, "{report:?}");
        assert_eq!(report.worst_errors(), [0.0, 0.0]);
        let phases: Vec<_> = report.phases.iter().map(|phase| phase.phase).collect();
        assert_eq!(phases, [Phase::Forward, Phase::Backward, Phase::Optimizer]);
        let device = report.device.unwrap();
        assert_eq!(device.estimated_bytes, Bytes(48 * MIB));
        assert_eq!(device.error, 0.2);
    }

    #[test]
    fn an_estimate_does_not_hold_that_is_too_low_or_too_high() {
        for (counters, errors) in [
            ([5, 22, 38, 38], [-0.2, 0.0]),
            ([4, 11, 38, 38], [1.0, 0.0]),
            ([4, 22, 38, 76], [0.0, -0.5]),
        ] {
            let report = report(100, counters, Outcome::Trained);
            assert!(!report.agrees);
            assert_eq!(report.worst_errors(), errors);
        }
    }

    #[test]
    fn running_out_of_memory_is_as_estimated_or_not() {
        let full = || Outcome::OutOfMemory("CUDA out of memory".into());
        let as_estimated = report(40, [4, 22, 38, 38], full());
        assert!(as_estimated.agrees && as_estimated.refused.is_some());
        assert_eq!((as_estimated.all_steps, as_estimated.device), (None, None));
        assert!(!report(100, [4, 22, 38, 38], full()).agrees);
        assert!(!report(40, [4, 22, 38, 38], Outcome::Trained).agrees);
    }
}
