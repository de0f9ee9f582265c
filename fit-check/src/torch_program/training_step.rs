//! fit-check's own training step in the person's Python (`training_step.py`): one process imports what it needs, and records each
//! request in a fork of itself (`forks.py` of the recorder), since most of the time goes into imports.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use tempfile::NamedTempFile;
use torch_memory::recorder::Recorder;
use torch_memory::stream::{self, Recording};

use super::failure::failure;
use super::launch::{not_understood, settings, unwritable};
use super::quiet::show_end;
use crate::counting_driver::{Ended, ended};
use crate::interrupt;
use crate::resolve::Card;
use crate::user_error::UserError;
use crate::user_program::{Sink, UserProgram, Writes};

/// The training step.
const SCRIPT: &str = include_str!("training_step.py");

/// The variable with the socket for requests (`VARIABLE` in `forks.py`).
const REQUESTS: &str = "FIT_CHECK_REQUESTS";

/// How long the imports may take, and each recording.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The time between two looks at the process.
const INTERVAL: Duration = Duration::from_millis(20);

/// What helps where the step does not run.
const OTHER_STEP: &str =
    "this step is fit-check's own; `fit-check run --gpu CARD -- python train.py` follows yours";

/// The training step, in a Python that is started when it is first needed.
#[derive(Debug, Default)]
pub struct TrainingStep {
    process: RefCell<Option<Process>>,
}

/// A Python that waits for requests.
#[derive(Debug)]
struct Process {
    python: PathBuf,
    // Ends before the folder of the recorder goes.
    program: UserProgram,
    connection: UnixStream,
    recorder: Recorder,
    written: NamedTempFile,
}

/// How a fork ended.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Status(i32),
    Signal(i32),
}

impl Answer {
    fn ended(self) -> Ended {
        match self {
            Self::Status(status) => Ended::Exited(status),
            Self::Signal(signal) => Ended::Signalled(signal),
        }
    }
}

impl TrainingStep {
    /// What the step with these `arguments`, which trains the network that errors call `about`, does on `card`.
    ///
    /// # Errors
    ///
    /// Python cannot be started, lacks a package, or the step fails.
    pub fn record(
        &self,
        python: &Path,
        about: &str,
        arguments: &[OsString],
        card: &Card,
    ) -> Result<Recording, UserError> {
        let mut process = self.process.borrow_mut();
        let known = process.take().filter(|process| process.python == python);
        let mut asked = match known {
            Some(known) => known,
            None => match Process::start(python, arguments, card)? {
                Ok(started) => started,
                Err((Ended::Interrupted, _)) => return Err(UserError::new("interrupted")),
                Err((ended, written)) => {
                    return Err(no_answer(about, &written, None, python, ended));
                }
            },
        };
        let before = bytes_of(&asked.written).len();
        let (answered, recordings) = asked.record(arguments, card)?;
        let written = bytes_of(&asked.written);
        let written = String::from_utf8_lossy(&written[before..]).into_owned();
        let ended = match answered {
            Ok(answer) => {
                // One that does not answer is not asked again.
                *process = Some(asked);
                answer.ended()
            }
            Err(ended) => ended,
        };
        if ended == Ended::Interrupted {
            return Err(UserError::new("interrupted"));
        }
        let failed = failure(about, &recordings, ended, false);
        let recording = recordings.into_iter().next();
        match (failed, recording) {
            (None, Some(recording)) => Ok(recording),
            (failed, recording) => {
                let raised = recording.is_some_and(|recording| {
                    matches!(recording.ended, Some(stream::Ended::Error { .. }))
                });
                let failed = failed.map(|failed| match raised {
                    true => failed.hint(OTHER_STEP),
                    false => failed,
                });
                Err(no_answer(about, &written, failed, python, ended))
            }
        }
    }
}

