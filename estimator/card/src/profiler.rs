//! Tells burn's tuner how long a simulated card took.

use std::collections::BTreeMap;
use std::time::Duration;

use cubecl_environment::backtrace::BackTrace;
use cubecl_server::memory_management::{ManagedMemoryHandle, MemoryHandle, WeakMemoryBinding};
use cubecl_server::server::{ProfileError, ProfilingToken};
use recording::Bytes;

use crate::tuning::{KernelPreference, Trial, Work};

/// The windows of time that burn's tuner measures on a card. They can be nested.
#[derive(Debug, Default)]
pub(crate) struct Profiler {
    opened: u64,
    windows: BTreeMap<u64, Window>,
}

#[derive(Debug, Default)]
struct Window {
    work: Work,
    buffers: Vec<(WeakMemoryBinding, Bytes)>,
    /// Whether a launch in the window did not run.
    failed: bool,
}

impl Profiler {
    pub fn start(&mut self) -> ProfilingToken {
        let id = self.opened;
        self.opened += 1;
        self.windows.insert(id, Window::default());
        ProfilingToken { id }
    }

    pub fn abandon(&mut self, token: ProfilingToken) {
        self.windows.remove(&token.id);
    }

    /// Closes the window and returns what happened in it, with the time that `preference` assigns to it.
    ///
    /// # Errors
    ///
    /// A launch did not run meanwhile; the tuner then drops that candidate.
    pub fn stop(
        &mut self,
        token: ProfilingToken,
        preference: KernelPreference,
    ) -> Result<Trial, ProfileError> {
        // A candidate that panicked within this one left its window open.
        let window = self.windows.split_off(&token.id).remove(&token.id);
        let Some(window) = window.filter(|window| !window.failed) else {
            return Err(ProfileError::NotRegistered {
                backtrace: BackTrace::capture(),
            });
        };
        let there = window.buffers.iter();
        let there = there.filter(|(memory, _)| memory.upgrade().is_some());
        let work = Work {
            kept: there.map(|(_, bytes)| *bytes).sum(),
            ..window.work
        };
        Ok(Trial {
            work,
            time: preference.time(&work),
            within: self.windows.len(),
        })
    }

    /// Closes the windows that candidates left open when they panicked.
    pub fn close_all(&mut self) {
        self.windows.clear();
    }

    /// Whether the tuner is timing a candidate.
    pub fn is_running(&self) -> bool {
        !self.windows.is_empty()
    }

    pub fn open_windows(&self) -> usize {
        self.windows.len()
    }

    pub fn allocated(&mut self, memory: &ManagedMemoryHandle, bytes: Bytes) {
        self.each(|window| {
            let weak = MemoryHandle::binding(memory.clone()).downgrade();
            window.buffers.push((weak, bytes));
            window.work.allocated += bytes;
        });
    }

    /// Adds a launch that takes `time`.
    pub fn launched(&mut self, time: Duration) {
        self.each(|window| window.work.time += time);
    }

    /// A launch did not run, for want of memory.
    pub fn failed(&mut self) {
        self.each(|window| window.failed = true);
    }

    fn each(&mut self, note: impl FnMut(&mut Window)) {
        self.windows.values_mut().for_each(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_a_panic_left_open_ends_with_the_window_around_it() {
        let mut profiler = Profiler::default();
        let outer = profiler.start();
        let _left_open = profiler.start();
        let trial = profiler.stop(outer, KernelPreference::default());
        assert_eq!(trial.unwrap().within, 0);
        assert!(!profiler.is_running());
    }

    #[test]
    fn a_failure_concerns_every_open_window() {
        let mut profiler = Profiler::default();
        let [outer, inner] = [profiler.start(), profiler.start()];
        profiler.failed();
        let later = profiler.start();
        for (token, is_measured) in [(later, true), (inner, false), (outer, false)] {
            let trial = profiler.stop(token, KernelPreference::default());
            assert_eq!(trial.is_ok(), is_measured);
        }
    }
}
