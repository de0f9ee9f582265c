//! What the child process makes of a panic.
//!
//! Burn's tuner runs kernels that may not work, on the threads of the device, and CubeCL catches their panics:
//! such a step can go on. A panic on any other thread ends the process.

use std::any::Any;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::Duration;

use estimator::{panic_message, upstream};

use super::process;

/// The first panic that CubeCL caught on a thread of the device.
static CAUGHT: OnceLock<String> = OnceLock::new();

/// How long a process does nothing, after a panic on a thread of the device, before it counts as stuck: burn may
/// wait for ever for what that thread should have done.
const STUCK: Duration = Duration::from_secs(30);

/// How often the process is looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// Calls `failed` with what went wrong, and ends the process, on a panic on another thread than the device's, or
/// when the process is stuck after one there.
pub(super) fn report(failed: fn(String)) {
    std::panic::set_hook(Box::new(move |panic| {
        let file = panic.location().map(|place| place.file());
        if file.is_some_and(upstream::is_probe_overflow) {
            return;
        }
        let thread = std::thread::current();
        if thread.name().is_some_and(upstream::is_device_thread) {
            if CAUGHT.set(message(panic)).is_ok() {
                std::thread::spawn(move || watch(failed));
            }
            return;
        }
        failed(match CAUGHT.get() {
            None => message(panic),
            Some(first) => format!("{} (before that: {first})", message(panic)),
        });
        // burn's other threads would wait for the one that panicked.
        std::process::exit(1);
    }));
}

/// The cause of `failure`: the panic that CubeCL caught before, if all that is known is that a buffer was never
/// written.
pub(super) fn cause(failure: String) -> String {
    match CAUGHT.get() {
        Some(first) if upstream::is_unallocated(&failure) => first.clone(),
        _ => failure,
    }
}

/// The message of a panic that CubeCL caught and continued on the thread of the program.
pub(super) fn continued(payload: &(dyn Any + Send)) -> String {
    shortened(panic_message(payload).or(CAUGHT.get().map(String::as_str)))
}

/// Ends the process when it has not used the processor for [`STUCK`].
fn watch(failed: fn(String)) {
    let mut idle = Duration::ZERO;
    let mut used = process::processor_time();
    while idle < STUCK {
        std::thread::sleep(INTERVAL);
        let now = process::processor_time();
        let Some(spent) = now.zip(used).map(|(now, used)| now.saturating_sub(used)) else {
            // This system does not report it; the parent ends the process in time.
            return;
        };
        used = now;
        // This thread's own look takes far less.
        idle = match spent > INTERVAL / 100 {
            true => Duration::ZERO,
            false => idle + INTERVAL,
        };
    }
    failed(shortened(CAUGHT.get().map(String::as_str)));
    std::process::exit(1);
}

fn message(panic: &PanicHookInfo) -> String {
    shortened(panic.payload_as_str())
}

/// The first lines of a panic's message, which say what happened; the rest is a trace.
fn shortened(text: Option<&str>) -> String {
    let text = text.unwrap_or("no message");
    text.lines().take(6).collect::<Vec<_>>().join(" ")
}
