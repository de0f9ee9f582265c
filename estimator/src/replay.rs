//! Replays the calls of a recorded program on the memory of another card, without burn.

use std::collections::VecDeque;
use std::sync::Arc;

use cubecl_environment::stream::StreamId;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{ManagedMemoryBinding, ManagedMemoryHandle};
use cubecl_server::server::IoError;

use crate::Bytes;
use crate::card::{CardMemory, DeviceSpec, MemoryBudget, any_service, memory};
use crate::record::{BufferId, Event, Failure, Launch, MetadataId, Recording, Refusal};

/// The outcome of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOutcome {
    /// The first allocation that the card refused; the replay ends there.
    pub failure: Option<Failure>,
    /// The most bytes that the pools reserved on the card at once.
    pub reserved: Bytes,
    /// The memory that the card would have needed for the allocation that it refused.
    pub wanted: Option<Bytes>,
}

impl ReplayOutcome {
    /// Whether the replay reached the end of the recording.
    pub fn completed(&self) -> bool {
        self.failure.is_none()
    }
}

/// Replays the calls of `recording` on a new card like `spec`; `bytes` is the size of each buffer. The pools,
/// their pages and the moment at which the card is full are the same as if the program had run on that card.
pub fn replay(
    spec: &DeviceSpec,
    recording: &Recording,
    bytes: impl Fn(BufferId) -> Bytes,
) -> ReplayOutcome {
    let mut replay = Replay::new(spec, recording);
    let failure = replay.run(recording, &bytes).err().map(|(buffer, error)| {
        let refusal = spec.refusal(&error);
        Failure { buffer, refusal }
    });
    ReplayOutcome {
        failure,
        reserved: Bytes(replay.budget.peak()),
        wanted: failure.map(|failure| match failure.refusal {
            Refusal::Full => Bytes(replay.budget.wanted()),
            // See `DeviceSpec::largest_page`.
            Refusal::TooLarge { .. } => bytes(failure.buffer) * 4,
        }),
    }
}

/// The memory that a card like `spec` has after a replay of `recording`, if it begins with `start` and grows
/// by what an allocation lacks each time that it cannot make room for one; `bytes` is the size of each buffer.
pub(crate) fn replay_growing(
    spec: &DeviceSpec,
    recording: &Recording,
    bytes: impl Fn(BufferId) -> Bytes,
    start: Bytes,
) -> Bytes {
    let mut replay = Replay::new(spec, recording);
    replay.budget.set_capacity(start.0);
    replay.grows = true;
    // If a single allocation is too large for the card, the memory until then is the result.
    let _ = replay.run(recording, bytes);
    Bytes(replay.budget.capacity())
}

struct Replay {
    memory: Box<dyn CardMemory>,
    budget: Arc<MemoryBudget>,
    /// Whether the card grows by what an allocation lacks.
    grows: bool,
    /// By [`BufferId`].
    buffers: Vec<Option<ManagedMemoryHandle>>,
    stream: StreamId,
    words: Vec<u64>,
    /// What the queued launches hold, the next launch first.
    bound: VecDeque<Vec<ManagedMemoryBinding>>,
    /// The position of the first event whose launch is not in `bound`.
    queued_until: usize,
}

impl Replay {
    fn new(spec: &DeviceSpec, recording: &Recording) -> Self {
        let budget = MemoryBudget::new(spec.available().map(|bytes| bytes.0));
        let logger = Arc::new(ServerLogger::default());
        Self {
            memory: memory(
                spec,
                budget.clone(),
                any_service(),
                logger,
                Default::default(),
            ),
            budget,
            grows: false,
            buffers: vec![None; recording.buffers.len()],
            stream: StreamId { value: 0 },
            words: Vec::new(),
            bound: VecDeque::new(),
            queued_until: 0,
        }
    }

