//! PyTorch's counters at the end of each phase: as a program on a real GPU sends them, and as a replay has them.

use recording::{Phase, PhaseOfStep};
use serde::Deserialize;

use crate::allocator::{Allocator, AllocatorConfig, CachingAllocator};
use crate::replay::Replay;
use crate::trace::{Event, Trace};

/// PyTorch's counters at the end of a phase, as `torch.cuda.memory_stats()` has them.
///
/// There are three phases. What comes before a backward pass is the forward phase, the batch included; what comes from
/// its begin to the update is the backward phase, with all batches whose gradients are accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Counters {
    /// The phase.
    pub phase: Phase,
    /// Optimizer steps completed before it.
    pub step: usize,
    /// Bytes that are given away at its end.
    pub allocated_bytes: u64,
    /// The most bytes that are given away within it.
    pub max_allocated_bytes: u64,
    /// Bytes that are taken from the device at its end.
    pub reserved_bytes: u64,
    /// The most bytes that are taken from the device within it.
    pub max_reserved_bytes: u64,
}

impl Counters {
    /// The counters of `trace` on a device that has `capacity_bytes` for the allocator; `u64::MAX` is no limit. The list ends where the
    /// device refuses an allocation.
    pub fn of(trace: &Trace, config: &AllocatorConfig, capacity_bytes: u64) -> Vec<Self> {
        let mut counting = Counting::new();
        Replay::observed(trace, config, capacity_bytes, |position, allocator| {
            let event = trace.events[position];
            counting.after(event, trace, allocator);
        });
        counting.finish()
    }
}

/// Counts as `measure.py` of the recorder does.
struct Counting {
    /// The phase that there is, and what is known of it. Until the first backward pass it is `Init`.
    now: Counters,
    ended: Vec<Counters>,
}

impl Counting {
    fn new() -> Self {
        Self {
            now: Counters {
                phase: Phase::Init,
                step: 0,
                allocated_bytes: 0,
                max_allocated_bytes: 0,
                reserved_bytes: 0,
                max_reserved_bytes: 0,
            },
            ended: Vec::new(),
        }
    }

    fn after(&mut self, event: Event, trace: &Trace, allocator: &CachingAllocator) {
        let now = &mut self.now;
        now.allocated_bytes = allocator.allocated_bytes();
        now.reserved_bytes = allocator.reserved_bytes();
        now.max_allocated_bytes = now.max_allocated_bytes.max(now.allocated_bytes);
        now.max_reserved_bytes = now.max_reserved_bytes.max(now.reserved_bytes);
        match event {
            Event::Phase(phase) => self.begins(trace.phases[phase as usize]),
            Event::ResetPeaks => self.reset_peaks(),
            _ => {}
        }
    }

    fn reset_peaks(&mut self) {
        self.now.max_allocated_bytes = self.now.allocated_bytes;
        self.now.max_reserved_bytes = self.now.reserved_bytes;
    }

    /// A phase begins. Where a forward pass does, nothing ends: a program on a real GPU does not say so.
    fn begins(&mut self, next: PhaseOfStep) {
        let ended = match (self.now.phase, next.phase) {
            (now, next) if now == next => return,
            (_, Phase::Backward) => Phase::Forward,
            (_, Phase::Optimizer) => Phase::Backward,
            (Phase::Optimizer, Phase::Data) => Phase::Optimizer,
            _ => return,
        };
        self.end(ended);
        self.now.phase = next.phase;
        self.now.step = next.step;
        self.reset_peaks();
    }

    fn end(&mut self, phase: Phase) {
        self.ended.push(Counters { phase, ..self.now });
    }

    /// The counters. A program that is ended after an update begins no other phase.
    fn finish(mut self) -> Vec<Counters> {
        if self.now.phase == Phase::Optimizer {
            self.end(Phase::Optimizer);
        }
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream;

    /// Two batches whose gradients are accumulated, in segments of 2 MiB and 20 MiB; the peaks are reset in the second step.
    const STREAM: &str = r#"["hello", {"version": 1}]
["p", "init", 0]
["a", 0, 1024, -1, -1, 0, 0, 0]
["p", "forward", 0]
["a", 1, 2097152, -1, -1, 0, 0, 0]
["p", "backward", 0]
["a", 2, 512, -1, -1, 0, 0, 0]
["f", 1]
["p", "forward", 0]
["a", 3, 3145728, -1, -1, 0, 0, 0]
["p", "backward", 0]
["f", 3]
["p", "optimizer", 0]
["a", 4, 2048, -1, -1, 0, 0, 0]
["p", "data", 1]
["f", 2]
["p", "forward", 1]
["a", 5, 1048576, -1, -1, 0, 0, 0]
["f", 5]
["z"]
["a", 6, 512, -1, -1, 0, 0, 0]
["p", "backward", 1]
["f", 6]
["p", "optimizer", 1]
["bye", {"reason": "steps", "steps": 2}]
"#;

    #[test]
    fn a_replay_counts_as_a_measurement_does() {
        let trace = stream::read(STREAM.as_bytes()).unwrap().trace;
        let counted = Counters::of(&trace, &AllocatorConfig::default(), u64::MAX);
        let figures = counted.iter().map(|counters| {
            let Counters { phase, step, .. } = *counters;
            let allocated = (counters.allocated_bytes, counters.max_allocated_bytes);
            (phase, step, allocated, counters.max_reserved_bytes >> 20)
        });
        let figures: Vec<_> = figures.collect();
        let (mib, kib) = (1 << 20, 1 << 10);
        let forward = 2 * mib + kib;
        let most = 3 * mib + kib + 512;
        let left = kib + 512;
        assert_eq!(
            figures,
            [
                (Phase::Forward, 0, (forward, forward), 22),
                (Phase::Backward, 0, (left, most), 22),
                (Phase::Optimizer, 0, (left + 2 * kib, left + 2 * kib), 22),
                (Phase::Forward, 1, (3 * kib + 512, 3 * kib + 512), 22),
                (Phase::Backward, 1, (3 * kib, 3 * kib + 512), 22),
                (Phase::Optimizer, 1, (3 * kib, 3 * kib), 22),
            ]
        );
    }

    #[test]
    fn counting_ends_where_the_device_refuses() {
        let trace = stream::read(STREAM.as_bytes()).unwrap().trace;
        let counted = Counters::of(&trace, &AllocatorConfig::default(), 2 << 20);
        assert_eq!(counted, []);
    }
}
