//! The largest batch of a PyTorch program: `max-batch` and `table` with a command.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use torch_memory::saved::is_saved;

use crate::cli::{self, Advise};
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::input_options::TypedSizes;
use crate::interrupt;
use crate::job_info::{GpuName, SCHEMA};
use crate::output::file::{File, check_apart};
use crate::output::{self, sweep::CurveFile};
use crate::progress::Progress;
use crate::resolve::Card;
use crate::torch_program::batches::{
    Followed, Found, TorchTableReport, TorchTableRow, largest_batches, recordings,
};
use crate::torch_program::placeholder;
use crate::torch_program::report::Torch;
use crate::torch_program::silent::Silent;
use crate::user_error::UserError;
use crate::user_program::GRACE;
use crate::values;

/// How long one recording may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A program, and what is asked about it.
#[derive(Debug)]
pub struct Asked<'a> {
    command: &'a [OsString],
    /// The lengths of a sequence; empty if the program has no place for one.
    seqs: Vec<u64>,
    allow_writes: bool,
    timeout: Duration,
}

impl<'a> Asked<'a> {
    /// Reads the options.
    ///
    /// # Errors
    ///
    /// A value is invalid, or the command lacks a placeholder.
    pub fn new(
        command: &'a [OsString],
        sizes: &TypedSizes,
        options: &cli::ProgramOptions,
    ) -> Result<Self, UserError> {
        placeholder::check(command)?;
        let seqs = sizes.seqs()?;
        placeholder::check_seq(command, !seqs.is_empty())?;
        let timeout = options.timeout.as_deref();
        let timeout = timeout.map(|text| values::seconds("--timeout", text));
        Ok(Self {
            command,
            seqs,
            allow_writes: options.allow_writes,
            timeout: timeout.transpose()?.unwrap_or(TIMEOUT),
        })
    }

    /// The answer of `max-batch`, for one length of a sequence at most.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn max_batch(&self, raw: &cli::MaxBatch, cards: &[Card]) -> anyhow::Result<u8> {
        let kept = raw.save.as_deref();
        let kept = kept.map(|path| kept_file(path, &raw.output)).transpose()?;
        output::check(&raw.output)?;
        let found = self.found(cards, raw.advise, raw.output.quiet)?.remove(0);
        write(&found, &raw.output, kept)
    }

    /// The answer of `table`, with a row for each length of a sequence.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn table(&self, raw: &cli::Table, cards: &[Card]) -> anyhow::Result<u8> {
        let curve = CurveFile::new(raw)?;
        let several = self.seqs.len() > 1;
        match several {
            true => output::check_file(&raw.output)?,
            false => output::check(&raw.output)?,
        }
        let mut found = self.found(cards, Advise::Auto, raw.output.quiet)?;
        if !several {
            return write(&found.remove(0), &raw.output, None);
        }
        let table = self.rows(cards, &found);
        output::write(&table, &raw.output)?;
        curve.save(&table.sweeps())?;
        Ok(status(&found))
    }

    /// Finds the largest batch on each of `cards`, with each length of a sequence.
    fn found(&self, cards: &[Card], advise: Advise, quiet: bool) -> anyhow::Result<Vec<Found>> {
        if cards.is_empty() {
            return Err(UserError::no_card("a largest batch needs a card").into());
        }
        interrupt::watch(GRACE)?;
        let rows = self.seqs.len().max(1) as u64;
        let progress = Progress::new(quiet, rows * recordings(cards));
        let of = |command: &[OsString]| {
            let mut program = Followed {
                program: Silent {
                    command,
                    steps: None,
                    allow_writes: self.allow_writes,
                    timeout: self.timeout,
                },
                progress: &progress,
            };
            let shown = placeholder::shown(command);
            largest_batches(shown, None, cards, advise, &mut program)
        };
        let found: Result<Vec<_>, _> = match self.seqs.as_slice() {
            [] => std::iter::once(of(self.command)).collect(),
            seqs => seqs
                .iter()
                .map(|seq| of(&placeholder::with_seq(self.command, *seq)))
                .collect(),
        };
        progress.done();
        interrupt::disarm();
        Ok(found?)
    }

    /// One row for each of `found`, which are of the lengths of a sequence.
    fn rows(&self, cards: &[Card], found: &[Found]) -> TorchTableReport {
        let program = placeholder::shown(self.command);
        let rows = self.seqs.iter().zip(found).map(|(seq, found)| {
            let report = &found.report;
            let batches = report.cards.iter().map(|card| card.max_batch);
            TorchTableRow {
                model: report.program.clone(),
                recipe: seq.to_string(),
                precision: String::new(),
                seq: Some(*seq),
                batches: batches.collect(),
            }
        });
        let torch = found.last().map(|found| found.report.torch.clone());
        TorchTableReport {
            program: Some(program),
            rows: rows.collect(),
            ..empty_table(torch.unwrap_or_default(), cards)
        }
    }
}

/// Writes one answer, and keeps what was recorded for it in the file `kept`.
pub(super) fn write(
    found: &Found,
    output: &cli::Output,
    kept: Option<File<'_>>,
) -> anyhow::Result<u8> {
    output::write(&found.report, output)?;
    if let Some(kept) = kept {
        kept.save(found.saved()?)?;
    }
    Ok(status(std::slice::from_ref(found)))
}

/// Whether a sample fits on every card.
fn status(found: &[Found]) -> u8 {
    let mut batches = found.iter().flat_map(|found| &found.report.cards);
    match batches.all(|card| card.max_batch > 0) {
        true => FITS,
        false => DOES_NOT_FIT,
    }
}

/// The file at `path`, in which what was recorded is kept.
///
/// # Errors
///
/// It cannot be written, something else is there, or the answer goes there.
pub(super) fn kept_file<'a>(path: &'a Path, output: &cli::Output) -> Result<File<'a>, UserError> {
    let file = File {
        path,
        option: "--save",
        otherwise: "leave it out",
    };
    let name = path.display();
    if path == Path::new("-") {
        return Err(UserError::new("--save writes no recording to stdout")
            .hint("name a file: --save job.fit"));
    }
    if path.is_file() && !is_saved(path) {
        return Err(
            UserError::new(format!("{name} is there, and is no recording"))
                .hint("choose another --save, or delete it first"),
        );
    }
    let answer = output.output.as_deref();
    check_apart(
        [("--save", Some(path)), ("--output", answer)]
            .into_iter()
            .filter_map(|(option, path)| Some((option, path?))),
    )?;
    file.check()?;
    Ok(file)
}

/// A table for `cards` without rows.
pub(super) fn empty_table(torch: Torch, cards: &[Card]) -> TorchTableReport {
    TorchTableReport {
        schema: SCHEMA,
        program: None,
        recorded_on: None,
        recorded_batches: Vec::new(),
        torch,
        cards: cards.iter().map(Card::label).collect(),
        gpus: cards.iter().map(GpuName::new).collect(),
        rows: Vec::new(),
    }
}
