//! What a runtime does to a card's memory, call by call.

use std::fmt::Debug;

use cubecl_environment::stream::StreamId;
use cubecl_server::memory_management::{
    ManagedMemoryHandle, MemoryAllocationMode, StreamMemoryReport, WeakMemoryBinding,
};
use cubecl_server::server::{IoError, MetadataBindingInfo};

/// A buffer that a runtime keeps for itself: the shapes and strides of a launch.
#[derive(Debug)]
pub struct MetadataBuffer {
    /// What it is in.
    pub memory: WeakMemoryBinding,
    /// Bytes of it.
    pub bytes: u64,
    /// Whether another one had to leave the runtime's cache for it.
    pub evicts: bool,
}

/// A card's memory under one runtime. The live server drives it with the calls that
/// burn makes, and the replay with those that were recorded.
pub trait CardMemory: Send + Debug {
    /// Gives `memory` `size` bytes.
    fn allocate(
        &mut self,
        memory: ManagedMemoryHandle,
        size: u64,
        stream: StreamId,
    ) -> Result<(), IoError>;

    /// The part of a launch's metadata that this runtime puts into a buffer.
    fn metadata<'a>(&self, info: &'a MetadataBindingInfo) -> &'a [u64];

    /// A kernel is launched; `metadata` as above. Returns the buffer that the
    /// metadata went to, if it had to be made for it.
    fn launch(
        &mut self,
        metadata: &[u64],
        stream: StreamId,
    ) -> Result<Option<MetadataBuffer>, IoError>;

    /// Data goes from the host to the card.
    fn write(&mut self, stream: StreamId);

    /// Data comes from the card to the host: `bytes` of it, for each buffer read.
    fn read(&mut self, bytes: &[u64], stream: StreamId) -> Result<(), IoError>;

    /// Everything is to be handed to the device.
    fn flush(&mut self, stream: StreamId);

    /// What nothing holds any more is to be given back.
    fn cleanup(&mut self, stream: StreamId);

    /// The next allocations are of this kind.
    fn mode(&mut self, mode: MemoryAllocationMode, stream: StreamId);

    /// What the pools of a stream hold.
    fn report(&mut self, stream: StreamId) -> Option<StreamMemoryReport>;

    /// The streams that there are.
    fn streams(&self) -> Vec<StreamId>;
}
