//! Replays the calls of a recorded program on the memory of another card, without burn.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use cubecl_environment::stream::StreamId;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    ManagedMemoryBinding, ManagedMemoryHandle, WeakMemoryBinding,
};
use cubecl_server::server::IoError;
use recording::{
    AllocationMode, BufferId, Bytes, CallBatch, Event, Failure, Launch, LaunchId, MetadataId,
    Recording, Refusal,
};

use crate::card::{
    CardMemory, DeviceSpec, MemoryBudget, MetadataBuffer, any_service, cubecl_mode, memory,
};

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

/// The steps that a replay makes after the recorded ones, each like the last. Chosen: `docs/accuracy.md` has what networks need in
/// so many steps beside what they need in 24.
const MORE_STEPS: usize = 4;

/// Replays the calls of `recording` on a new card like `spec`; `bytes` is the size of each buffer. The pools,
/// their pages and the moment at which the card is full are the same as if the program had run on that card. After the
/// recorded steps it makes the last one again, as a training does.
///
/// If the card refuses a buffer with which burn's tuner tries a kernel, the replay goes on without what uses it, as the
/// tuner does. If that kernel would have been the fastest, a run goes on with another than the replay.
pub fn replay(
    spec: &DeviceSpec,
    recording: &Recording,
    bytes: impl Fn(BufferId) -> Bytes,
) -> ReplayOutcome {
    let mut replay = Replay::new(spec, recording, WhenFull::Refuse);
    let failure = replay.run_on(recording, &bytes).err();
    let failure = failure.map(|refused| refused.on(spec));
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
    let mut replay = Replay::new(spec, recording, WhenFull::Grow);
    replay.budget.set_capacity(start.0);
    // If a single allocation is too large for the card, the memory until then is the result.
    let _ = replay.run_on(recording, bytes);
    Bytes(replay.budget.capacity())
}

/// The recording of a run on a card like `spec` of a program that makes the calls of `recording`, by a replay, and the most
/// bytes that the pools reserved at once. The buffers that the runtime keeps for itself are those that it allocates in the
/// replay. If the card refuses an allocation, the step goes on with unlimited memory, as in a run.
pub(crate) fn record_replay(spec: &DeviceSpec, recording: &Recording) -> (Recording, Bytes) {
    let bytes = |buffer: BufferId| recording.buffer(buffer).bytes;
    let mut replay = Replay::new(spec, recording, WhenFull::LiftLimit);
    let mut recorder = Rerecorder {
        recording: recording.with_events(Vec::new(), Vec::new()),
        metadata: Vec::new(),
        refusals: 0,
        may_have_dropped: false,
    };
    // It goes on to the end, so it does not end with an error.
    let _ = replay.run(recording, bytes, &mut recorder);
    recorder.recording.failure = replay.refused.map(|refused| refused.on(spec));
    (recorder.recording, Bytes(replay.budget.peak()))
}

/// The allocation that a card refused in a replay.
struct Refused {
    buffer: BufferId,
    error: IoError,
}

impl Refused {
    fn on(self, spec: &DeviceSpec) -> Failure {
        Failure {
            buffer: self.buffer,
            refusal: spec.refusal(&self.error),
        }
    }
}

/// Observes a replay.
trait ReplayObserver {
    /// The device's thread begins to execute `batch`.
    fn begins(&mut self, _batch: &CallBatch) {}

    /// `event` is about to happen.
    fn happens(&mut self, _event: &Event) {}

    /// It has happened; `allocated` is what the runtime allocated for itself in it, and `refusals` how many requests the
    /// card has refused by now.
    fn happened(&mut self, _allocated: Option<MetadataBuffer>, _refusals: u64) {}
}

/// Nothing observes the replay.
struct Unobserved;

impl ReplayObserver for Unobserved {}

/// Records a replay as the card records a run: `execute` and `launch_now` of its server.
struct Rerecorder {
    recording: Recording,
    /// The buffers that the runtime keeps for itself.
    metadata: Vec<(BufferId, WeakMemoryBinding)>,
    refusals: u64,
    /// Whether the runtime may have dropped some of them since the last allocation.
    may_have_dropped: bool,
}

