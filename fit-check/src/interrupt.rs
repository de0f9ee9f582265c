//! Ctrl-C: the first asks for the results so far, the second ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The exit status of a program that Ctrl-C ended: 128 plus the number of SIGINT.
const ENDED: i32 = 130;

/// Remembers the first Ctrl-C from now on.
///
/// # Errors
///
/// The system does not allow a handler.
pub fn watch() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(ENDED);
        }
    })
    .context("Ctrl-C cannot be watched for")
}

/// Whether Ctrl-C was pressed.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
