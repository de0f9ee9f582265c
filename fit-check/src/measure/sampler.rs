//! The most that the pools hold between two marks, seen by asking all the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use burn::tensor::Device;
use estimator::Bytes;

use super::Sampled;

/// Asks the pools of a device, from a thread of its own, until it is dropped.
#[derive(Debug)]
pub(super) struct Sampler {
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The phase that is going on; none once nobody asks any more.
    phase: Option<usize>,
    sampled: Sampled,
}

impl Seen {
    fn of(shared: &Mutex<Self>) -> std::sync::MutexGuard<'_, Self> {
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sampler {
    /// Asks the pools of `device`.
    pub(super) fn new(device: Device) -> Self {
        let seen = Arc::new(Mutex::new(Seen {
            phase: Some(0),
            ..Seen::default()
        }));
        let shared = seen.clone();
        let thread = std::thread::spawn(move || {
            loop {
                let asked = Seen::of(&shared).phase;
                if asked.is_none() {
                    return;
                }
                let Some(usage) = device.memory_pool_usage() else {
                    return;
                };
                let mut seen = Seen::of(&shared);
                // An answer that crossed the end of a phase is of neither.
                if seen.phase == asked {
                    seen.sampled.most = seen.sampled.most.max(Bytes(usage.bytes_in_use));
                    seen.sampled.readings += 1;
                }
            }
        });
        Self {
            seen,
            thread: Some(thread),
        }
    }

    /// What was seen in the phase that ends here; `now` is in use at this moment.
    pub(super) fn take(&self, now: Bytes) -> Sampled {
        let mut seen = Seen::of(&self.seen);
        seen.phase = seen.phase.map(|phase| phase + 1);
        let mut sampled = std::mem::take(&mut seen.sampled);
        sampled.most = sampled.most.max(now);
        sampled
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        Seen::of(&self.seen).phase = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
