//! A PyTorch program: its recording beside what the GPU of this machine counts.

use std::ffi::OsString;
use std::time::Duration;

use estimator::{Runtime, Tuning};

use super::fit::percent;
use crate::cli;
use crate::device_memory::DeviceMemory;
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::local_gpu::LocalGpu;
use crate::progress::Progress;
use crate::torch_program::launch::VISIBLE_DEVICES;
use crate::torch_program::measured::Measured;
use crate::torch_program::report::Torch;
use crate::torch_program::silent::Silent;
use crate::torch_program::verify_report::{TorchVerifyReport, UsedGpu};
use crate::torch_program::{Launch, placeholder};
use crate::user_error::UserError;
use crate::user_program::GRACE;
use crate::{interrupt, output, values};

/// Verifies the program of `raw`.
pub(super) fn run(raw: &cli::Verify, timeout: Duration) -> anyhow::Result<u8> {
    let tolerance = percent(&raw.tolerance)?;
    let steps = values::optional_count("--steps", raw.steps.as_deref())?;
    let gpu = find_gpu(&raw.command)?;
    interrupt::watch(GRACE)?;
    let program = Program {
        command: &raw.command,
        steps,
        allow_writes: raw.allow_writes,
        timeout,
    };
    let progress = Progress::new(raw.output.quiet, 2);
    let report = program.verify(gpu, tolerance, &progress)?;
    progress.done();
    interrupt::disarm();
    output::write(&report, &raw.output)?;
    Ok(match report.agrees {
        true => FITS,
        false => DOES_NOT_FIT,
    })
}

/// A program to verify.
struct Program<'a> {
    /// The program and its arguments.
    command: &'a [OsString],
    /// Optimizer steps that it makes; none: until two make the same calls.
    steps: Option<usize>,
    /// Whether it may change the user's files.
    allow_writes: bool,
    /// How long it may run each time.
    timeout: Duration,
}

impl Program<'_> {
    /// Records the program, and then runs it on `gpu` for as many steps.
    fn verify(
        &self,
        gpu: LocalGpu,
        tolerance: f64,
        progress: &Progress,
    ) -> Result<TorchVerifyReport, UserError> {
        let card = gpu.card(Runtime::Cuda, Tuning::Cold);
        progress.at("recording the program");
        let silent = Silent {
            command: self.command,
            steps: self.steps,
            allow_writes: self.allow_writes,
            timeout: self.timeout,
        };
        let recording = silent.record_as_typed(&card)?;
        check_build(&Torch::of(&recording.process))?;
        progress.at(&format!("training on {}", gpu.name));
        let memory = DeviceMemory::of(&gpu);
        let used = memory.as_ref().map(DeviceMemory::before);
        let launch = Launch {
            command: self.command,
            cards: std::slice::from_ref(&card),
            real: Some(&gpu),
            steps: Some(recording.steps),
            allow_writes: self.allow_writes,
            timeout: self.timeout,
        };
        let measured = Measured::run(&launch, memory);
        let measured = measured.map_err(|error| error.about(format_args!("on {}", gpu.name)))?;
        let used_gpu = UsedGpu {
            free: gpu.usable.saturating_sub(used.unwrap_or_default()),
            overhead: card.device.card.overhead,
            name: gpu.name,
        };
        let program = placeholder::shown(self.command);
        TorchVerifyReport::new(program, used_gpu, &recording, measured, tolerance)
    }
}

/// The GPU of this machine that the program of `command` is to use.
fn find_gpu(command: &[OsString]) -> Result<LocalGpu, UserError> {
    let program = placeholder::shown(command);
    let hint = format!("`fit-check run --gpu CARD -- {program}` answers without a GPU");
    let all = LocalGpu::all().map_err(|error| {
        let error = format!(
            "a program is verified on an NVIDIA GPU, and this machine has no driver for one: {error}"
        );
        UserError::new(error).hint(&hint)
    })?;
    let visible = std::env::var(VISIBLE_DEVICES).ok();
    let none = match &visible {
        Some(visible) => format!("{VISIBLE_DEVICES}={visible} names no NVIDIA GPU of this machine"),
        None => "a program is verified on an NVIDIA GPU, and this machine has none".into(),
    };
    LocalGpu::chosen(all, visible.as_deref()).ok_or_else(|| UserError::new(none).hint(hint))
}

