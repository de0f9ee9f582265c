//! The recording of what a program did to a card, event by event.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::mark::{Layer, Mark, Role};
use crate::phase::Phase;

/// A buffer of a recording, numbered in the order of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BufferId(pub u32);

/// A kernel's name, as an index into [`Recording::kernels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KernelId(pub u32);

/// A layer: the path of a leaf module, as an index into [`Recording::layers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerId(pub u32);

/// The metadata of a launch, as an index into [`Recording::metadata`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MetadataId(pub u32);

/// A launch, as an index into [`Recording::launches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LaunchId(pub u32);

/// A stream of a card, by the number that the program's runtime gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stream(pub u64);

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The events that follow happen on this stream; an index into [`Recording::streams`].
    Stream(u32),
    /// The program or the runtime allocated a buffer.
    Allocate(BufferId),
    /// Nothing but its pool holds the buffer any more. The recorder notices this before each batch of calls and before
    /// each allocation, which is when the pools notice it too.
    Free(BufferId),
    /// A kernel was launched.
    Launch(LaunchId),
    /// The allocations that follow have this mode.
    Mode(AllocationMode),
    /// The program wrote data to the card.
    Write,
    /// The program read data from the card; an index into [`Recording::reads_back`].
    Read(u32),
    /// The runtime submitted everything to the device.
    Flush,
    /// The pools gave unused memory back to the card.
    Cleanup,
    /// A phase ended; an index into [`Recording::marks`].
    Mark(u32),
}

// A search for the largest batch keeps the events of each recording once for each queue lag.
const _: () = assert!(size_of::<Event>() == 8);

/// Calls that the device's thread executed one after the other, while the program stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallBatch {
    /// The number of events before them. The first of them are the frees of what the program had dropped by then.
    pub position: usize,
    /// How many launches waited in the queue before, the first of which is the next in the recording. While a launch
    /// waits it holds bindings of its buffers, and CubeCL moves no buffer that is bound to another page.
    pub launches: usize,
    /// Whether the program waited until the queue was empty.
    pub drains: bool,
}

/// Where allocations come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AllocationMode {
    /// Allocations come from the pools.
    Auto,
    /// Allocations stay reserved: weights.
    Persistent,
    /// Each allocation is a page of its own, outside every pool.
    Dedicated,
}

/// One launch of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The kernel.
    pub kernel: KernelId,
    /// Shapes and strides passed to the kernel; `None` if there are none.
    pub metadata: Option<MetadataId>,
    operands: u32,
    reads: u16,
    writes: u16,
    /// Whether it has no threads: a dimension of its grid is 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_empty: bool,
}

/// The content of the metadata of a launch: shapes and strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Metadata {
    /// A hash of the content.
    pub hash: u64,
    /// Its length in 64-bit words.
    pub words: u32,
}

/// The shapes that a buffer was allocated for, as an index into [`Recording::layouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayoutId(pub u32);

/// The tensors that a buffer was allocated for: one, or several side by side.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout(pub Vec<TensorLayout>);

/// A tensor in a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorLayout {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Bytes of each element.
    pub element_bytes: usize,
    /// Whether the runtime may pad the rows.
    pub pitched: bool,
}

/// A buffer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// The requested size.
    pub bytes: Bytes,
    /// The shapes from which the size follows, if the program stated them.
    pub layout: Option<LayoutId>,
    /// Whether the runtime allocated it for itself, for the metadata of a launch.
    pub metadata: bool,
    /// Whether the step goes on without it: burn's tuner requests it to try a kernel, or to probe the card, and leaves that
    /// out if the card has no room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// Why a card refused an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The card does not have enough free memory.
    Full,
    /// The runtime allows no single allocation of this size.
    TooLarge {
        /// The largest allocation that the runtime allows.
        largest: Bytes,
    },
}

/// The allocation that a card refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The buffer that was to be allocated.
    pub buffer: BufferId,
    /// The reason.
    pub refusal: Refusal,
}

