//! What a program did to the memory of a card, and what that memory was for.
//!
//! A [`Recording`] has every allocation, free and launch of a program, and marks where its phases end. [`Analysis`] says
//! of each buffer how long it lives, which category and layer it counts to, and how much is in use at each moment.
//! [`Recording::with_queue_lag`] is the same program at other moments.
//!
//! Invariant: nothing here knows a framework, an allocator or a card.

pub mod analysis;
mod bytes;
mod cycle;
mod mark;
mod phase;
mod queue_lag;
mod random;
mod recording;
mod step_detector;

pub use analysis::{
    ActiveOp, Analysis, Breakdown, Categories, Category, LayerMemory, PhaseMemory, kernel_name,
};
pub use bytes::{Bytes, SizeError};
pub use cycle::{Cycle, Life, heirs};
pub use mark::{Layer, Mark, Pools, Role};
pub use phase::{Phase, PhaseOfStep};
pub use queue_lag::{CALLS_PER_BATCH, ChangingLag, QueueLag};
pub use recording::{
    AllocationMode, Buffer, BufferId, CallBatch, Event, Failure, KernelId, Launch, LaunchId,
    LayerId, Layout, LayoutId, Metadata, MetadataId, Recording, Refusal, Stream, TensorLayout,
};
pub use step_detector::StepDetector;
