//! The bytes in use, event by event, and their peak.

use serde::{Deserialize, Serialize};

use super::lifetimes::Lifetimes;
use crate::bytes::Bytes;
use crate::phase::Phase;
use crate::recording::{BufferId, Event, Recording};

/// The bytes in use, event by event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    live: Vec<Bytes>,
}

/// The moment with the most bytes in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakPosition {
    /// The position of the event.
    pub position: usize,
    /// The bytes in use.
    pub live: Bytes,
    /// The number of the mark that ends its phase.
    pub mark: usize,
}

/// The memory of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct PhaseMemory {
    /// The phase.
    pub phase: Phase,
    /// Bytes in use at its end.
    pub live_bytes: Bytes,
    /// The most bytes in use within it.
    pub peak_live_bytes: Bytes,
}

impl Timeline {
    /// Computes the timeline of `recording`.
    pub fn of(recording: &Recording) -> Self {
        let mut in_use = Bytes::ZERO;
        let live = recording.events.iter().map(|event| {
            match event {
                Event::Allocate(buffer) => in_use += recording.buffer(*buffer).bytes,
                Event::Free(buffer) => in_use -= recording.buffer(*buffer).bytes,
                _ => {}
            }
            in_use
        });
        Self {
            live: live.collect(),
        }
    }

    /// The bytes in use right after the event at `position`.
    pub fn live(&self, position: usize) -> Bytes {
        self.live[position]
    }

    /// The most bytes in use at once.
    pub fn most(&self) -> Bytes {
        self.live.iter().copied().max().unwrap_or_default()
    }

    /// The first moment with the most bytes in use; `None` if the recording is empty.
    pub fn peak(&self, recording: &Recording) -> Option<PeakPosition> {
        let points = self.live.iter().copied().enumerate();
        // `max_by_key` would take the last of equals.
        let (position, live) = points.rev().max_by_key(|(_, live)| *live)?;
        let mark = recording.marks_before(position);
        Some(PeakPosition {
            position,
            live,
            mark: mark.min(recording.marks.len().saturating_sub(1)),
        })
    }

    /// The buffers in use right after the event at `position`, largest first.
    pub fn buffers(recording: &Recording, lifetimes: &Lifetimes, position: usize) -> Vec<BufferId> {
        let there = lifetimes.iter().filter(|(_, life)| life.covers(position));
        let mut buffers: Vec<_> = there.map(|(buffer, _)| buffer).collect();
        buffers.sort_by_key(|buffer| std::cmp::Reverse(recording.buffer(*buffer).bytes));
        buffers
    }

    /// Every phase, in order.
    pub fn phases(&self, recording: &Recording) -> Vec<PhaseMemory> {
        let mut start = 0;
        let mut phases = Vec::with_capacity(recording.marks.len());
        for (position, event) in recording.events.iter().enumerate() {
            if let Event::Mark(mark) = event {
                let within = &self.live[start..=position];
                phases.push(PhaseMemory {
                    phase: recording.marks[*mark as usize].phase,
                    live_bytes: self.live[position],
                    peak_live_bytes: within.iter().copied().max().unwrap_or_default(),
                });
                start = position;
            }
        }
        phases
    }
}
