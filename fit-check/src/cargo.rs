//! `cargo fit-check`: a user's own program, unchanged, on a simulated card.
//!
//! `build` compiles the program with `fit-check/shim` in place of burn's ROCm runtime, and `run` starts it
//! with a card in its environment. The program writes a recording of the calls on the card. The answer is
//! derived from that recording, as from every other one.

mod build;
mod cli;
mod crates;
mod lock;
mod project;
mod render;
mod report;
mod request;
mod run;

use std::process::ExitCode;
use std::time::Duration;

pub use self::cli::{Cargo, CargoOptions};
use self::project::Project;
pub use self::report::ProgramReport;
use self::request::ProgramRequest;
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::user_error::UserError;
use crate::{card, interrupt, output, sandbox};

/// Runs `cargo fit-check` with these arguments.
///
/// # Errors
///
/// There is no answer: bad input, a program that cannot be built or that failed, or a fault.
pub fn run(cargo: Cargo) -> anyhow::Result<ExitCode> {
    let Cargo::FitCheck(raw) = cargo;
    answer(*raw).or_else(|error| {
        // As if the signal had ended this program, which it may do first.
        let status = interrupt::status_without_answer().ok_or(error)?;
        anstream::eprintln!("{}", UserError::new("interrupted"));
        Ok(ExitCode::from(status))
    })
}

fn answer(raw: CargoOptions) -> anyhow::Result<ExitCode> {
    output::check(&raw.output)?;
    let output = raw.output.clone();
    if !output.quiet {
        card::announce(raw.gpu.iter().map(String::as_str));
    }
    let request = ProgramRequest::new(raw)?;
    interrupt::watch(Duration::ZERO)?;
    let project = Project::find(&request)?;
    if !request.allow_writes {
        sandbox::check()?;
    }
    let program = build::build(&project, &request)?;
    let run_report = run::run(&program, &request)?;
    let report = ProgramReport::new(
        &project.target.name,
        &request.device,
        &request.cards,
        run_report,
    );
    interrupt::disarm();
    output::write(&report, &output)?;
    let status = if report.fits() { FITS } else { DOES_NOT_FIT };
    Ok(ExitCode::from(status))
}
