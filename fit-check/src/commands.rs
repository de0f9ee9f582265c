//! Runs the commands.

pub mod cache;
mod estimate;
mod gpus;
mod max_batch;
mod models;
mod run;
mod shell;
pub mod table;
mod torch_batches;
mod torch_zoo;
mod verify;

use std::process::ExitCode;

use model_zoo::Model;

use crate::cli::{Cli, Command};
use crate::exit_status::FITS;
use crate::measure;
use crate::model_source;
use crate::resolve::{Batch, ResolvedRequest};

/// Runs the command of `cli`.
///
/// # Errors
///
/// There is no answer: bad input, or a fault.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let status = match cli.command {
        Command::Estimate(raw) => estimate::run(&raw)?,
        Command::MaxBatch(raw) => max_batch::run(&raw)?,
        Command::Table(raw) => table::run(&raw)?,
        Command::Verify(raw) => verify::run(&raw)?,
        Command::Run(raw) => run::run(&raw)?,
        Command::Measure => {
            measure::run_child(|name| Ok(model_source::find(name)?.0))?;
            FITS
        }
        Command::Row => {
            table::row_process::run_child()?;
            FITS
        }
        Command::Models(raw) => models::run(&raw)?,
        Command::Gpus(raw) => gpus::run(&raw)?,
        Command::Cache(raw) => cache::run(&raw)?,
        Command::Completions(raw) => shell::completions(&raw)?,
        Command::Man(raw) => shell::man(&raw)?,
    };
    Ok(ExitCode::from(status))
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
