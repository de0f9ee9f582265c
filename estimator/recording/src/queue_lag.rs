//! The queue lag: how many calls the program is ahead of the device's thread.

use serde::{Deserialize, Serialize};

use crate::random;
use crate::recording::{BufferId, CallBatch, Event, Recording};

/// How many calls the program is ahead of the thread that executes them on the device. The lag decides which
/// tensors the program has dropped by the time of an allocation, and so which page a buffer finds free. On a
/// real card it changes all the time, between [`None`](Self::None) and [`Full`](Self::Full).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueLag {
    /// The thread executes a batch of calls as soon as the program has handed it over.
    #[default]
    None,
    /// The thread executes a batch of calls only when the program has handed over the next: a thread that is slow,
    /// or seldom gets a turn.
    Full,
    /// The lag changes between the two at random; the number is the seed of the changes.
    Varying(u64),
}

/// How many calls CubeCL's client collects before it hands them to the device's thread, unless it waits for
/// an answer: `CHANNEL_MAX_TASK` of `cubecl-common` 0.11.3, `src/device/handle/channel.rs`.
pub const CALLS_PER_BATCH: usize = 32;

impl QueueLag {
    /// The lags with which a step must complete to fit, besides [`None`](Self::None): the largest, and samples of those in
    /// between. Which lag is the worst cannot be predicted, since it depends on the pages.
    pub const REQUIRED: [Self; 4] = [
        Self::Full,
        Self::Varying(1),
        Self::Varying(2),
        Self::Varying(3),
    ];
}

/// The lag of a run, batch by batch.
#[derive(Clone, Debug)]
pub struct ChangingLag {
    queue_lag: QueueLag,
    is_full: bool,
    random: u64,
}

impl ChangingLag {
    /// The lag of a run with `queue_lag`, of its first batch.
    pub fn new(queue_lag: QueueLag) -> Self {
        let random = match queue_lag {
            QueueLag::Varying(seed) => seed,
            QueueLag::None | QueueLag::Full => 0,
        };
        let mut lag = Self {
            queue_lag,
            is_full: false,
            random,
        };
        lag.change();
        lag
    }

    /// Whether the thread executes the next batch only when the program has handed over the one after it.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Changes to the lag of the next batch.
    pub fn change(&mut self) {
        self.is_full = match self.queue_lag {
            QueueLag::None => false,
            QueueLag::Full => true,
            QueueLag::Varying(_) => random::next(&mut self.random) & 1 == 1,
        };
    }
}

impl Recording {
    /// This recording of a run without queue lag as it were with `queue_lag`: the same calls, but frees happen
    /// earlier, since the program is ahead by the time that a batch is executed. What the pools report at the
    /// marks stays that of the run.
    ///
    /// A program does the same with every lag. But the choices of burn's tuner can depend on it, so this is only
    /// right for a run without tuning.
    pub fn with_queue_lag(&self, queue_lag: QueueLag) -> Self {
        if queue_lag == QueueLag::None {
            return self.clone();
        }
        let known = known_at(&self.call_batches, queue_lag);
        let uses = LastUses::of(self);
        let mut events = Vec::with_capacity(self.events.len());
        let mut batches = Vec::with_capacity(self.call_batches.len());
        let ends = self.call_batches.iter().skip(1).map(|batch| batch.position);
        let ends = ends.chain([self.events.len()]);
        let start = self
            .call_batches
            .first()
            .map_or(self.events.len(), |first| first.position);
        events.extend_from_slice(&self.events[..start]);
        // What the program has dropped, as far as the device's thread knows, while a queued call still holds it.
        let mut dropped = vec![false; self.buffers.len()];
        let mut told = 0;
        for (index, (batch, end)) in self.call_batches.iter().zip(ends).enumerate() {
            let queued = index..=known[index];
            batches.push(CallBatch {
                position: events.len(),
                launches: self.call_batches[queued]
                    .iter()
                    .map(|batch| batch.launches)
                    .sum(),
                drains: batch.drains,
            });
            while told <= known[index] {
                for buffer in &uses.freed[told] {
                    match uses.last[buffer.0 as usize] < batch.position {
                        true => events.push(Event::Free(*buffer)),
                        false => dropped[buffer.0 as usize] = true,
                    }
                }
                told += 1;
            }
            for (position, event) in self.events[..end].iter().enumerate().skip(batch.position) {
                if matches!(event, Event::Free(buffer) if !self.buffer(*buffer).metadata) {
                    continue;
                }
                events.push(*event);
                for buffer in self.used_by(event) {
                    let place = buffer.0 as usize;
                    if uses.last[place] == position && std::mem::take(&mut dropped[place]) {
                        events.push(Event::Free(buffer));
                    }
                }
            }
        }
        self.with_events(events, batches)
    }

    /// The buffers of the program that an event uses.
    fn used_by(&self, event: &Event) -> impl Iterator<Item = BufferId> {
        let allocated = match event {
            Event::Allocate(buffer) if !self.buffer(*buffer).metadata => Some(*buffer),
            _ => None,
        };
        let operands = match event {
            Event::Launch(launch) => [self.reads(*launch), self.writes(*launch)],
            _ => [&[] as &[BufferId]; 2],
        };
        allocated
            .into_iter()
            .chain(operands.into_iter().flatten().copied())
    }
}

/// For each batch: the index of the batch that the program has handed over last when the thread executes it.
fn known_at(batches: &[CallBatch], queue_lag: QueueLag) -> Vec<usize> {
    let mut lag = ChangingLag::new(queue_lag);
    let mut known = Vec::with_capacity(batches.len());
    for drained in batches.split_inclusive(|batch| batch.drains) {
        let start = known.len();
        let end = start + drained.len() - 1;
        for index in start..=end {
            let ahead = index + usize::from(lag.is_full());
            known.push(ahead.min(end));
            if ahead < end {
                lag.change();
            }
        }
    }
    known
}

/// When each buffer of the program is used last, and when the program drops it.
struct LastUses {
    /// By [`BufferId`]: the position of the last call that uses it.
    last: Vec<usize>,
    /// By batch: the buffers that the program had dropped by then, and not by the batch before.
    freed: Vec<Vec<BufferId>>,
}

impl LastUses {
    fn of(recording: &Recording) -> Self {
        let mut last = vec![0; recording.buffers.len()];
        let mut freed = vec![Vec::new(); recording.call_batches.len()];
        let mut batches = recording.call_batches.iter().peekable();
        let mut batch = 0;
        for (position, event) in recording.events.iter().enumerate() {
            while batches.next_if(|next| next.position <= position).is_some() {
                batch += 1;
            }
            for buffer in recording.used_by(event) {
                last[buffer.0 as usize] = position;
            }
            if let Event::Free(buffer) = event
                && !recording.buffer(*buffer).metadata
                && batch > 0
            {
                freed[batch - 1].push(*buffer);
            }
        }
        Self { last, freed }
    }
}