/// Everything that a program did to a card.
///
/// The recordings of one run with several queue lags share what does not depend on the lag.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// The events in the order in which they happened.
    pub events: Vec<Event>,
    /// The buffers, by [`BufferId`].
    pub buffers: Arc<Vec<Buffer>>,
    /// The launches, by [`LaunchId`].
    pub launches: Arc<Vec<Launch>>,
    /// The streams that the program used.
    pub streams: Vec<Stream>,
    /// What the program read from the card: the bytes for each buffer.
    pub reads_back: Vec<Vec<u64>>,
    /// The names of the kernels, by [`KernelId`].
    pub kernels: Vec<String>,
    /// The layers, by [`LayerId`].
    pub layers: Vec<Layer>,
    /// The layouts, by [`LayoutId`].
    pub layouts: Arc<Vec<Layout>>,
    /// The metadata of launches, by [`MetadataId`].
    pub metadata: Arc<Vec<Metadata>>,
    /// The ends of phases.
    pub marks: Vec<Mark>,
    /// The batches in which the device's thread executed the calls.
    pub call_batches: Vec<CallBatch>,
    /// The first allocation that the card refused; a real program would not make the calls after it.
    pub failure: Option<Failure>,
    operands: Arc<Vec<BufferId>>,
}

impl Recording {
    /// A launch of this recording.
    pub fn launch(&self, launch: LaunchId) -> &Launch {
        &self.launches[launch.0 as usize]
    }

    /// The name of the kernel of a launch.
    pub fn kernel(&self, launch: LaunchId) -> &str {
        &self.kernels[self.launch(launch).kernel.0 as usize]
    }

    /// The first launch at or after the event at `position`, and its position. A buffer that is allocated at `position`
    /// is for this launch, since a launch comes after the allocations made for it.
    pub fn next_launch(&self, position: usize) -> Option<(usize, LaunchId)> {
        let mut events = self.events.iter().enumerate().skip(position);
        events.find_map(|(position, event)| match event {
            Event::Launch(launch) => Some((position, *launch)),
            _ => None,
        })
    }

    /// The buffers that a launch reads.
    pub fn reads(&self, launch: LaunchId) -> &[BufferId] {
        let launch = self.launch(launch);
        let start = launch.operands as usize;
        &self.operands[start..start + launch.reads as usize]
    }

    /// The buffers that a launch writes.
    pub fn writes(&self, launch: LaunchId) -> &[BufferId] {
        let launch = self.launch(launch);
        let start = launch.operands as usize + launch.reads as usize;
        &self.operands[start..start + launch.writes as usize]
    }

    /// A buffer of this recording.
    pub fn buffer(&self, buffer: BufferId) -> &Buffer {
        &self.buffers[buffer.0 as usize]
    }

    /// Whether a program does the same in both recordings, with buffers of the same sizes.
    pub fn makes_calls_of(&self, other: &Self) -> bool {
        self.events == other.events
            && self.buffers == other.buffers
            && self.operands == other.operands
    }

    /// The phase with which a step begins: [`Phase::Data`], or [`Phase::Forward`] if the program never reports the end
    /// of the other.
    pub fn first_phase(&self) -> Phase {
        match self.marks.iter().any(|mark| mark.phase == Phase::Data) {
            true => Phase::Data,
            false => Phase::Forward,
        }
    }

    /// Number of marks before the event at `position`, which is the index of the mark that ends its phase.
    pub fn marks_before(&self, position: usize) -> usize {
        let before = self.events[..position].iter();
        before.filter(|e| matches!(e, Event::Mark(_))).count()
    }

    /// Drops the events after the phase in which the card refused an allocation: the recording of a run ends with
    /// that phase.
    pub fn cut_at_failure(&mut self) {
        let Some(failure) = self.failure else {
            return;
        };
        let mut events = self.events.iter();
        let refused = events.position(|event| *event == Event::Allocate(failure.buffer));
        let stops = events.position(|event| matches!(event, Event::Mark(_)));
        if let (Some(refused), Some(stops)) = (refused, stops) {
            self.events.truncate(refused + stops + 2);
            self.marks.truncate(self.marks_before(self.events.len()));
            let end = self.events.len();
            self.call_batches.retain(|batch| batch.position < end);
        }
    }

    /// The recording up to the event at `position`, without that event. It shares what is not copied for further events.
    pub fn up_to(&self, position: usize) -> Self {
        let batches = self.call_batches.iter();
        let batches = batches.filter(|batch| batch.position < position).copied();
        let mut part = self.with_events(self.events[..position].to_vec(), batches.collect());
        part.marks.truncate(self.marks_before(position));
        part
    }