impl Rerecorder {
    fn note_dropped(&mut self) {
        self.metadata.retain(|(buffer, memory)| {
            let kept = memory.upgrade().is_some();
            if !kept {
                self.recording.events.push(Event::Free(*buffer));
            }
            kept
        });
    }
}

impl ReplayObserver for Rerecorder {
    fn begins(&mut self, batch: &CallBatch) {
        self.recording.call_batches.push(CallBatch {
            position: self.recording.events.len(),
            ..*batch
        });
        self.note_dropped();
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::Allocate(buffer) | Event::Free(buffer)
                if self.recording.buffer(*buffer).metadata =>
            {
                return;
            }
            Event::Allocate(_) if std::mem::take(&mut self.may_have_dropped) => self.note_dropped(),
            _ => {}
        }
        self.recording.events.push(*event);
    }

    fn happened(&mut self, allocated: Option<MetadataBuffer>, refusals: u64) {
        // When the card refuses an allocation, the runtime drops its cached metadata.
        let refused = std::mem::replace(&mut self.refusals, refusals) != refusals;
        self.may_have_dropped |= refused;
        let Some(allocated) = allocated else {
            return;
        };
        if allocated.memory.upgrade().is_some() {
            let bytes = Bytes(allocated.bytes);
            let buffer = self.recording.add_buffer(bytes, true);
            self.recording.events.push(Event::Allocate(buffer));
            self.metadata.push((buffer, allocated.memory));
        }
        self.may_have_dropped |= allocated.evicts;
    }
}

/// What a card does that has no room for an allocation.
#[derive(Clone, Copy, PartialEq)]
enum WhenFull {
    /// It refuses the allocation, and the replay ends.
    Refuse,
    /// It grows by what the allocation lacks.
    Grow,
    /// It refuses the allocation, and has unlimited memory from then on.
    LiftLimit,
}

struct Replay {
    memory: Box<dyn CardMemory>,
    budget: Arc<MemoryBudget>,
    when_full: WhenFull,
    /// The first allocation that the card refused, if the replay went on.
    refused: Option<Refused>,
    /// Buffers that the card refused and the step goes on without, and what should have been computed from them.
    unwritten: HashSet<BufferId>,
    /// The largest buffer with which burn's tuner can try a kernel.
    largest_trial: Bytes,
    mode: AllocationMode,
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
    fn new(spec: &DeviceSpec, recording: &Recording, when_full: WhenFull) -> Self {
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
            when_full,
            refused: None,
            unwritten: HashSet::new(),
            largest_trial: spec.largest_trial(),
            mode: AllocationMode::Auto,
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
        observer: &mut impl ReplayObserver,
    ) -> Result<(), Refused> {
        self.part(recording, 0..recording.events.len(), bytes, observer)
    }

    /// Replays the events up to the first allocation that the card refuses, and goes on with the last step, as a long training
    /// does.
    fn run_on(
        &mut self,
        recording: &Recording,
        bytes: impl Fn(BufferId) -> Bytes,
    ) -> Result<(), Refused> {
        let Some(cycle) = recording.cycle() else {
            return self.run(recording, bytes, &mut Unobserved);
        };
        self.part(recording, 0..cycle.events.end, &bytes, &mut Unobserved)?;
        for _ in 0..MORE_STEPS {
            // What the step leaves takes the place of what it was left.
            for (old, new) in &cycle.heirs {
                self.buffers[old.0 as usize] = self.buffers[new.0 as usize].take();
            }
            self.bound.clear();
            self.queued_until = cycle.events.start;
            self.part(recording, cycle.events.clone(), &bytes, &mut Unobserved)?;
        }
        Ok(())
    }

