//! The most bytes in use between two marks, found by sampling the pools.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use burn::tensor::Device;
use estimator::Bytes;

use super::Readings;

/// Samples the pools of a device on a thread of its own, until it is dropped.
#[derive(Debug)]
pub(super) struct Sampler {
    seen: Arc<Mutex<Most>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Most {
    /// The current phase; none if sampling should end.
    phase: Option<usize>,
    sampled: Readings,
}

impl Most {
    fn of(shared: &Mutex<Self>) -> std::sync::MutexGuard<'_, Self> {
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time between two readings. Each reading fills CubeCL's channel to the device's thread, and a program that finds
/// it full looks again after 75 µs (`SLEEP_STEP_CLIENT` in cubecl-common 0.11.3). Readings without a pause filled it
/// anew before that: once, on two busy cores, they kept the step of InferSent from going on for ten minutes.
const PAUSE: Duration = Duration::from_micros(300);

impl Sampler {
    /// Starts to sample the pools of `device`.
    pub(super) fn new(device: Device) -> Self {
        let seen = Arc::new(Mutex::new(Most {
            phase: Some(0),
            ..Most::default()
        }));
        let shared = seen.clone();
        let thread = std::thread::spawn(move || {
            loop {
                let asked = Most::of(&shared).phase;
                if asked.is_none() {
                    return;
                }
                let Some(usage) = device.memory_pool_usage() else {
                    return;
                };
                let mut seen = Most::of(&shared);
                // An answer that crossed the end of a phase belongs to neither phase.
                if seen.phase == asked {
                    seen.sampled.most = seen.sampled.most.max(Bytes(usage.bytes_in_use));
                    seen.sampled.readings += 1;
                }
                drop(seen);
                std::thread::sleep(PAUSE);
            }
        });
        Self {
            seen,
            thread: Some(thread),
        }
    }

    /// The result for the phase that ends here; `now` is in use at this moment.
    pub(super) fn take(&self, now: Bytes) -> Readings {
        let mut seen = Most::of(&self.seen);
        seen.phase = seen.phase.map(|phase| phase + 1);
        let mut sampled = std::mem::take(&mut seen.sampled);
        sampled.most = sampled.most.max(now);
        sampled
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        Most::of(&self.seen).phase = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
