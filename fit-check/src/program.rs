//! The code around the command of every program that uses this crate.

use std::process::ExitCode;

use crate::exit_status::UNKNOWN;
use crate::interrupt;
use crate::user_error::UserError;

/// Runs `command`, and prints its error to stderr if it has no answer.
pub fn main(command: impl FnOnce() -> anyhow::Result<ExitCode>) -> ExitCode {
    quiet_simulations();
    match command() {
        Ok(status) => status,
        Err(error) => {
            // As if a signal had ended this program, which it may do first.
            let interrupted = interrupt::status_without_answer();
            let error = match interrupted {
                Some(_) => UserError::new("interrupted"),
                None => UserError::from(error),
            };
            anstream::eprintln!("{error}");
            ExitCode::from(interrupted.unwrap_or(UNKNOWN))
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