    /// Replays a part of the events up to the first allocation that the card refuses.
    fn part(
        &mut self,
        recording: &Recording,
        positions: Range<usize>,
        bytes: impl Fn(BufferId) -> Bytes,
        observer: &mut impl ReplayObserver,
    ) -> Result<(), Refused> {
        let begin = positions.start;
        let batches = recording.call_batches.iter();
        let mut batches = batches
            .skip_while(|batch| batch.position < begin)
            .peekable();
        for position in positions {
            let event = &recording.events[position];
            while let Some(batch) = batches.next_if(|batch| batch.position <= position) {
                self.bind(recording, position, batch.launches);
                observer.begins(batch);
            }
            observer.happens(event);
            let allocated = self.event(recording, event, &bytes)?;
            observer.happened(allocated, self.budget.refusals());
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
            if outcome.is_ok() || self.when_full != WhenFull::Grow || !lacks {
                return outcome;
            }
            self.budget.set_capacity(self.budget.wanted());
        }
    }

    /// Allocates a buffer that the step can go on without.
    fn allocate_optional(&mut self, buffer: BufferId, size: Bytes) {
        let handle = self.handle(buffer).clone();
        // A throughput probe is no trial of a kernel.
        let is_trial = self.mode != AllocationMode::Dedicated;
        let refused = is_trial && size > self.largest_trial
            || self.memory.allocate(handle, size.0, self.stream).is_err();
        if refused {
            self.unwritten.insert(buffer);
        }
    }

    /// Whether a launch does not run, since the card refused one of its buffers.
    fn is_skipped(&mut self, recording: &Recording, launch: LaunchId) -> bool {
        if self.unwritten.is_empty() {
            return false;
        }
        let (reads, writes) = (recording.reads(launch), recording.writes(launch));
        let mut operands = reads.iter().chain(writes);
        let skipped = operands.any(|buffer| self.unwritten.contains(buffer));
        if skipped {
            self.unwritten.extend(writes);
        }
        skipped
    }

    /// Makes the call of `event`. Returns what the runtime allocated for itself in it.
    fn event(
        &mut self,
        recording: &Recording,
        event: &Event,
        bytes: impl Fn(BufferId) -> Bytes,
    ) -> Result<Option<MetadataBuffer>, Refused> {
        match event {
            Event::Stream(stream) => {
                self.stream = StreamId {
                    value: recording.streams[*stream as usize].0,
                };
            }
            // The card allocates metadata buffers itself, with the launch.
            Event::Allocate(buffer) | Event::Free(buffer) if recording.buffer(*buffer).metadata => {
            }
            Event::Allocate(buffer) if recording.buffer(*buffer).optional => {
                self.allocate_optional(*buffer, bytes(*buffer));
            }
            Event::Allocate(buffer) => {
                let handle = self.handle(*buffer).clone();
                let (buffer, size) = (*buffer, bytes(*buffer));
                if let Err(error) = self.allocate(handle.clone(), size) {
                    let refused = Refused { buffer, error };
                    if self.when_full != WhenFull::LiftLimit {
                        return Err(refused);
                    }
                    self.refused.get_or_insert(refused);
                    self.budget.lift_limit();
                    // As in a run: any size will do.
                    let _ = self.memory.allocate(handle, size.0.min(1), self.stream);
                }
            }
            Event::Free(buffer) => {
                self.buffers[buffer.0 as usize] = None;
                self.unwritten.remove(buffer);
            }
            Event::Launch(launch) => {
                let Launch {
                    metadata, is_empty, ..
                } = *recording.launch(*launch);
                let skipped = self.is_skipped(recording, *launch);
                let metadata = metadata.filter(|_| !skipped);
                let allocated = metadata.and_then(|metadata| {
                    let words = recording.metadata[metadata.0 as usize].words;
                    self.fill(metadata, words);
                    let launched = self.memory.launch(&self.words, is_empty, self.stream);
                    // A card without room for metadata refuses the next allocation too.
                    launched.ok().flatten()
                });
                self.bound.pop_front();
                return Ok(allocated);
            }
            Event::Mode(mode) => {
                self.mode = *mode;
                self.memory.mode(cubecl_mode(*mode), self.stream);
            }
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
        Ok(None)
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
