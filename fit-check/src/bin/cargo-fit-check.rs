//! Does this program's training fit on this card? `cargo fit-check`.

use std::process::ExitCode;

use clap::Parser;
use fit_check::cargo::{Cargo, run};

fn main() -> ExitCode {
    fit_check::program::main(|| run(Cargo::parse()))
}
