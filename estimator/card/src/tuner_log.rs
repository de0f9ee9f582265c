//! Listens to the log of burn's tuner.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tuning::Choice;
use crate::{current_device, upstream};

/// How many kernels burn's tuner has chosen in this process, on any device.
static CHOICES: AtomicU64 = AtomicU64::new(0);

/// How often burn's tuner was asked for a kernel that it did not know.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Reads the decisions of burn's tuner from its log, the only place that names them.
struct Listener;

impl log::Log for Listener {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        [upstream::TUNER_LOG, upstream::TUNER_REQUESTS].contains(&metadata.target())
    }

    fn log(&self, record: &log::Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        if record.target() == upstream::TUNER_REQUESTS {
            REQUESTS.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let line = record.args().to_string();
        if upstream::tuner_choice(&line).is_some() {
            CHOICES.fetch_add(1, Ordering::Relaxed);
        }
        current_device::with_current_card(|card| {
            card.decided(|trials| Choice::read(&line, trials));
        });
    }

    fn flush(&self) {}
}

/// Keeps the tuner's decisions from now on (`estimator::Simulated::choices`). burn only logs them, so this
/// sets the process's global logger. If the process already has a logger, that one stays, and no choices are
/// known.
pub fn listen() {
    if log::set_logger(&Listener).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
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