    /// Gives back the memory that is kept for further events.
    pub fn shrink_to_fit(&mut self) {
        self.events.shrink_to_fit();
        self.call_batches.shrink_to_fit();
        Arc::make_mut(&mut self.buffers).shrink_to_fit();
        Arc::make_mut(&mut self.launches).shrink_to_fit();
        Arc::make_mut(&mut self.operands).shrink_to_fit();
    }

    /// The same recording with other events, in these batches.
    pub fn with_events(&self, events: Vec<Event>, call_batches: Vec<CallBatch>) -> Self {
        Self {
            events,
            call_batches,
            buffers: self.buffers.clone(),
            launches: self.launches.clone(),
            operands: self.operands.clone(),
            streams: self.streams.clone(),
            reads_back: self.reads_back.clone(),
            kernels: self.kernels.clone(),
            layers: self.layers.clone(),
            layouts: self.layouts.clone(),
            metadata: self.metadata.clone(),
            marks: self.marks.clone(),
            failure: self.failure,
        }
    }

    /// The recording of a program that does not [keep](Role::Kept) a copy of its model: what nothing else holds is free at the end
    /// of the first optimizer step, which replaces it.
    pub fn without_kept(&self) -> Self {
        let mut ends = self.events.iter();
        let end = ends.position(|event| {
            matches!(event, Event::Mark(mark) if self.marks[*mark as usize].phase == Phase::Optimizer)
        });
        let (Some(end), Some(last)) = (end, self.marks.last()) else {
            return self.clone();
        };
        let (kept, others): (Vec<_>, Vec<_>) = last
            .roles
            .iter()
            .partition(|(_, role)| matches!(role, Role::Kept(_)));
        let buffers = |roles: Vec<(BufferId, Role)>| -> BTreeSet<BufferId> {
            roles.into_iter().map(|(buffer, _)| buffer).collect()
        };
        let freed: Vec<_> = buffers(kept)
            .difference(&buffers(others))
            .copied()
            .collect();
        let frees = freed.iter().map(|buffer| Event::Free(*buffer));
        let (before, after) = self.events.split_at(end);
        let events = before
            .iter()
            .copied()
            .chain(frees)
            .chain(after.iter().copied());
        let batches = self.call_batches.iter().map(|batch| CallBatch {
            position: match batch.position < end {
                true => batch.position,
                false => batch.position + freed.len(),
            },
            ..*batch
        });
        self.with_events(events.collect(), batches.collect())
    }

    /// Adds a buffer.
    pub fn add_buffer(&mut self, bytes: Bytes, metadata: bool) -> BufferId {
        Arc::make_mut(&mut self.buffers).push(Buffer {
            bytes,
            layout: None,
            metadata,
            optional: false,
        });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Adds the end of a phase.
    pub fn add_mark(&mut self, mark: Mark) {
        self.events.push(Event::Mark(self.marks.len() as u32));
        self.marks.push(mark);
    }

    /// Adds an event for what the program read from the card: the bytes for each buffer.
    pub fn add_read(&mut self, bytes: Vec<u64>) {
        self.events.push(Event::Read(self.reads_back.len() as u32));
        self.reads_back.push(bytes);
    }

    /// Adds a launch of `kernel`.
    pub fn add_launch(
        &mut self,
        kernel: KernelId,
        metadata: Option<MetadataId>,
        reads: &[BufferId],
        writes: &[BufferId],
    ) {
        let operands = Arc::make_mut(&mut self.operands);
        let first = operands.len() as u32;
        operands.extend(reads);
        operands.extend(writes);
        let launch = LaunchId(self.launches.len() as u32);
        Arc::make_mut(&mut self.launches).push(Launch {
            kernel,
            metadata,
            operands: first,
            reads: reads.len() as u16,
            writes: writes.len() as u16,
            is_empty: false,
        });
        self.events.push(Event::Launch(launch));
    }

    /// Notes that the launch that was added last has no threads.
    pub fn empty_last_launch(&mut self) {
        if let Some(last) = Arc::make_mut(&mut self.launches).last_mut() {
            last.is_empty = true;
        }
    }
}
