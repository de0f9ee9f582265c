//! Ctrl-C: the program has a moment to show its results so far, and then ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// What is left to do if the program does not end by itself; none before Ctrl-C is watched for, and once the
/// program writes its answer.
static AT_END: Mutex<Option<Vec<Act>>> = Mutex::new(None);

type Act = Box<dyn FnOnce() -> Option<u8> + Send>;

/// How long the program may take to end by itself: a run on a simulated card cannot be stopped midway.
const PATIENCE: Duration = Duration::from_millis(700);

/// The exit status of a program that Ctrl-C ended: 128 plus the number of SIGINT.
const ENDED: i32 = 130;

/// Remembers Ctrl-C from now on. If the program does not end within [`PATIENCE`] and `grace` then, or at a
/// second Ctrl-C, this ends it.
///
/// # Errors
///
/// The system does not allow a handler.
pub fn watch(grace: Duration) -> anyhow::Result<()> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    *AT_END.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    if WATCHED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    ctrlc::set_handler(move || {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            end();
            std::process::exit(ENDED);
        }
        std::thread::spawn(move || {
            std::thread::sleep(PATIENCE + grace);
            end();
        });
    })
    .context("Ctrl-C cannot be watched for")
}

/// Ends the program, unless it writes its answer already.
fn end() {
    let mut at_end = AT_END.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(acts) = at_end.take() {
        let statuses = acts.into_iter().map(|act| act());
        let status = statuses.fold(None, Option::or);
        std::process::exit(status.map_or(ENDED, i32::from));
    }
}

/// From now on only a second Ctrl-C ends the program: it writes its answer. If the program is being ended
/// already, this does not return.
pub fn disarm() {
    AT_END.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Whether Ctrl-C was pressed.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Adds something to do before the program ends, if Ctrl-C ends it. `act` returns the exit status if it writes
/// an answer.
pub fn at_end(act: impl FnOnce() -> Option<u8> + Send + 'static) {
    let mut at_end = AT_END.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(acts) = &mut *at_end {
        acts.push(Box::new(act));
    }
}
