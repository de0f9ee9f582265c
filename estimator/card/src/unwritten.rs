//! Buffers with nothing in them that a kernel could read: the card refused memory for them while burn's tuner tried
//! a kernel, or the launch that should have written them did not run.
//!
//! A launch that reads such a buffer, or writes to one without memory, does not run either, and the tuner drops every
//! candidate that it is timing: `ExecuteScope::launching` of `cubecl-server` 0.11.3, `src/stream/execute_scope.rs`,
//! and `launch_checked` of `cubecl-cuda` 0.11.3, `src/compute/server.rs`.

use std::collections::BTreeMap;

use recording::{BufferId, Failure};

/// The unwritten buffers of a run.
#[derive(Debug, Default)]
pub(crate) struct Unwritten(BTreeMap<BufferId, Reason>);

/// Why a buffer is unwritten.
#[derive(Clone, Copy, Debug)]
struct Reason {
    /// The refused allocation that is the cause.
    failure: Failure,
    has_memory: bool,
}

/// What becomes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchOutcome {
    /// It runs.
    Runs,
    /// It does not begin, since nothing wrote one of its inputs.
    Skipped,
    /// It fails after it has its metadata, since one of its outputs has no memory.
    Fails,
}

impl Unwritten {
    /// The card refused `failure`'s buffer.
    pub fn refused(&mut self, failure: Failure) {
        let reason = Reason {
            has_memory: false,
            failure,
        };
        self.0.insert(reason.failure.buffer, reason);
    }

    /// A kernel that reads `reads` and writes `writes` is launched.
    pub fn launch(&mut self, reads: &[BufferId], writes: &[BufferId]) -> LaunchOutcome {
        if self.0.is_empty() {
            return LaunchOutcome::Runs;
        }
        let reason_of = |buffer: &BufferId| self.0.get(buffer).copied();
        let unread = reads.iter().find_map(reason_of);
        let mut outputs = writes.iter().filter_map(reason_of);
        let without_memory = outputs.find(|reason| !reason.has_memory);
        let (reason, outcome) = match (unread, without_memory) {
            (Some(reason), _) => (reason, LaunchOutcome::Skipped),
            (None, Some(reason)) => (reason, LaunchOutcome::Fails),
            (None, None) => {
                self.0.retain(|buffer, _| !writes.contains(buffer));
                return LaunchOutcome::Runs;
            }
        };
        for buffer in writes {
            self.0.entry(*buffer).or_insert(Reason {
                has_memory: true,
                ..reason
            });
        }
        outcome
    }

    /// The host writes to `buffer`. Returns whether it can: false if the buffer has no memory.
    pub fn fill(&mut self, buffer: BufferId) -> bool {
        let has_memory = self.0.get(&buffer).is_none_or(|reason| reason.has_memory);
        if has_memory {
            self.0.remove(&buffer);
        }
        has_memory
    }

    /// Whether every buffer is written, or will be.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The refused allocation that is the cause of the first unwritten buffer of those that are `wanted`.
    pub fn first(&self, wanted: impl Fn(BufferId) -> bool) -> Option<Failure> {
        let mut reasons = self.0.iter();
        let found = reasons.find(|(buffer, _)| wanted(**buffer));
        found.map(|(_, reason)| reason.failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recording::Refusal;

    const WORKSPACE: BufferId = BufferId(0);
    const INPUT: BufferId = BufferId(1);
    const OUTPUT: BufferId = BufferId(2);
    const NEXT: BufferId = BufferId(3);

    fn without_workspace() -> Unwritten {
        let mut unwritten = Unwritten::default();
        unwritten.refused(Failure {
            buffer: WORKSPACE,
            refusal: Refusal::Full,
        });
        unwritten
    }

    #[test]
    fn a_launch_without_refused_buffers_runs() {
        let mut unwritten = without_workspace();
        assert_eq!(unwritten.launch(&[INPUT], &[OUTPUT]), LaunchOutcome::Runs);
    }

    #[test]
    fn what_was_not_written_is_not_read() {
        let mut unwritten = without_workspace();
        assert_eq!(
            unwritten.launch(&[INPUT], &[WORKSPACE]),
            LaunchOutcome::Fails
        );
        assert_eq!(
            unwritten.launch(&[WORKSPACE], &[OUTPUT]),
            LaunchOutcome::Skipped
        );
        assert_eq!(unwritten.launch(&[OUTPUT], &[NEXT]), LaunchOutcome::Skipped);
        let failure = unwritten.first(|buffer| buffer == NEXT);
        assert_eq!(failure.map(|failure| failure.buffer), Some(WORKSPACE));
    }

    #[test]
    fn a_buffer_with_memory_can_be_written_later() {
        let mut unwritten = without_workspace();
        unwritten.launch(&[WORKSPACE], &[OUTPUT, NEXT]);
        assert_eq!(unwritten.launch(&[INPUT], &[OUTPUT]), LaunchOutcome::Runs);
        assert!(unwritten.fill(NEXT));
        assert!(!unwritten.fill(WORKSPACE));
        assert_eq!(unwritten.first(|buffer| buffer != WORKSPACE), None);
    }
}
