//! What each command does.

pub mod cache;
mod estimate;
mod gpus;
mod max_batch;
mod models;
mod run;
mod shell;
pub mod table;
mod verify;

use std::process::ExitCode;

use model_zoo::Model;

use crate::cli::{Cli, Command};
use crate::measure;
use crate::resolve::{Batch, ResolvedRequest};

/// It fits, or it is done.
pub const FITS: u8 = 0;
/// It does not fit, or a check disagreed.
pub const DOES_NOT_FIT: u8 = 1;
/// It could not be told.
pub const UNKNOWN: u8 = 2;

/// Does what `cli` says.
///
/// # Errors
///
/// It could not be told: bad input, or a fault.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let status = match cli.command {
        Command::Estimate(raw) => estimate::run(&raw)?,
        Command::MaxBatch(raw) => max_batch::run(&raw)?,
        Command::Table(raw) => table::run(&raw)?,
        Command::Verify(raw) => verify::run(&raw)?,
        Command::Run(raw) => run::run(&raw)?,
        Command::Measure => {
            measure::run_child()?;
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

/// As [`run`], for a program that has a model of its own beside those of the zoo: it is meant
/// where its name is typed.
///
/// # Errors
///
/// It could not be told: bad input, or a fault.
pub fn run_with<M: Model + Sync>(cli: Cli, model: M) -> anyhow::Result<ExitCode> {
    let status = match &cli.command {
        Command::Estimate(raw) if raw.job.model == model.name() => estimate::answer(
            raw,
            &ResolvedRequest::of(model, &raw.job, estimate::batch(raw))?,
        )?,
        Command::MaxBatch(raw) if raw.job.model == model.name() => max_batch::answer(
            raw,
            &ResolvedRequest::of(model, &raw.job, Batch::default())?,
        )?,
        _ => return run(cli),
    };
    Ok(ExitCode::from(status))
}
