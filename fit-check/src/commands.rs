//! Runs the commands.

mod advising;
pub mod cache;
mod estimate;
mod gpus;
mod max_batch;
mod max_seq;
mod models;
mod run;
mod shell;
pub mod table;
mod torch;
mod torch_batches;
mod verify;

use std::process::ExitCode;

use model_zoo::Model;

use crate::card;
use crate::cli::{Cli, Command};
use crate::exit_status::FITS;
use crate::measure;
use crate::model_source::AnyModel;
use crate::resolve::{Batch, ResolvedRequest};

/// Runs the command of `cli`.
///
/// # Errors
///
/// There is no answer: bad input, or a fault.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    announce_cards(&cli.command);
    let status = match cli.command {
        Command::Estimate(raw) => estimate::run(&raw)?,
        Command::MaxBatch(raw) => max_batch::run(&raw)?,
        Command::MaxSeq(raw) => max_seq::run(&raw)?,
        Command::Table(raw) => table::run(&raw)?,
        Command::Verify(raw) => verify::run(&raw)?,
        Command::Run(raw) => run::run(&raw)?,
        Command::Measure => {
            measure::run_child(AnyModel::of_text)?;
            FITS
        }
        Command::Row => {
            table::row_process::run_child()?;
            FITS
        }
        Command::Models(raw) => models::run(&raw)?,
        Command::Gpus(raw) => gpus::run(&raw)?,
        Command::Serve(raw) => crate::serve::run(&raw)?,
        Command::Cache(raw) => cache::run(&raw)?,
        Command::Completions(raw) => shell::completions(&raw)?,
        Command::Man(raw) => shell::man(&raw)?,
    };
    Ok(ExitCode::from(status))
}

/// Says on stderr which cards the names of a command line mean, where that is not plain.
fn announce_cards(command: &Command) {
    let (cards, list, quiet) = match command {
        Command::Estimate(raw) => (&raw.job.cards.gpu[..], None, raw.output.quiet),
        Command::MaxBatch(raw) => (&raw.job.cards.gpu[..], None, raw.output.quiet),
        Command::MaxSeq(raw) => (&raw.job.cards.gpu[..], None, raw.output.quiet),
        Command::Table(raw) => (&raw.cards.gpu[..], raw.gpus.as_deref(), raw.output.quiet),
        Command::Run(raw) => (&raw.gpu[..], None, raw.output.quiet),
        Command::Verify(raw) => (raw.gpu.as_slice(), None, raw.output.quiet),
        Command::Gpus(raw) => (raw.card.as_slice(), None, raw.output.quiet),
        _ => return,
    };
    let listed = list
        .into_iter()
        .flat_map(|list| list.split(','))
        .map(str::trim);
    if !quiet {
        card::announce(cards.iter().map(String::as_str).chain(listed));
    }
}

/// Like [`run`], for a program that has a model of its own besides those of the zoo. The name of that model
/// on the command line means it.
///
/// # Errors
///
/// There is no answer: bad input, or a fault.
pub fn run_with<M: Model + Sync>(cli: Cli, model: M) -> anyhow::Result<ExitCode> {
    let status = match &cli.command {
        Command::Estimate(raw) if raw.job.model == model.name() => estimate::answer(
            raw,
            &ResolvedRequest::of(model, &raw.job, Batch::typed(&raw.batch, &raw.tokens))?,
        )?,
        Command::MaxBatch(raw) if raw.job.model == model.name() => max_batch::answer(
            raw,
            &ResolvedRequest::of(model, &raw.job, Batch::default())?,
        )?,
        _ => return run(cli),
    };
    Ok(ExitCode::from(status))
}
