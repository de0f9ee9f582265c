//! Does this training job fit on this card?

use std::process::ExitCode;

use clap::Parser;
use fit_check::cli::Cli;
use fit_check::commands::run;

fn main() -> ExitCode {
    fit_check::program::main(|| run(Cli::parse()))
}
