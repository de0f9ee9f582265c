//! `cargo fit-check`: a user's own program, unchanged, on a simulated card.
//!
//! The program is built with `fit-check/slot` in the place of burn's ROCm runtime (`build`), and
//! run with a card in its environment (`run`). It writes down what happened on the card; all
//! that is said about it is read off that, as of every other recording.

mod build;
mod cli;
mod lock;
mod page;
mod project;
mod report;
mod run;

use std::process::ExitCode;
use std::time::Duration;

use estimator::{CardSpec, Tuning};

pub use self::cli::{Cargo, Program};
use self::project::Project;
pub use self::report::ProgramReport;
use crate::ask;
use crate::cli::Cards;
use crate::commands::{DOES_NOT_FIT, FITS};
use crate::{interrupt, output};

/// Does what `cargo` says.
///
/// # Errors
///
/// It could not be told: bad input, a program that cannot be built or that failed, or a fault.
pub fn run(cargo: Cargo) -> anyhow::Result<ExitCode> {
    let Cargo::FitCheck(raw) = cargo;
    output::check(&raw.output)?;
    let cards = Cards {
        runtime: raw.runtime.clone(),
        // A program's first steps tune what they meet.
        tuning: Tuning::Cold.to_string(),
        gpu: raw.gpu.clone(),
        memory: raw.memory.clone(),
    };
    let runtime = ask::runtime(&cards)?;
    let cards = ask::cards(&cards, &raw.gpu, runtime)?;
    let steps = ask::count("--steps", &raw.steps)?;
    let patience = Duration::from_secs(ask::count("--timeout", &raw.timeout)? as u64);
    let spec = match cards.first() {
        Some(card) => card.spec.without_limit(),
        None => CardSpec {
            tuning: Tuning::Cold,
            ..CardSpec::endless(runtime)
        },
    };
    interrupt::watch()?;
    let project = Project::find(&raw)?;
    let program = build::build(&project, &raw)?;
    let account = run::run(&program, &spec, steps, patience, &raw)?;
    let report = ProgramReport::new(&project.target.name, &spec, &cards, account);
    output::write(&report, &raw.output)?;
    let status = if report.fits() { FITS } else { DOES_NOT_FIT };
    Ok(ExitCode::from(status))
}
