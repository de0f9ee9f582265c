//! A PyTorch program on the GPU of this machine: what its own PyTorch counted.

use estimator::Bytes;
use torch_memory::stream::{self, ProgramError, Recording};

use super::failure::failure;
use super::quiet::{Quiet, show_end};
use super::silent::several_processes;
use super::{Launch, Ran, placeholder};
use crate::device_memory::DeviceMemory;
use crate::measure::Outcome;
use crate::user_error::{UserError, first_line};

/// What helps where a program was recorded and does not run on the GPU.
const ONLY_ON_THE_GPU: &str =
    "it could be recorded, and failed on the GPU: does it train there without fit-check?";

/// What a program did on the GPU.
#[derive(Debug)]
pub struct Measured {
    /// What its process sent.
    pub recording: Recording,
    /// How it ended: it trained, or ran out of memory.
    pub ending: Outcome,
    /// The most that was in use on the GPU beyond what was there before, if NVML tells.
    pub device: Option<Bytes>,
}

impl Measured {
    /// Runs a program on its GPU, whose memory is read by `memory`.
    ///
    /// # Errors
    ///
    /// It does not come to the end of its steps, for another reason than memory.
    pub fn run(launch: &Launch<'_>, memory: Option<DeviceMemory>) -> Result<Self, UserError> {
        let Quiet { ran, written } = Quiet::run(launch)?;
        let device = memory.and_then(DeviceMemory::most);
        let program = placeholder::shown(launch.command);
        let measured = Self::of(&program, ran, device);
        measured.inspect_err(|_| show_end(&written))
    }

    /// What `program` did that `ran`.
    fn of(program: &str, ran: Ran, device: Option<Bytes>) -> Result<Self, UserError> {
        let failed = failure(program, &ran.recordings, ran.ended, false);
        let mut recordings = ran.recordings.into_iter();
        let recording = match (recordings.next(), recordings.next()) {
            (Some(only), None) => only,
            (Some(_), Some(_)) => return Err(several_processes(program)),
            (None, _) => {
                let ended = ran.ended;
                return Err(UserError::new(format!(
                    "{program}: it {ended} and did not use the GPU"
                ))
                .hint(ONLY_ON_THE_GPU));
            }
        };
        let raised = match &recording.ended {
            Some(stream::Ended::Error { error }) => Some(error),
            _ => None,
        };
        let ending = match (raised, failed) {
            (Some(error), _) if is_out_of_memory(error) => {
                Outcome::OutOfMemory(first_line(&error.message))
            }
            (Some(_), Some(failed)) => return Err(failed.hint(ONLY_ON_THE_GPU)),
            (None, Some(failed)) => return Err(failed),
            (_, None) => Outcome::Trained,
        };
        Ok(Self {
            recording,
            ending,
            device,
        })
    }
}

/// Whether PyTorch, or a library that it calls, found no memory on the GPU.
fn is_out_of_memory(error: &ProgramError) -> bool {
    let message = error.message.to_lowercase();
    // cuBLAS and cuDNN: `CUBLAS_STATUS_ALLOC_FAILED`, `CUDNN_STATUS_ALLOC_FAILED`.
    let texts = [
        "cuda out of memory",
        "cuda error: out of memory",
        "status_alloc_failed",
    ];
    error.class == "OutOfMemoryError" || texts.iter().any(|text| message.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting_driver::Ended;

    fn measured(lines: &[&str], ended: Ended) -> Result<Measured, String> {
        let recording = |ending: &&str| {
            let lines = format!("[\"hello\", {{\"version\": 1}}]\n{ending}\n");
            stream::read(lines.as_bytes()).unwrap()
        };
        let ran = Ran {
            ended,
            recordings: lines.iter().map(recording).collect(),
            journal: None,
        };
        let measured = Measured::of("python train.py", ran, None);
        measured.map_err(|error| error.to_string())
    }

    fn raised(class: &str, message: &str) -> String {
        format!(
            r#"["bye", {{"reason": "error", "steps": 0, "error": {{"type": "{class}", "message": "{message}", "file": "train.py", "line": 7}}}}]"#
        )
    }

    #[test]
    fn a_program_trains_or_runs_out_of_memory() {
        let steps = r#"["bye", {"reason": "steps", "steps": 3}]"#;
        let trained = measured(&[steps], Ended::Exited(0)).unwrap();
        assert_eq!(
            (trained.ending, trained.recording.steps),
            (Outcome::Trained, 3)
        );
        for (class, message) in [
            (
                "OutOfMemoryError",
                "CUDA out of memory. Tried to allocate 2.00 GiB.",
            ),
            (
                "RuntimeError",
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
            ),
        ] {
            let full = measured(&[&raised(class, message)], Ended::Exited(1)).unwrap();
            assert_eq!(full.ending, Outcome::OutOfMemory(message.into()));
        }
    }

    #[test]
    fn any_other_end_is_an_error_with_a_hint() {
        let exit = r#"["bye", {"reason": "exit", "steps": 0}]"#;
        let other = raised("RuntimeError", "no kernel image is available");
        for (lines, ended, told) in [
            (
                vec![],
                Ended::Exited(1),
                "it ended with status 1 and did not use the GPU\nhint: it could be recorded",
            ),
            (
                vec![exit],
                Ended::Exited(0),
                "without an optimizer step\nhint: ",
            ),
            (
                vec![&other[..]],
                Ended::Exited(1),
                "train.py:7: RuntimeError: no kernel image is available\nhint: it could be recorded",
            ),
            (vec![""], Ended::TimedOut(5), "still running after 5 s"),
            (
                vec![exit, exit],
                Ended::Exited(0),
                "several of its processes",
            ),
        ] {
            let error = measured(&lines, ended).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
