//! A PyTorch program that did not come to an answer: what happened, in which line of the person's own script, and what to do.

use std::ffi::OsString;
use std::path::Path;

use torch_memory::stream::{self, ProgramError, Recording};

use super::placeholder;
use super::python::lacks_torch;
use crate::counting_driver::Ended;
use crate::user_error::{UserError, first_line};

/// What a recording on a card that does not exist cannot give a program.
const ZEROS: &str = "there is no GPU: a value that the program reads from one and that depends on data is zero, which may be what it fails at";

/// Why `recordings` are no answer about whole steps; none if they are. `program` is what was started, `ended` how it
/// ended; with `without_step` a program need not make an optimizer step.
pub fn failure(
    program: &str,
    recordings: &[Recording],
    ended: Ended,
    without_step: bool,
) -> Option<UserError> {
    let raised = recordings
        .iter()
        .find_map(|recording| match &recording.ended {
            Some(stream::Ended::Error { error }) => Some((recording, error)),
            _ => None,
        });
    if let Some((recording, error)) = raised {
        let process = &recording.process;
        let raised = raised_error(program, error);
        return Some(match process.world_size {
            0 | 1 => raised,
            _ => raised.about(format_args!("rank {}", process.rank)),
        });
    }
    if let Some(error) = missing_rank(program, recordings, ended) {
        return Some(error);
    }
    let steps = recordings.iter().map(|recording| recording.steps).min();
    let cut = recordings
        .iter()
        .any(|recording| matches!(recording.ended, None | Some(stream::Ended::Killed)));
    match (cut, steps) {
        (true, _) => Some(ended_early(program, ended)),
        (false, Some(0)) if !without_step => Some(
            UserError::new(format!("{program}: it ended without an optimizer step")).hint(
                "is the training loop reached with these arguments? --steps 0 answers for a program that makes none",
            ),
        ),
        (false, Some(steps)) => match ended {
            Ended::Exited(status) if status != 0 && exited(recordings) => Some(
                UserError::new(format!(
                    "{program}: it {ended} after {steps} optimizer step{}",
                    if steps == 1 { "" } else { "s" }
                ))
                .hint("what it wrote before it ended says why"),
            ),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the program ended by itself, and not because the recorder had seen enough.
fn exited(recordings: &[Recording]) -> bool {
    let mut recordings = recordings.iter();
    recordings.any(|recording| recording.ended == Some(stream::Ended::Exit))
}

/// That a process of one training failed before it used a GPU.
fn missing_rank(program: &str, recordings: &[Recording], ended: Ended) -> Option<UserError> {
    let processes = recordings
        .iter()
        .map(|recording| recording.process.world_size)
        .max()?;
    let failed = matches!(ended, Ended::Exited(status) if status != 0);
    (failed && (recordings.len() as u32) < processes).then(|| {
        UserError::new(format!(
            "{program}: {} of its {processes} processes used a GPU, and it {ended}",
            recordings.len()
        ))
        .hint("name a card for each process: repeat --gpu; what it wrote says what else is wrong")
    })
}

/// Why there is nothing to tell about the program of `command`, which `ended` and used no GPU through PyTorch.
pub fn unused(command: &[OsString], ended: Ended) -> UserError {
    let shown = placeholder::shown(command);
    let python = Path::new(&command[0]);
    if ended != Ended::Exited(0) && lacks_torch(python) {
        let python = python.display();
        return UserError::new(format!("{python} has no torch")).hint(format!(
            "activate the environment that has it, or {python} -m pip install torch"
        ));
    }
    match ended {
        Ended::Exited(0) => UserError::new(format!("{shown}: it used no GPU through PyTorch"))
            .hint("the model has to be on the GPU, by model.cuda() or device=\"cuda\", and torch.cuda.is_available() is true"),
        Ended::TimedOut(_) | Ended::Interrupted | Ended::Signalled(9) => ended_early(&shown, ended),
        _ => UserError::new(format!("{shown}: it {ended} and used no GPU through PyTorch")).hint(
            "what it wrote before it ended says why; if it asks for a second GPU, repeat --gpu",
        ),
    }
}

fn raised_error(program: &str, error: &ProgramError) -> UserError {
    let place = match (&error.file, error.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.clone(),
        (None, _) => program.to_string(),
    };
    let class = match error.class.as_str() {
        // The recorder's own, whose text says all.
        "" | "Unsupported" | "UnsupportedTorchError" => String::new(),
        class => format!("{class}: "),
    };
    let hint = error
        .hint
        .clone()
        .unwrap_or_else(|| usual_hint(error).into());
    UserError::new(format!("{place}: {class}{}", first_line(&error.message))).hint(hint)
}

/// The hint for an error about which the recorder has none.
fn usual_hint(error: &ProgramError) -> &'static str {
    match error.class.as_str() {
        "UnsupportedTorchError" => {
            "python -m pip install --upgrade torch, in an environment of its own"
        }
        // What the recorder says of a card that is not there (`card.py`), in the words of CUDA.
        _ if error.message.contains("invalid device ordinal") => {
            "name a card for each GPU that the program uses: repeat --gpu"
        }
        _ => ZEROS,
    }
}

fn ended_early(program: &str, ended: Ended) -> UserError {
    let hint = match ended {
        Ended::TimedOut(_) => "--timeout SECONDS gives it longer; few steps are enough",
        Ended::Interrupted => "start it again, and let it make two optimizer steps",
        Ended::Signalled(9) => {
            "the system ends a program like this if it takes too much of the processor's memory: try a smaller batch"
        }
        _ => "what it wrote before it ended says why",
    };
    UserError::new(format!(
        "{program}: it {ended} before it had made enough optimizer steps"
    ))
    .hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(ended: &str) -> Recording {
        let lines = format!("[\"hello\", {{\"version\": 1}}]\n{ended}\n");
        stream::read(lines.as_bytes()).unwrap()
    }

    fn told(ended: &str, how: Ended) -> String {
        failure("python train.py", &[recording(ended)], how, false)
            .map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn an_error_names_the_line_of_the_script() {
        let error = r#"["bye", {"reason": "error", "steps": 0, "error": {"type": "KeyError", "message": "'x'\nmore", "file": "train.py", "line": 7}}]"#;
        let text = told(error, Ended::Exited(1));
        assert!(
            text.starts_with("error: train.py:7: KeyError: 'x'\nhint: there is no GPU"),
            "{text}"
        );
        let own = r#"["bye", {"reason": "error", "error": {"type": "Unsupported", "message": "PyTorch 2.3 is too old", "hint": "2.10 or newer"}}]"#;
        assert_eq!(
            told(own, Ended::Exited(1)),
            "error: python train.py: PyTorch 2.3 is too old\nhint: 2.10 or newer"
        );
        let old = r#"["bye", {"reason": "error", "error": {"type": "UnsupportedTorchError", "message": "PyTorch 2.3 is too old"}}]"#;
        let text = told(old, Ended::Exited(2));
        let start = "error: python train.py: PyTorch 2.3 is too old\nhint: python -m pip install --upgrade torch";
        assert!(text.starts_with(start), "{text}");
        let second = r#"["bye", {"reason": "error", "error": {"type": "AcceleratorError", "message": "CUDA error: invalid device ordinal (cuda:1)"}}]"#;
        assert!(told(second, Ended::Exited(1)).contains("repeat --gpu"));
    }

    #[test]
    fn a_program_that_does_not_step_or_is_ended_is_told_so() {
        let exit = r#"["bye", {"reason": "exit", "steps": 0}]"#;
        assert!(told(exit, Ended::Exited(0)).contains("without an optimizer step"));
        assert!(failure("p", &[recording(exit)], Ended::Exited(0), true).is_none());
        let early = r#"["bye", {"reason": "exit", "steps": 1}]"#;
        assert!(told(early, Ended::Exited(3)).contains("status 3 after 1 optimizer step\n"));
        assert_eq!(told(early, Ended::Exited(0)), "");
        assert!(told("", Ended::Signalled(9)).contains("signal 9"));
        assert!(told("", Ended::TimedOut(3)).contains("--timeout"));
        let steps = r#"["bye", {"reason": "steps", "steps": 2}]"#;
        assert_eq!(told(steps, Ended::Exited(0)), "");
    }

    #[test]
    fn a_process_that_failed_before_it_used_a_gpu_is_missed() {
        let rank = r#"["hello", {"version": 1, "rank": 0, "world_size": 2}]
["bye", {"reason": "steps", "steps": 2}]"#;
        let rank = stream::read(rank.as_bytes()).unwrap();
        let of = |ended| failure("torchrun t.py", std::slice::from_ref(&rank), ended, false);
        let error = of(Ended::Exited(1)).map_or_else(String::new, |error| error.to_string());
        assert!(error.contains("1 of its 2 processes used a GPU"), "{error}");
        // One rank of several, started by hand.
        assert!(of(Ended::Exited(0)).is_none());
    }
}
