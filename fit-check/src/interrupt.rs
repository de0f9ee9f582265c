//! Ctrl-C, and on Unix SIGTERM, by which `timeout` and a cluster's scheduler end a job: the program has a moment to
//! show its results so far, and then ends.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;

/// The last signal that asked the program to end, or 0.
static REQUESTED: AtomicI32 = AtomicI32::new(0);

/// What is left to do if the program does not end by itself; none before signals are watched for, and once the
/// program writes its answer.
static AT_END: Mutex<Option<Vec<Act>>> = Mutex::new(None);

type Act = Box<dyn FnOnce() -> Option<u8> + Send>;

/// How long the program may take to end by itself: a run on a simulated card cannot be stopped midway.
const PATIENCE: Duration = Duration::from_millis(700);

/// Remembers from now on that a signal asked the program to end. If it does not end within [`PATIENCE`] and `grace`
/// then, or at a second signal, this ends it.
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
    on_signal(move |signal| {
        if REQUESTED.swap(signal, Ordering::Relaxed) != 0 {
            end();
            std::process::exit(status());
        }
        std::thread::spawn(move || {
            std::thread::sleep(PATIENCE + grace);
            end();
        });
    })
    .context("Ctrl-C cannot be watched for")
}

/// Calls `act` with the number of each signal that asks the program to end. SIGHUP is not among them: `nohup` ignores
/// it, so that the program goes on without a terminal.
#[cfg(unix)]
fn on_signal(act: impl Fn(i32) + Send + 'static) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || signals.forever().for_each(act));
    Ok(())
}

#[cfg(not(unix))]
fn on_signal(act: impl Fn(i32) + Send + 'static) -> anyhow::Result<()> {
    const SIGINT: i32 = 2;
    Ok(ctrlc::set_handler(move || act(SIGINT))?)
}

/// The exit status of a program that the last signal ended.
fn status() -> i32 {
    128 + REQUESTED.load(Ordering::Relaxed)
}

/// Ends the program, unless it writes its answer already.
fn end() {
    let mut at_end = AT_END.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(acts) = at_end.take() {
        let answers = acts.into_iter().rev().map(|act| act());
        let answered = answers.fold(None, Option::or);
        std::process::exit(answered.map_or_else(status, i32::from));
    }
}

/// From now on only a second signal ends the program: it writes its answer. If the program is being ended
/// already, this does not return.
pub fn disarm() {
    AT_END.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Whether a signal asked the program to end.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed) != 0
}

/// Adds something to do before the program ends, if a signal ends it. What was added last is done first, as values are
/// dropped. `act` returns the exit status if it writes an answer.
pub fn at_end(act: impl FnOnce() -> Option<u8> + Send + 'static) {
    let mut at_end = AT_END.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(acts) = &mut *at_end {
        acts.push(Box::new(act));
    }
}
