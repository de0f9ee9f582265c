//! A PyTorch program that did not come to an answer: what happened, in which line of the person's own script, and what to do.

use torch_memory::stream::{self, ProgramError, Recording};

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
            Some(stream::Ended::Error { error }) => Some(error),
            _ => None,
        });
    if let Some(error) = raised {
        return Some(raised_error(program, error));
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
        _ => None,
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
        "" | "Unsupported" => String::new(),
        class => format!("{class}: "),
    };
    let hint = error.hint.clone().unwrap_or_else(|| ZEROS.into());
    UserError::new(format!("{place}: {class}{}", first_line(&error.message))).hint(hint)
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
        "{program}: it {ended} before it had made two equal optimizer steps"
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
    }

    #[test]
    fn a_program_that_does_not_step_or_is_ended_is_told_so() {
        let exit = r#"["bye", {"reason": "exit", "steps": 0}]"#;
        assert!(told(exit, Ended::Exited(0)).contains("without an optimizer step"));
        assert!(failure("p", &[recording(exit)], Ended::Exited(0), true).is_none());
        assert!(told("", Ended::Signalled(9)).contains("signal 9"));
        assert!(told("", Ended::TimedOut(3)).contains("--timeout"));
        let steps = r#"["bye", {"reason": "steps", "steps": 2}]"#;
        assert_eq!(told(steps, Ended::Exited(0)), "");
    }
}
