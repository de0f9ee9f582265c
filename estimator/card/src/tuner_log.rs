//! Listens to the logs of burn's tuner, and of its search for what it can fuse.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::card_state::CardState;
use crate::tuning::Choice;
use crate::{current_device, upstream};

/// How many kernels burn's tuner has chosen in this process, on any device.
static CHOICES: AtomicU64 = AtomicU64::new(0);

/// How often burn's tuner was asked for a kernel that it did not know.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Whether the process listens.
static LISTENS: AtomicBool = AtomicBool::new(false);

/// Reads the decisions of burn's tuner from its log, the only place that names them.
struct Listener;

impl log::Log for Listener {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        let targets = [
            upstream::TUNER_LOG,
            upstream::TUNER_REQUESTS,
            upstream::TUNER_UNTIMED,
            upstream::FUSION_LOG,
        ];
        targets.contains(&metadata.target())
    }

    fn log(&self, record: &log::Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = record.args().to_string();
        if record.target() == upstream::TUNER_REQUESTS {
            REQUESTS.fetch_add(1, Ordering::Relaxed);
        } else if upstream::tuner_choice(&line).is_some() {
            CHOICES.fetch_add(1, Ordering::Relaxed);
        }
        current_device::with_current_card(|card| note(card, record.target(), &line));
    }

    fn flush(&self) {}
}

/// Tells `card`, the card of this thread, what a `line` of the log `target` says.
fn note(card: &CardState, target: &str, line: &str) {
    match target {
        upstream::TUNER_REQUESTS => {
            if let Some(operation) = upstream::tuner_request(line) {
                card.requested(operation);
            }
        }
        upstream::TUNER_UNTIMED => card.answered_untimed(),
        upstream::FUSION_LOG => card.searches(),
        _ => {
            card.decided(|trials| Choice::read(line, trials));
            if let Some((_, operation)) = upstream::tuner_choice(line) {
                card.answered(operation);
            }
        }
    }
}

/// Keeps the tuner's decisions from now on (`estimator::Simulated::choices`). burn only logs them, so this
/// sets the process's global logger. If the process already has a logger, that one stays, and no choices are
/// known. In a process that listens, a job whose first runs nobody asks for takes one run for each batch in place of two.
pub fn listen() {
    if log::set_logger(&Listener).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
        LISTENS.store(true, Ordering::Relaxed);
    }
}

/// Whether the process [listens](listen).
pub fn listens() -> bool {
    LISTENS.load(Ordering::Relaxed)
}

/// How many kernels burn's tuner has chosen since the process [listens](listen), on any device.
pub fn choices_made() -> u64 {
    CHOICES.load(Ordering::Relaxed)
}

/// How often burn's tuner was asked for a kernel that it did not know since the process [listens](listen), on any
/// device. It need not have [chosen](choices_made) one: if no candidate can be timed, it takes the first.
pub fn tuner_requests() -> u64 {
    REQUESTS.load(Ordering::Relaxed)
}