    /// Replays the events up to the first allocation that the card refuses.
    fn run(
        &mut self,
        recording: &Recording,
        bytes: impl Fn(BufferId) -> Bytes,
    ) -> Result<(), (BufferId, IoError)> {
        let mut batches = recording.call_batches.iter().peekable();
        for (position, event) in recording.events.iter().enumerate() {
            while let Some(batch) = batches.next_if(|batch| batch.position <= position) {
                self.bind(recording, position, batch.launches);
            }
            self.event(recording, event, &bytes)?;
        }
        Ok(())
    }

    /// Binds the buffers of the next launches, so many from the event at `position` on, as calls in the queue do.
    fn bind(&mut self, recording: &Recording, position: usize, launches: usize) {
        self.queued_until = self.queued_until.max(position);
        while self.bound.len() < launches {
            let Some(event) = recording.events.get(self.queued_until) else {
                return;
            };
            self.queued_until += 1;
            if let Event::Launch(launch) = event {
                let operands = recording
                    .reads(*launch)
                    .iter()
                    .chain(recording.writes(*launch));
                let bindings = operands.map(|buffer| self.handle(*buffer).clone().binding());
                let bindings = bindings.collect();
                self.bound.push_back(bindings);
            }
        }
    }

    /// The handle of a buffer; the program has it before the device's thread allocates the buffer.
    fn handle(&mut self, buffer: BufferId) -> &ManagedMemoryHandle {
        self.buffers[buffer.0 as usize].get_or_insert_with(ManagedMemoryHandle::new)
    }

    fn allocate(&mut self, memory: ManagedMemoryHandle, size: Bytes) -> Result<(), IoError> {
        loop {
            let outcome = self.memory.allocate(memory.clone(), size.0, self.stream);
            let lacks = self.budget.wanted() > self.budget.capacity();
            if outcome.is_ok() || !self.grows || !lacks {
                return outcome;
            }
            self.budget.set_capacity(self.budget.wanted());
        }
    }

    fn event(
        &mut self,
        recording: &Recording,
        event: &Event,
        bytes: impl Fn(BufferId) -> Bytes,
    ) -> Result<(), (BufferId, IoError)> {
        match event {
            Event::Stream(stream) => self.stream = recording.streams[*stream as usize],
            // The card allocates metadata buffers itself, with the launch.
            Event::Allocate(buffer) | Event::Free(buffer) if recording.buffer(*buffer).metadata => {
            }
            Event::Allocate(buffer) => {
                let handle = self.handle(*buffer).clone();
                self.allocate(handle, bytes(*buffer))
                    .map_err(|error| (*buffer, error))?;
            }
            Event::Free(buffer) => {
                self.buffers[buffer.0 as usize] = None;
            }
            Event::Launch(launch) => {
                let Launch {
                    metadata, is_empty, ..
                } = *recording.launch(*launch);
                if let Some(metadata) = metadata {
                    let words = recording.metadata[metadata.0 as usize].words;
                    self.fill(metadata, words);
                    // A card without room for metadata refuses the next allocation too.
                    let _ = self.memory.launch(&self.words, is_empty, self.stream);
                }
                self.bound.pop_front();
            }
            Event::Mode(mode) => self.memory.mode((*mode).into(), self.stream),
            Event::Write => self.memory.write(self.stream),
            Event::Read(read) => {
                let bytes = &recording.reads_back[*read as usize];
                let _ = self.memory.read(bytes, self.stream);
            }
            Event::Flush => self.memory.flush(self.stream),
            Event::Cleanup => self.memory.cleanup(self.stream),
            // At a mark, the program asked for a report of the pools, for which wgpu executes its queued
            // tasks.
            Event::Mark(_) => {
                self.memory.report(self.stream);
            }
        }
        Ok(())
    }

    /// Fills `words` with as many as `metadata` has; they are equal if the recorded ones were.
    fn fill(&mut self, metadata: MetadataId, words: u32) {
        self.words.clear();
        self.words.resize(words as usize, 0);
        if let Some(first) = self.words.first_mut() {
            *first = u64::from(metadata.0);
        }
    }
}
