//! What a program did to a card, event by event.

use cubecl_environment::stream::StreamId;
use cubecl_server::memory_management::MemoryAllocationMode;
use serde::{Deserialize, Serialize};

use crate::Bytes;
use crate::phase::Phase;

/// A buffer of a recording, in the order of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BufferId(pub u32);

/// A kernel's name, as an index into [`Recording::kernels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KernelId(pub u32);

/// A layer: the path of a leaf module, as an index into [`Recording::layers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerId(pub u32);

/// Metadata of a launch, told apart by content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MetadataId {
    /// Which content.
    pub id: u32,
    /// 64-bit words in it.
    pub words: u32,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// What follows happens on this stream.
    Stream(StreamId),
    /// A buffer was asked for and given.
    Allocate(BufferId),
    /// Nothing holds the buffer any more. Noticed at the next allocation, which is
    /// when the pools notice it too.
    Free(BufferId),
    /// A kernel was launched.
    Launch(Launch),
    /// Allocations are of this kind from here on.
    Mode(AllocationMode),
    /// Data went to the card.
    Write,
    /// Data came from the card, this much from each buffer read.
    Read(Vec<u64>),
    /// Everything was handed to the device.
    Flush,
    /// What nothing held was given back.
    Cleanup,
    /// A phase ended; an index into [`Recording::marks`].
    Mark(usize),
}

/// CubeCL's [`MemoryAllocationMode`], which cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AllocationMode {
    /// From the pools.
    Auto,
    /// For good: weights.
    Persistent,
    /// On its own, outside every pool.
    Dedicated,
}

impl From<MemoryAllocationMode> for AllocationMode {
    fn from(mode: MemoryAllocationMode) -> Self {
        match mode {
            MemoryAllocationMode::Auto => Self::Auto,
            MemoryAllocationMode::Persistent => Self::Persistent,
            MemoryAllocationMode::Dedicated => Self::Dedicated,
        }
    }
}

impl From<AllocationMode> for MemoryAllocationMode {
    fn from(mode: AllocationMode) -> Self {
        match mode {
            AllocationMode::Auto => Self::Auto,
            AllocationMode::Persistent => Self::Persistent,
            AllocationMode::Dedicated => Self::Dedicated,
        }
    }
}

/// One launch of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Which kernel.
    pub kernel: KernelId,
    /// Shapes and strides that it was given.
    pub metadata: Option<MetadataId>,
    operands: u32,
    reads: u16,
    writes: u16,
}

/// Shapes that buffers were made for, as an index into [`Recording::layouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayoutId(pub u32);

/// What a buffer was made for: one tensor, or several beside each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout(pub Vec<TensorLayout>);

/// A tensor in a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorLayout {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Bytes of each element.
    pub element_bytes: usize,
    /// Whether the runtime may leave room between rows.
    pub pitched: bool,
}

/// A buffer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// What was asked for.
    pub bytes: Bytes,
    /// The shapes from which that follows, where the program said them.
    pub layout: Option<LayoutId>,
    /// The runtime made it for itself, for the metadata of a launch.
    pub metadata: bool,
}

/// What a buffer is to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A parameter of a layer, trained or frozen.
    Parameter(LayerId),
    /// A running statistic of a layer.
    Buffer(LayerId),
    /// The gradient of a parameter of a layer.
    Gradient(LayerId),
    /// A tensor of the batch.
    Input,
}

/// The end of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Which phase ended.
    pub phase: Phase,
    /// Optimizer steps completed before it.
    pub step: usize,
    /// What the program said that its tensors are.
    pub roles: Vec<(BufferId, Role)>,
    /// What the pools hold.
    pub pools: Pools,
}

/// What the pools of a card hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// Allocations in use.
    pub allocations: u64,
    /// Bytes in use.
    pub in_use: Bytes,
    /// Bytes taken from the card.
    pub reserved: Bytes,
}

/// A layer: a module that holds parameters of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layer {
    /// Where it is in the module tree, for instance `layer1.0.conv1`.
    pub path: String,
    /// Its type, for instance `Conv2d`.
    pub kind: String,
}

/// Why a card could not give what was asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Its memory is used up.
    Full,
    /// No single allocation may be this large.
    TooLarge {
        /// The largest that may be.
        largest: Bytes,
    },
}

/// The allocation that a card refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The buffer that it was for.
    pub buffer: BufferId,
    /// Why.
    pub refusal: Refusal,
}

/// Everything that a program did to a card.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// In the order in which it happened.
    pub events: Vec<Event>,
    /// By [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// By [`KernelId`].
    pub kernels: Vec<String>,
    /// By [`LayerId`].
    pub layers: Vec<Layer>,
    /// By [`LayoutId`].
    pub layouts: Vec<Layout>,
    /// The ends of phases.
    pub marks: Vec<Mark>,
    /// The first allocation that was refused; what follows it is not what a real
    /// program would do.
    pub failure: Option<Failure>,
    operands: Vec<BufferId>,
}

impl Recording {
    /// The buffers that a launch reads.
    pub fn reads(&self, launch: &Launch) -> &[BufferId] {
        let start = launch.operands as usize;
        &self.operands[start..start + launch.reads as usize]
    }

    /// The buffers that a launch writes.
    pub fn writes(&self, launch: &Launch) -> &[BufferId] {
        let start = launch.operands as usize + launch.reads as usize;
        &self.operands[start..start + launch.writes as usize]
    }

    /// A buffer of this recording.
    pub fn buffer(&self, buffer: BufferId) -> &Buffer {
        &self.buffers[buffer.0 as usize]
    }

    /// Marks before the event at `position`: the number of the mark that ends its phase.
    pub fn marks_before(&self, position: usize) -> usize {
        let before = self.events[..position].iter();
        before.filter(|e| matches!(e, Event::Mark(_))).count()
    }

    /// Drops what follows the end of the phase in which the card refused an allocation: there
    /// a program stops.
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
        }
    }

    /// Adds a buffer.
    pub fn add_buffer(&mut self, bytes: Bytes, metadata: bool) -> BufferId {
        self.buffers.push(Buffer {
            bytes,
            layout: None,
            metadata,
        });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Adds a launch of `kernel`.
    pub fn add_launch(
        &mut self,
        kernel: KernelId,
        metadata: Option<MetadataId>,
        reads: &[BufferId],
        writes: &[BufferId],
    ) {
        let operands = self.operands.len() as u32;
        self.operands.extend(reads);
        self.operands.extend(writes);
        self.events.push(Event::Launch(Launch {
            kernel,
            metadata,
            operands,
            reads: reads.len() as u16,
            writes: writes.len() as u16,
        }));
    }
}
