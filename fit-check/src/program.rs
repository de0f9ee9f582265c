//! What every program that answers with this crate does around its command.

use std::process::ExitCode;

use crate::commands::UNKNOWN;
use crate::user_error::UserError;

/// Runs `command` and says on stderr what kept it from an answer, if something did.
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

/// A panic on a simulated card's own thread is caught and becomes an error with a hint; what
/// Rust prints about it is not for the screen.
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
