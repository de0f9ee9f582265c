//! The memory of a card under CubeCL's wgpu runtime.
//!
//! `cubecl-wgpu` 0.11.3 keeps three memories for each stream: the main one, one for reads and one for
//! launches (`src/compute/mem_manager.rs`). Tasks wait in a scheduler until there are enough of them
//! (`src/compute/{schedule,stream,server}.rs`). The scheduler, the memories of a stream (`wgpu_stream.rs`) and
//! their relocation are CubeCL's own code.

use std::sync::Arc;

use cubecl_environment::stream::StreamId;
use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::relocation::RelocatingStreams;
use cubecl_server::memory_management::{
    AuxiliaryMemoryReport, ManagedMemoryHandle, MemoryAllocationMode, PageUpdate,
    StreamMemoryReport,
};
use cubecl_server::server::{IoError, MetadataBindingInfo};
use cubecl_server::stream::scheduler::{
    SchedulerMultiStream, SchedulerMultiStreamOptions, SchedulerStrategy,
};

use super::wgpu_stream::{COPY_ALIGNMENT, STAGING, TASKS_MAX, Task, UNIFORMS, WgpuStreams};
use crate::memory::{CardMemory, MetadataBuffer};
use crate::storage::MemoryBudget;

/// The memory of a card that wgpu drives.
#[derive(Debug)]
pub(crate) struct WgpuMemory {
    scheduler: SchedulerMultiStream<WgpuStreams>,
}

impl WgpuMemory {
    pub fn new(
        budget: Arc<MemoryBudget>,
        properties: MemoryDeviceProperties,
        logger: Arc<ServerLogger>,
    ) -> Self {
        let streams = WgpuStreams {
            budget,
            properties,
            logger: logger.clone(),
        };
        let options = SchedulerMultiStreamOptions {
            max_streams: CubeClRuntimeConfig::get().streaming.max_streams,
            max_tasks: TASKS_MAX,
            strategy: SchedulerStrategy::Interleave,
        };
        Self {
            scheduler: SchedulerMultiStream::new(logger, streams, options),
        }
    }
}

impl CardMemory for WgpuMemory {
    /// Like `initialize_memory` of `cubecl-wgpu`'s `server.rs`: it relocates when CubeCL asks for that, but
    /// does not retry on a full card.
    fn allocate(
        &mut self,
        memory: ManagedMemoryHandle,
        size: u64,
        stream: StreamId,
    ) -> Result<(), IoError> {
        self.scheduler.relocating(stream).relocate_when_wanted();
        let (stream, failures) = self.scheduler.stream_and_failures(&stream);
        let reserved = stream.main.reserve(size, PageUpdate::Allow, failures)?;
        stream.main.bind(reserved, memory, 0, failures)
    }

    fn metadata<'a>(&self, info: &'a MetadataBindingInfo, _is_empty: bool) -> &'a [u64] {
        &info.data
    }

    fn launch(
        &mut self,
        metadata: &[u64],
        is_empty: bool,
        stream: StreamId,
    ) -> Result<Option<MetadataBuffer>, IoError> {
        let task = Task::Launch {
            metadata: metadata.to_vec(),
            is_empty,
        };
        self.scheduler.register(stream, task, &[stream]);
        // Uniforms have a memory of their own, apart from the buffers.
        Ok(None)
    }

    fn write(&mut self, stream: StreamId) {
        self.scheduler.register(stream, Task::Write, &[stream]);
    }

    fn read(&mut self, bytes: &[u64], stream: StreamId) -> Result<(), IoError> {
        self.scheduler.execute_streams(vec![stream]);
        let (stream, failures) = self.scheduler.stream_and_failures(&stream);
        let mut staged = Vec::with_capacity(bytes.len());
        for bytes in bytes.iter().filter(|bytes| **bytes > 0) {
            let size = bytes.next_multiple_of(COPY_ALIGNMENT);
            staged.push(stream.staging.reserve(size, PageUpdate::Allow, failures)?);
        }
        stream.tasks += staged.len();
        stream.submit();
        Ok(())
    }

    fn flush(&mut self, stream: StreamId) {
        self.scheduler.execute_streams(vec![stream]);
        self.scheduler.stream(&stream).submit();
    }

    fn cleanup(&mut self, stream: StreamId) {
        self.scheduler.execute_streams(vec![stream]);
        self.scheduler.stream(&stream).metadata.clear_unpinned();
        // CubeCL refuses only while it records a graph, and a simulated card has none.
        let _ = self.scheduler.relocating(stream).reclaim();
    }

    fn mode(&mut self, mode: MemoryAllocationMode, stream: StreamId) {
        self.scheduler.execute_streams(vec![stream]);
        self.scheduler.stream(&stream).main.mode(mode);
    }

    fn report(&mut self, stream: StreamId) -> Option<StreamMemoryReport> {
        self.scheduler.execute_streams(vec![stream]);
        let id = stream;
        let stream = self.scheduler.stream(&stream);
        let own = [(STAGING, &stream.staging), (UNIFORMS, &stream.uniforms)];
        Some(StreamMemoryReport {
            stream: id,
            pools: stream.main.memory_report(),
            auxiliary: own
                .map(|(name, memory)| AuxiliaryMemoryReport {
                    name: name.into(),
                    pools: memory.memory_report(),
                })
                .into(),
        })
    }

    fn streams(&self) -> Vec<StreamId> {
        self.scheduler.stream_ids().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId { value: 0 };

    /// A card of 1 MiB has no room for 4 MiB, and the host has. CubeCL counts the 4 MiB among what the pools reserve.
    #[test]
    fn a_read_takes_no_memory_of_the_card() {
        let budget = MemoryBudget::new(Some(1 << 20));
        let properties = MemoryDeviceProperties::new(1 << 30, 64);
        let mut memory = WgpuMemory::new(budget.clone(), properties, Arc::default());
        memory.read(&[4 << 20], STREAM).unwrap();
        assert_eq!((budget.peak(), budget.refusals()), (0, 0));
        let usage = memory.report(STREAM).unwrap().usage();
        assert!(usage.bytes_reserved >= 4 << 20);
    }
}
