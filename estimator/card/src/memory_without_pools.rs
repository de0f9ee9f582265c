//! The memory of a card on which a program runs only so that burn's tuner learns: it has room for everything,
//! and no pools, whose search for a free slice is most of the time of a long step.

use cubecl_environment::stream::StreamId;
use cubecl_server::memory_management::{
    ManagedMemoryHandle, MemoryAllocationMode, StreamMemoryReport,
};
use cubecl_server::server::{IoError, MetadataBindingInfo};

use crate::memory::{CardMemory, MetadataBuffer};

/// Gives a program every buffer that it requests.
#[derive(Debug, Default)]
pub(crate) struct MemoryWithoutPools {
    /// A handle of each buffer, as a pool has one: burn overwrites an operand in place if there are no more
    /// handles than the program's and the pool's.
    buffers: Vec<ManagedMemoryHandle>,
    /// How many buffers the program still held when the memory last dropped the others.
    held: usize,
}

impl CardMemory for MemoryWithoutPools {
    fn allocate(
        &mut self,
        memory: ManagedMemoryHandle,
        _size: u64,
        _stream: StreamId,
    ) -> Result<(), IoError> {
        if self.buffers.len() > 2 * self.held {
            self.buffers.retain(|buffer| !buffer.is_free());
            self.held = self.buffers.len();
        }
        self.buffers.push(memory);
        Ok(())
    }

    /// Nothing: no launch needs a buffer for its metadata.
    fn metadata<'a>(&self, _info: &'a MetadataBindingInfo, _is_empty: bool) -> &'a [u64] {
        &[]
    }

    fn launch(
        &mut self,
        _metadata: &[u64],
        _is_empty: bool,
        _stream: StreamId,
    ) -> Result<Option<MetadataBuffer>, IoError> {
        Ok(None)
    }

    fn flush(&mut self, _stream: StreamId) {}

    fn cleanup(&mut self, _stream: StreamId) {}

    fn mode(&mut self, _mode: MemoryAllocationMode, _stream: StreamId) {}

    fn report(&mut self, _stream: StreamId) -> Option<StreamMemoryReport> {
        None
    }

    fn streams(&self) -> Vec<StreamId> {
        Vec::new()
    }
}
