//! A program whose output is kept back, and shown only if it fails.

use tempfile::NamedTempFile;

use super::{Launch, Ran};
use crate::counting_driver::ProgramOutput;
use crate::user_error::UserError;
use crate::user_program::Sink;

/// The last lines of a program's output that an error shows.
const SHOWN_LINES: usize = 12;

/// What a program did and wrote.
#[derive(Debug)]
pub struct Quiet {
    /// What it did.
    pub ran: Ran,
    /// What it wrote to stdout and stderr.
    pub written: String,
}

impl Quiet {
    /// Runs a program until it ends or has been seen enough of.
    ///
    /// # Errors
    ///
    /// It cannot be started, or what is in its Python sent what is not understood.
    pub fn run(launch: &Launch<'_>) -> Result<Self, UserError> {
        let failed = |error: std::io::Error| UserError::new(error.to_string());
        let written = NamedTempFile::new().map_err(failed)?;
        let to = || written.reopen().map(Sink::File).map_err(failed);
        let ran = launch.run(ProgramOutput {
            stdout: to()?,
            stderr: to()?,
        });
        let ran = ran.map_err(UserError::from)?;
        let written = std::fs::read(written.path()).unwrap_or_default();
        Ok(Self {
            ran,
            written: String::from_utf8_lossy(&written).into_owned(),
        })
    }
}

/// Shows the last lines that a program wrote.
pub fn show_end(written: &str) {
    let lines: Vec<_> = written.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        anstream::eprintln!("  | {line}");
    }
}
