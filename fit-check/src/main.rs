//! Does this training job fit on this card?

use std::process::ExitCode;

use fit_check::commands::run;
use fit_check::{cli, completion};

/// A simulated step allocates and frees small pieces of processor memory all the time: of the processor time of an
/// estimate, this allocator saves a tenth beside glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    completion::answer();
    fit_check::program::main(|| run(cli::parse()?))
}
