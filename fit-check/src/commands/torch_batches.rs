//! The largest batch of a PyTorch program: `max-batch` and `table` with a command.

use std::ffi::OsString;
use std::time::Duration;

use tempfile::NamedTempFile;
use torch_memory::stream::Recording;

use crate::cli;
use crate::counting_driver::ProgramOutput;
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::resolve::Card;
use crate::torch_program::batches::{Record, largest_batches};
use crate::torch_program::failure::failure;
use crate::torch_program::{Launch, placeholder};
use crate::user_error::UserError;
use crate::user_program::{GRACE, Sink};

/// The last lines of a program's output that an error shows.
const SHOWN_LINES: usize = 12;

/// How long one recording may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Finds the largest batch of `command` on each of `cards`, and writes the answer.
///
/// # Errors
///
/// There is no answer.
pub fn run(command: &[OsString], cards: &[Card], output: &cli::Output) -> anyhow::Result<u8> {
    placeholder::check(command)?;
    if cards.is_empty() {
        return Err(UserError::no_card("a largest batch needs a card").into());
    }
    output::check(output)?;
    interrupt::watch(GRACE)?;
    let mut program = Program {
        command,
        // Two recordings at small batches, and two at the answer of each card.
        progress: Progress::new(output.quiet, 2 + 2 * cards.len() as u64),
    };
    let report = largest_batches(placeholder::shown(command), cards, &mut program)?;
    program.progress.done();
    interrupt::disarm();
    output::write(&report, output)?;
    Ok(match report.cards.iter().all(|card| card.max_batch > 0) {
        true => FITS,
        false => DOES_NOT_FIT,
    })
}

struct Program<'a> {
    command: &'a [OsString],
    progress: Progress,
}

impl Record for Program<'_> {
    fn record(&mut self, card: &Card, batch: u64) -> Result<Recording, UserError> {
        let command = placeholder::with_batch(self.command, batch);
        self.progress.at(&format!("recording batch {batch}"));
        // It is run several times, and only what it writes before a failure is of use.
        let written = NamedTempFile::new().map_err(|error| UserError::new(error.to_string()))?;
        let to = || match written.reopen() {
            Ok(file) => Ok(Sink::File(file)),
            Err(error) => Err(UserError::new(error.to_string())),
        };
        let launch = Launch {
            command: &command,
            cards: std::slice::from_ref(card),
            steps: None,
            allow_writes: false,
            timeout: TIMEOUT,
        };
        let ran = launch.run(ProgramOutput {
            stdout: to()?,
            stderr: to()?,
        });
        let ran = ran.map_err(UserError::from)?;
        let name = placeholder::shown(&command);
        let failed = failure(&name, &ran.recordings, ran.ended, false);
        let mut recordings = ran.recordings.into_iter();
        match (failed, recordings.next(), recordings.next()) {
            (None, Some(recording), None) => Ok(recording),
            (Some(error), Some(_), _) => {
                show_end(&written);
                Err(error)
            }
            (None, Some(_), Some(_)) => Err(UserError::new(format!(
                "{name}: several of its processes use a GPU"
            ))
            .hint("the largest batch is found for one process; `fit-check run` follows several")),
            (_, None, _) => {
                show_end(&written);
                Err(UserError::new(format!(
                    "{name}: it {} and used no GPU through PyTorch",
                    ran.ended
                ))
                .hint("the program must train with PyTorch on `cuda`"))
            }
        }
    }
}

/// Shows the last lines that the program wrote.
fn show_end(written: &NamedTempFile) {
    let text = std::fs::read(written.path()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        anstream::eprintln!("  | {line}");
    }
}
