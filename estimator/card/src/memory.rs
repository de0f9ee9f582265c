//! The calls that a runtime makes on a card's memory.

use std::fmt::Debug;

use cubecl_environment::stream::StreamId;
use cubecl_server::memory_management::{
    ManagedMemoryHandle, MemoryAllocationMode, StreamMemoryReport, WeakMemoryBinding,
};
use cubecl_server::server::{IoError, MetadataBindingInfo};
use recording::AllocationMode;

/// A buffer that a runtime keeps for itself, with the shapes and strides of a launch.
#[derive(Debug)]
pub struct MetadataBuffer {
    /// The managed memory of the buffer.
    pub memory: WeakMemoryBinding,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether the runtime evicted another buffer from its cache for this one.
    pub evicts: bool,
}

/// A card's memory under one runtime. The live server drives it with burn's calls, the replay with recorded
/// calls.
pub trait CardMemory: Send + Debug {
    /// Allocates `size` bytes for `memory`; fails if the card refuses.
    fn allocate(
        &mut self,
        memory: ManagedMemoryHandle,
        size: u64,
        stream: StreamId,
    ) -> Result<(), IoError>;

    /// The part of a launch's metadata that this runtime puts into a buffer; `is_empty` if the launch has no threads.
    fn metadata<'a>(&self, info: &'a MetadataBindingInfo, is_empty: bool) -> &'a [u64];

    /// Launches a kernel with the metadata that [`metadata`](Self::metadata) returned; `is_empty` if it has no
    /// threads. Returns the buffer that the runtime allocated for the metadata, if it allocated one.
    fn launch(
        &mut self,
        metadata: &[u64],
        is_empty: bool,
        stream: StreamId,
    ) -> Result<Option<MetadataBuffer>, IoError>;

    /// Copies data from the host to the card. Without an implementation, this takes no memory of the card.
    fn write(&mut self, _stream: StreamId) {}

    /// Copies data from the card to the host; `bytes` has the size for each buffer read. Without an implementation,
    /// this takes no memory of the card.
    fn read(&mut self, _bytes: &[u64], _stream: StreamId) -> Result<(), IoError> {
        Ok(())
    }

    /// Submits everything to the device.
    fn flush(&mut self, stream: StreamId);

    /// Gives unused memory back to the card.
    fn cleanup(&mut self, stream: StreamId);

    /// Sets the mode of the next allocations.
    fn mode(&mut self, mode: MemoryAllocationMode, stream: StreamId);

    /// Statistics of the pools of a stream; `None` if there is no such stream.
    fn report(&mut self, stream: StreamId) -> Option<StreamMemoryReport>;

    /// The existing streams.
    fn streams(&self) -> Vec<StreamId>;
}

/// CubeCL's `mode`, as a recording has it.
pub(crate) fn recorded_mode(mode: MemoryAllocationMode) -> AllocationMode {
    match mode {
        MemoryAllocationMode::Auto => AllocationMode::Auto,
        MemoryAllocationMode::Persistent => AllocationMode::Persistent,
        MemoryAllocationMode::Dedicated => AllocationMode::Dedicated,
    }
}

/// The `mode` of a recording, as CubeCL has it.
pub fn cubecl_mode(mode: AllocationMode) -> MemoryAllocationMode {
    match mode {
        AllocationMode::Auto => MemoryAllocationMode::Auto,
        AllocationMode::Persistent => MemoryAllocationMode::Persistent,
        AllocationMode::Dedicated => MemoryAllocationMode::Dedicated,
    }
}
