//! The largest batch of a PyTorch program: `max-batch` and `table` with a command.

use std::ffi::OsString;
use std::time::Duration;

use crate::cli::{self, Advise};
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::input_options::TypedSizes;
use crate::interrupt;
use crate::job_info::{GpuName, SCHEMA};
use crate::output::{self, sweep::CurveFile};
use crate::progress::Progress;
use crate::resolve::Card;
use crate::torch_program::batches::{
    TorchBatchReport, TorchTableReport, TorchTableRow, largest_batches,
};
use crate::torch_program::placeholder;
use crate::torch_program::report::Torch;
use crate::torch_program::silent::{Followed, Silent};
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
    advise: Advise,
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
        advise: Advise,
    ) -> Result<Self, UserError> {
        placeholder::check(command)?;
        let seqs = sizes.seqs()?;
        placeholder::check_seq(command, !seqs.is_empty())?;
        let timeout = options.timeout.as_deref();
        let timeout = timeout.map(|text| values::seconds("--timeout", text));
        Ok(Self {
            command,
            seqs,
            advise,
            allow_writes: options.allow_writes,
            timeout: timeout.transpose()?.unwrap_or(TIMEOUT),
        })
    }

    /// Finds the largest batch on each of `cards`, with each length of a sequence, and writes the answer, and the `curve` of
    /// several lengths.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn run(
        &self,
        cards: &[Card],
        output: &cli::Output,
        curve: &CurveFile,
    ) -> anyhow::Result<u8> {
        if cards.is_empty() {
            return Err(UserError::no_card("a largest batch needs a card").into());
        }
        let several = self.seqs.len() > 1;
        match several {
            true => output::check_file(output)?,
            false => output::check(output)?,
        }
        interrupt::watch(GRACE)?;
        // Two recordings at small batches, and two at the answer of each card.
        let rows = self.seqs.len().max(1);
        let progress = Progress::new(output.quiet, ((2 + 2 * cards.len()) * rows) as u64);
        let of = |seq: Option<u64>| {
            let command = seq.map_or_else(
                || self.command.to_vec(),
                |seq| placeholder::with_seq(self.command, seq),
            );
            self.with(&command, cards, &progress)
        };
        let reports = match self.seqs.as_slice() {
            [] => vec![of(None)?],
            seqs => seqs
                .iter()
                .map(|seq| of(Some(*seq)))
                .collect::<Result<_, _>>()?,
        };
        progress.done();
        interrupt::disarm();
        match several {
            true => {
                let table = self.table(cards, &reports);
                output::write(&table, output)?;
                curve.save(&table.sweeps())?;
            }
            false => output::write(&reports[0], output)?,
        }
        let mut batches = reports.iter().flat_map(|report| &report.cards);
        Ok(match batches.all(|card| card.max_batch > 0) {
            true => FITS,
            false => DOES_NOT_FIT,
        })
    }

    fn with(
        &self,
        command: &[OsString],
        cards: &[Card],
        progress: &Progress,
    ) -> Result<TorchBatchReport, UserError> {
        let mut program = Followed {
            program: Silent {
                command,
                script: None,
                steps: None,
                allow_writes: self.allow_writes,
                timeout: self.timeout,
            },
            progress,
        };
        let shown = placeholder::shown(command);
        largest_batches(shown, None, cards, self.advise, &mut program)
    }

    /// One row for each of `reports`, which are of the lengths of a sequence.
    fn table(&self, cards: &[Card], reports: &[TorchBatchReport]) -> TorchTableReport {
        let program = placeholder::shown(self.command);
        let rows = self.seqs.iter().zip(reports).map(|(seq, report)| {
            let batches = report.cards.iter().map(|card| card.max_batch);
            TorchTableRow {
                model: report.program.clone(),
                recipe: seq.to_string(),
                precision: String::new(),
                seq: Some(*seq),
                batches: batches.collect(),
            }
        });
        let torch = reports.last().map(|report| report.torch.clone());
        TorchTableReport {
            program: Some(program),
            rows: rows.collect(),
            ..empty_table(torch.unwrap_or_default(), cards)
        }
    }
}

/// A table for `cards` without rows.
pub(super) fn empty_table(torch: Torch, cards: &[Card]) -> TorchTableReport {
    TorchTableReport {
        schema: SCHEMA,
        program: None,
        recorded_on: None,
        torch,
        cards: cards.iter().map(Card::label).collect(),
        gpus: cards.iter().map(GpuName::new).collect(),
        rows: Vec::new(),
    }
}
