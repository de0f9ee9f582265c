//! A program that is recorded several times, so what it writes is shown only if it fails.

use std::ffi::OsString;
use std::time::Duration;

use torch_memory::stream::Recording;

use super::batches::Record;
use super::failure::{failure, unused};
use super::quiet::{Quiet, show_end};
use super::{Launch, placeholder};
use crate::resolve::Card;
use crate::user_error::UserError;

/// A program, with a place for the batch in its arguments.
#[derive(Debug)]
pub struct Silent<'a> {
    /// The program and its arguments, with [`placeholder::BATCH`].
    pub command: &'a [OsString],
    /// After how many optimizer steps it is ended; none: as soon as two make the same calls.
    pub steps: Option<usize>,
    /// Whether it may change the user's files.
    pub allow_writes: bool,
    /// How long one recording may take.
    pub timeout: Duration,
}

impl Record for Silent<'_> {
    fn record(&mut self, card: &Card, batch: u64) -> Result<Recording, UserError> {
        self.record_command(card, &placeholder::with_batch(self.command, batch))
    }
}

impl Silent<'_> {
    /// What the program does on `card` without a batch in its arguments.
    ///
    /// # Errors
    ///
    /// It does not come to the end of two steps.
    pub fn record_as_typed(&self, card: &Card) -> Result<Recording, UserError> {
        self.record_command(card, self.command)
    }

    fn record_command(&self, card: &Card, command: &[OsString]) -> Result<Recording, UserError> {
        let launch = Launch {
            command,
            cards: std::slice::from_ref(card),
            real: None,
            steps: self.steps,
            allow_writes: self.allow_writes,
            timeout: self.timeout,
        };
        let Quiet { ran, written } = Quiet::run(&launch)?;
        let name = placeholder::shown(command);
        let failed = failure(&name, &ran.recordings, ran.ended, false);
        let mut recordings = ran.recordings.into_iter();
        match (failed, recordings.next(), recordings.next()) {
            (None, Some(recording), None) => Ok(recording),
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
