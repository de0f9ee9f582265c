//! A program that is recorded several times, so what it writes is shown only if it fails.

use std::ffi::OsString;
use std::time::Duration;

use torch_memory::stream::{self, Recording};

use super::batches::Record;
use super::failure::{failure, unused};
use super::quiet::{Quiet, show_end};
use super::{Launch, placeholder};
use crate::counting_driver::Ended;
use crate::progress::Progress;
use crate::resolve::Card;
use crate::user_error::UserError;

/// What helps where fit-check's own step does not run.
const OTHER_STEP: &str =
    "this step is fit-check's own; `fit-check run --gpu CARD -- python train.py` follows yours";

/// A program, with a place for the batch in its arguments.
#[derive(Debug)]
pub struct Silent<'a> {
    /// The program and its arguments, with [`placeholder::BATCH`].
    pub command: &'a [OsString],
    /// fit-check's own script, which the first word of the command runs; none for a program of the user.
    pub script: Option<Script<'a>>,
    /// After how many optimizer steps it is ended; none: as soon as two make the same calls.
    pub steps: Option<u32>,
    /// Whether it may change the user's files.
    pub allow_writes: bool,
    /// How long one recording may take.
    pub timeout: Duration,
}

/// A script that fit-check carries.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// Its text.
    pub text: &'static str,
    /// What it is run for, as an error calls it.
    pub about: &'a str,
}

/// [`Silent`], and where its progress is shown.
pub struct Followed<'a> {
    /// The program.
    pub program: Silent<'a>,
    /// Its progress, one step for each recording.
    pub progress: &'a Progress,
}

impl Record for Followed<'_> {
    fn record(&mut self, card: &Card, batch: u64) -> Result<Recording, UserError> {
        self.progress.at(&format!("recording batch {batch}"));
        self.program.record(card, batch)
    }
}

impl Silent<'_> {
    /// What the program does on `card` with `batch`.
    ///
    /// # Errors
    ///
    /// It does not come to the end of two steps.
    pub fn record(&self, card: &Card, batch: u64) -> Result<Recording, UserError> {
        self.record_command(card, &placeholder::with_batch(self.command, batch))
    }

    /// What the program does on `card` without a batch in its arguments.
    ///
    /// # Errors
    ///
    /// As for [`Self::record`].
    pub fn record_as_typed(&self, card: &Card) -> Result<Recording, UserError> {
        self.record_command(card, self.command)
    }

    fn record_command(&self, card: &Card, command: &[OsString]) -> Result<Recording, UserError> {
        let launch = Launch {
            command,
            script: self.script.map(|script| script.text),
            cards: std::slice::from_ref(card),
            real: None,
            steps: self.steps,
            allow_writes: self.allow_writes,
            timeout: self.timeout,
        };
        let Quiet { ran, written } = Quiet::run(&launch)?;
        let name = match &self.script {
            Some(script) => script.about.to_string(),
            None => placeholder::shown(command),
        };
        let failed = failure(&name, &ran.recordings, ran.ended, false);
        let mut recordings = ran.recordings.into_iter();
        match (failed, recordings.next(), recordings.next()) {
            (None, Some(recording), None) => Ok(recording),
            (failed, recording, _) if self.script.is_some() => {
                let raised = recording.is_some_and(|recording| {
                    matches!(recording.ended, Some(stream::Ended::Error { .. }))
                });
                let failed = failed.map(|failed| match raised {
                    true => failed.hint(OTHER_STEP),
                    false => failed,
                });
                Err(of_script(&name, &written, failed, &command[0], ran.ended))
            }
            (Some(error), Some(_), _) => {
                show_end(&written);
                Err(error)
            }
            (None, Some(_), Some(_)) => Err(several_processes(&name)),
            (_, None, _) => {
                show_end(&written);
                Err(unused(command, ran.ended))
            }
        }
    }
}

/// That several processes of `program` use a GPU, where one is followed.
pub fn several_processes(program: &str) -> UserError {
    UserError::new(format!("{program}: several of its processes use a GPU"))
        .hint("this is about one process; `fit-check run` follows several")
}

/// Why fit-check's own script came to no answer: what it wrote, what it raised, or how it ended.
fn of_script(
    about: &str,
    written: &str,
    failed: Option<UserError>,
    python: &OsString,
    ended: Ended,
) -> UserError {
    let line = |start: &str| {
        let mut lines = written.lines().rev();
        lines.find_map(|line| line.strip_prefix(start).map(str::to_string))
    };
    match (line("error: "), line("hint: "), failed) {
        (Some(error), Some(hint), _) => UserError::new(error).hint(hint),
        (Some(error), None, _) => UserError::new(error),
        (None, _, Some(failed)) => failed,
        (None, _, None) => {
            // Without torch or transformers it is the Python that does not serve.
            let raised = last_raised(written);
            if let Some(raised) = raised.filter(|raised| !raised.starts_with("ModuleNotFound")) {
                return UserError::new(format!("{about}: {raised}")).hint(OTHER_STEP);
            }
            show_end(written);
            let python = python.to_string_lossy();
            UserError::new(format!(
                "{python}: the training step {ended} without PyTorch"
            ))
            .hint("--python PATH names a Python 3.10 or newer with torch and transformers")
        }
    }
}

/// The exception with which a Python program ended, if it wrote a traceback: the last line that begins with a name.
fn last_raised(written: &str) -> Option<&str> {
    let (_, traceback) = written.rsplit_once("Traceback (most recent call last):\n")?;
    let mut lines = traceback.lines();
    lines.rfind(|line| {
        let name = line.split(':').next().unwrap_or_default();
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || "._".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of several lines, as of huggingface_hub's `StrictDataclassClassValidationError`.
    #[test]
    fn a_traceback_ends_with_the_exception() {
        let written = "note\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\n\
            package.SomeError: the value is wrong\n    TypeError: and more\n";
        assert_eq!(
            last_raised(written),
            Some("package.SomeError: the value is wrong")
        );
        assert_eq!(last_raised("killed: by the system\n"), None);
    }
}
