//! Ctrl-C: the first asks for what there is so far, the second ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The exit status of a program that Ctrl-C ended: 128 and the number of SIGINT.
const ENDED: i32 = 130;

/// From now on, the first Ctrl-C is remembered.
///
/// # Errors
///
/// The system does not tell of it.
pub fn watch() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(ENDED);
        }
    })
    .context("Ctrl-C cannot be watched for")
}

/// Whether there was one.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