/// Checks that `torch` can use a GPU.
fn check_build(torch: &Torch) -> Result<(), UserError> {
    match torch.cuda {
        Some(_) => Ok(()),
        None => Err(UserError::new(format!(
            "PyTorch {} was built without CUDA",
            torch.version
        ))
        .hint(
            "https://pytorch.org/get-started/locally has the command that installs it with CUDA; `fit-check run` needs none",
        )),
    }
}

#[cfg(test)]
mod tests {
    use estimator::{Bytes, Phase};

    use super::*;
    use crate::measure::Outcome;

    #[test]
    fn a_build_without_cuda_is_told() {
        let torch = |cuda: Option<&str>| Torch {
            version: "2.15.0+cpu".into(),
            cuda: cuda.map(str::to_string),
            ..Torch::default()
        };
        let error = check_build(&torch(None)).unwrap_err().to_string();
        let start = "error: PyTorch 2.15.0+cpu was built without CUDA\nhint: ";
        assert!(error.starts_with(start), "{error}");
        assert!(check_build(&torch(Some("13.2"))).is_ok());
    }

    /// A program that finds a card while it is recorded. Afterwards there is none, and counters stand in for those of a GPU.
    const SCRIPT: &str = r#"
import sys, torch
recorded = torch.cuda.is_available()
if not recorded:
    names = [f"{kind}_bytes.all.{which}" for kind in ("allocated", "reserved") for which in ("current", "peak")]
    torch.cuda.is_initialized = lambda: True
    torch.cuda.memory_stats = lambda device=None: dict(zip(names, (1 << 20, 2 << 20, 22 << 20, 22 << 20)))
    torch.cuda.reset_peak_memory_stats = lambda device=None: None
model = torch.nn.Linear(512, 512).to("cuda" if recorded else "cpu")
optimizer = torch.optim.Adam(model.parameters())
open("written", "w").close()
for step in range(100):
    if step == 1 and not recorded and "full" in sys.argv:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    if step == 1 and not recorded and "fail" in sys.argv:
        raise ValueError("not on this GPU")
    model(torch.ones(8, 512, device=model.weight.device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"#;

    /// What `verify` says of [`SCRIPT`] with an argument; none where there is no PyTorch to run it with.
    fn verified(argument: &str) -> Option<Result<TorchVerifyReport, UserError>> {
        let python = std::env::var_os("FIT_CHECK_TORCH_PYTHON")?;
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("train.py");
        std::fs::write(&script, SCRIPT).unwrap();
        let program = Program {
            command: &[python, script.into(), argument.into()],
            steps: Some(2),
            allow_writes: false,
            timeout: Duration::from_secs(300),
        };
        let gpu = LocalGpu {
            name: "NVIDIA GeForce RTX 3090".into(),
            uuid: "GPU-none".into(),
            usable: Bytes::gib(23),
            total: Bytes::gib(24),
            compute_capability: 86,
        };
        let report = program.verify(gpu, 0.02, &Progress::new(true, 2));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        Some(report)
    }

    #[test]
    fn a_program_is_recorded_and_then_measured() {
        let Some(report) = verified("") else {
            return;
        };
        let report = report.unwrap();
        assert_eq!((&report.ending, report.steps), (&Outcome::Trained, 2));
        assert!(report.same_phases && report.device.is_none());
        let phases = report.phases.iter();
        let phases: Vec<_> = phases.map(|phase| (phase.phase, phase.step)).collect();
        let expected = [Phase::Forward, Phase::Backward, Phase::Optimizer];
        assert_eq!(phases, expected.map(|phase| (phase, 1)));
        let allocated = report.phases[0].allocated;
        assert_eq!(allocated.measured_bytes, Bytes::mib(1));
        // Weights of 1 MiB and twice as much of Adam's state.
        assert!(allocated.estimated_bytes > Bytes::mib(3));
        assert!(!report.agrees);
    }

    #[test]
    fn a_program_that_fails_on_the_gpu_alone_is_told() {
        let (Some(full), Some(failed)) = (verified("full"), verified("fail")) else {
            return;
        };
        let full = full.unwrap();
        let message = "CUDA out of memory. Tried to allocate 2.00 GiB.";
        assert_eq!(full.ending, Outcome::OutOfMemory(message.into()));
        assert_eq!((full.steps, full.agrees), (1, false));
        let error = failed.unwrap_err().to_string();
        assert!(
            error.contains("train.py:16: ValueError: not on this GPU\nhint: it could be recorded"),
            "{error}"
        );
    }
}