impl Process {
    /// Starts `python`, and waits until it has imported all that the step with these `arguments` needs; if it ends before, how,
    /// and what it wrote.
    fn start(
        python: &Path,
        arguments: &[OsString],
        card: &Card,
    ) -> Result<Result<Self, (Ended, String)>, UserError> {
        let failed = |error: std::io::Error| UserError::new(error.to_string());
        let cards = std::slice::from_ref(card);
        let recorder = Recorder::new(&settings(cards)).map_err(|error| unwritable(&error))?;
        let folder = recorder.folder().to_path_buf();
        // The recorder takes what is in its folder for none of the user's lines.
        let script = folder.join("training_step.py");
        std::fs::write(&script, SCRIPT).map_err(|error| unwritable(&error))?;
        let requests = folder.join("requests");
        let listener = UnixListener::bind(&requests).map_err(|error| unwritable(&error))?;
        listener.set_nonblocking(true).map_err(failed)?;
        let mut command = Command::new(python);
        command.arg(script).args(arguments);
        command.env(REQUESTS, &requests);
        recorder.apply(&mut command);
        let removed = folder.clone();
        interrupt::at_end(move || {
            // Gone already, if the process is no longer needed.
            let _ = std::fs::remove_dir_all(removed);
            None
        });
        let written = NamedTempFile::new().map_err(failed)?;
        let to = || written.reopen().map(Sink::File).map_err(failed);
        let writes = [folder.as_path()];
        let mut program = UserProgram::start(command, Writes::Only(&writes), to()?, to()?)?;
        let connected = await_ended(&mut program, || match listener.accept() {
            Ok((connection, _)) => Some(connection),
            Err(_) => None,
        });
        let connection = match connected.map_err(failed)? {
            Ok(connection) => connection,
            Err(ended) => {
                drop(program);
                let written = String::from_utf8_lossy(&bytes_of(&written)).into_owned();
                return Ok(Err((ended, written)));
            }
        };
        connection.set_nonblocking(true).map_err(failed)?;
        Ok(Ok(Self {
            python: python.into(),
            program,
            connection,
            recorder,
            written,
        }))
    }

    /// How a fork for `card` ended, or this process before it answered; and what the fork did.
    fn record(
        &mut self,
        arguments: &[OsString],
        card: &Card,
    ) -> Result<(Result<Answer, Ended>, Vec<Recording>), UserError> {
        let failed = |error: std::io::Error| UserError::new(error.to_string());
        let recorder = self.recorder.another(&settings(std::slice::from_ref(card)));
        let recorder = recorder.map_err(|error| unwritable(&error))?;
        let arguments: Vec<_> = arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let request = json!({ "settings": recorder.settings(), "arguments": arguments });
        let mut answer = Vec::new();
        // A process that has ended does not read; how it ended is found below.
        let _ = self.connection.write_all(format!("{request}\n").as_bytes());
        let (program, connection) = (&mut self.program, &mut self.connection);
        let answered = await_ended(program, || {
            let mut bytes = [0; 256];
            match connection.read(&mut bytes) {
                Ok(length) => answer.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
            let line = answer.strip_suffix(b"\n")?;
            serde_json::from_slice::<Answer>(line).ok()
        });
        let answered = answered.map_err(failed)?;
        let recordings = recorder.finish().map_err(|error| not_understood(&error))?;
        Ok((answered, recordings))
    }
}

/// What `look` finds, or how `program` ended before.
fn await_ended<T>(
    program: &mut UserProgram,
    mut look: impl FnMut() -> Option<T>,
) -> std::io::Result<Result<T, Ended>> {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return Ok(Ok(found));
        }
        if let Some(status) = program.wait(INTERVAL)? {
            return Ok(Err(ended(status)));
        }
        if interrupt::requested() {
            return Ok(Err(Ended::Interrupted));
        }
        if Instant::now() >= until {
            return Ok(Err(Ended::TimedOut(TIMEOUT.as_secs())));
        }
    }
}

fn bytes_of(written: &NamedTempFile) -> Vec<u8> {
    std::fs::read(written.path()).unwrap_or_default()
}

/// Why the step came to no answer: what it wrote, what it raised, or how it ended.
fn no_answer(
    about: &str,
    written: &str,
    failed: Option<UserError>,
    python: &Path,
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
            let python = python.display();
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
