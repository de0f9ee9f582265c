//! The code around the command of every program that uses this crate.

use std::process::ExitCode;

use crate::exit_status::UNKNOWN;
use crate::user_error::UserError;

/// Runs `command`, and prints its error to stderr if it has no answer.
pub fn main(command: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    quiet_simulations();
    match command() {
        Ok(status) => status,
        Err(error) => {
            anstream::eprintln!("{}", UserError::from(error));
            ExitCode::from(UNKNOWN)
        }
    }
}

/// Silences panics on the threads of simulated cards: each is caught and becomes an error with a hint.
fn quiet_simulations() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        if !thread
            .name()
            .is_some_and(estimator::upstream::is_device_thread)
        {
            usual(panic);
        }
    }));
}
