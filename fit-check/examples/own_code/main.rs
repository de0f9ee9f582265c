//! A program with a model of its own and everything that `fit-check` offers for it:
//!
//! ```console
//! $ cargo run --example own_code -- estimate mixer --batch 64 --gpu 24GB
//! $ cargo run --example own_code -- max-batch mixer --precision mixed --memory 2GiB
//! ```

mod model;

use std::process::ExitCode;

use clap::Parser;
use fit_check::cli::Cli;
use fit_check::commands::run_with;

fn main() -> ExitCode {
    fit_check::program::main(|| run_with(Cli::parse(), model::Mixer::default()))
}
