//! Does this training job fit on this card?

use std::process::ExitCode;

use clap::Parser;
use fit_check::cli::Cli;
use fit_check::commands::{UNKNOWN, run};

fn main() -> ExitCode {
    quiet_simulations();
    match run(Cli::parse()) {
        Ok(status) => status,
        Err(error) => {
            match error.downcast_ref::<fit_check::trouble::Trouble>() {
                Some(trouble) => anstream::eprintln!("{trouble}"),
                None => anstream::eprintln!("error: {error:#}"),
            }
            ExitCode::from(UNKNOWN)
        }
    }
}

/// A panic on a simulated card's own thread is caught and becomes an error with a hint; what
/// Rust prints about it is not for the screen.
fn quiet_simulations() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        if !thread.name().is_some_and(|name| name.starts_with("DS")) {
            usual(panic);
        }
    }));
}
