//! The memory of a card under CubeCL's CUDA runtime.
//!
//! `cubecl-cuda` 0.11.3 (`src/compute/{server,stream,driver}.rs`) drives the shared [`Command`] with a
//! [`Driver`] of four device calls. This module does the same with a driver that does nothing: rounding,
//! pages, reuse, deferred frees, relocation and the reclaim-and-retry of a full card are CubeCL's own code.

use std::collections::HashMap;
use std::sync::Arc;

use cubecl_common::bytes::Bytes as HostBytes;
use cubecl_common::device::ServiceId;
use cubecl_environment::stream::StreamId;
use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::command::{Command, CopyLayout, DeviceStream, Driver};
use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl_server::id::KernelId;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::drop_queue::{self, PendingDropQueue};
use cubecl_server::memory_management::{
    ErrorGraph, FailureId, ManagedMemoryBinding, ManagedMemoryHandle, MemoryAllocationMode,
    MemoryConfiguration, MemoryHandle, MemoryManagement, MemoryManagementOptions,
    StreamMemoryReport,
};
use cubecl_server::metadata_cache::{MetadataCachePolicy, MetadataInfoCache};
use cubecl_server::server::{
    BufferBinding, DeviceCaptures, Handle, IoError, LaunchError, MetadataBindingInfo, ServerError,
};
use cubecl_server::storage::PINNED_MEMORY_ALIGNMENT;
use cubecl_server::stream::{EventStreamBackend, MultiStream, StreamCapture, StreamMemory};

use crate::memory::{CardMemory, MetadataBuffer};
use crate::storage::{MemoryBudget, PageRelease, VirtualStorage};

/// A fence that never waits, since nothing runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoFence;

impl drop_queue::Fence for NoFence {
    fn wait(self) -> Result<(), ServerError> {
        Ok(())
    }
}

/// The state of one stream, like `Stream` in `cubecl-cuda`'s `stream.rs`.
#[derive(Debug)]
pub(crate) struct CudaStream {
    device: MemoryManagement<VirtualStorage>,
    host: MemoryManagement<VirtualStorage>,
    drops: PendingDropQueue<NoFence>,
    capture: StreamCapture,
    metadata: MetadataInfoCache<Handle>,
}

impl StreamMemory for CudaStream {
    fn failure(&self, binding: &BufferBinding) -> Option<FailureId> {
        self.device.failure(&binding.memory, binding.range())
    }

    fn taint(&mut self, binding: &BufferBinding, failure: FailureId, failures: &mut ErrorGraph) {
        self.device
            .taint(&binding.memory, binding.range(), failure, failures)
    }

    fn written(&mut self, binding: &BufferBinding, failures: &mut ErrorGraph) {
        self.device
            .written(&binding.memory, binding.range(), failures)
    }
}

impl DeviceStream for CudaStream {
    type Fence = NoFence;
    type DeviceStorage = VirtualStorage;
    type HostStorage = VirtualStorage;
    type Signal = ();

    fn device_memory(&mut self) -> &mut MemoryManagement<VirtualStorage> {
        &mut self.device
    }

    fn host_memory(&mut self) -> &mut MemoryManagement<VirtualStorage> {
        &mut self.host
    }

    fn drop_queue(&mut self) -> &mut PendingDropQueue<NoFence> {
        &mut self.drops
    }

    fn capturing(&mut self) -> &mut StreamCapture {
        &mut self.capture
    }

    fn info_cache(&mut self) -> &mut MetadataInfoCache<Handle> {
        &mut self.metadata
    }

    fn signal(&self) {}

    fn fence(_signal: ()) -> NoFence {
        NoFence
    }
}

/// Creates streams, like `CudaStreamBackend` in `cubecl-cuda`'s `stream.rs`.
#[derive(Debug)]
pub(crate) struct CudaStreams {
    budget: Arc<MemoryBudget>,
    properties: MemoryDeviceProperties,
    logger: Arc<ServerLogger>,
    captures: DeviceCaptures,
}

impl EventStreamBackend for CudaStreams {
    type Stream = CudaStream;
    type Event = NoFence;

    fn create_stream(&self) -> Result<CudaStream, ServerError> {
        let device = VirtualStorage::new(
            self.budget.clone(),
            self.properties.alignment,
            PageRelease::OnFlush,
        );
        // Host memory is not part of the card's budget: it has one of its own.
        let host = VirtualStorage::new(
            MemoryBudget::new(None),
            PINNED_MEMORY_ALIGNMENT as u64,
            PageRelease::OnFlush,
        );
        Ok(CudaStream {
            device: MemoryManagement::from_configuration(
                device,
                &self.properties,
                MemoryConfiguration::default(),
                self.logger.clone(),
                MemoryManagementOptions::new("Main GPU Memory"),
            ),
            host: MemoryManagement::from_configuration(
                host,
                &MemoryDeviceProperties::new(
                    self.properties.max_page_size,
                    PINNED_MEMORY_ALIGNMENT as u64,
                ),
                MemoryConfiguration::default(),
                self.logger.clone(),
                MemoryManagementOptions::new("Pinned CPU Memory").mode(MemoryAllocationMode::Auto),
            ),
            drops: PendingDropQueue::default(),
            capture: StreamCapture::new(&self.captures),
            metadata: MetadataInfoCache::new(MetadataCachePolicy::default()),
        })
    }

    fn flush(_stream: &mut CudaStream, _failures: &mut ErrorGraph) -> NoFence {
        NoFence
    }

    fn wait_event(_stream: &mut CudaStream, _event: NoFence) -> Result<(), ServerError> {
        Ok(())
    }

    fn wait_event_sync(_event: NoFence) -> Result<(), ServerError> {
        Ok(())
    }

    fn handle_cursor(stream: &CudaStream, binding: &BufferBinding) -> u64 {
        stream
            .device
            .get_cursor(binding.memory.clone())
            .unwrap_or(u64::MAX)
    }
}

/// A driver whose device calls do nothing.
struct NoDriver;

impl Driver for NoDriver {
    type Backend = CudaStreams;
    type Stream = CudaStream;
    type Context = ();
    type LaunchArgs = ();

    unsafe fn pinned_bytes(
        _binding: ManagedMemoryBinding,
        _resource: (),
        size: usize,
    ) -> HostBytes {
        HostBytes::from_bytes_vec(vec![0; size])
    }

    unsafe fn copy_to_host(
        _resource: &(),
        _layout: &CopyLayout<'_>,
        _bytes: &mut HostBytes,
        _stream: &CudaStream,
    ) -> Result<(), IoError> {
        Ok(())
    }

    unsafe fn copy_to_device(
        _resource: &(),
        _layout: &CopyLayout<'_>,
        _data: &[u8],
        _stream: &CudaStream,
    ) -> Result<(), IoError> {
        Ok(())
    }

    unsafe fn copy_on_device(_source: &(), _target: &(), _queue: ()) -> Result<(), IoError> {
        Ok(())
    }

    fn launch(
        _ctx: &mut (),
        _stream: &mut CudaStream,
        _kernel: KernelId,
        _count: (u32, u32, u32),
        _args: &mut (),
    ) -> Result<(), LaunchError> {
        Ok(())
    }
}

/// The memory of a CUDA card. Copies from and to the host are staged in the host's memory.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    streams: MultiStream<CudaStreams>,
    service: ServiceId,
    /// Allocation modes of streams that do not exist yet.
    modes: HashMap<StreamId, MemoryAllocationMode>,
    /// Whether scalars and static metadata travel with the launch itself, so that only
    /// the shapes and strides need a buffer: `grid_constants` of `cubecl-cuda`'s
    /// `runtime.rs`, from compute capability 7.0 on.
    grid_constants: bool,
}

impl CudaMemory {
    pub fn new(
        grid_constants: bool,
        budget: Arc<MemoryBudget>,
        service: ServiceId,
        properties: MemoryDeviceProperties,
        logger: Arc<ServerLogger>,
        captures: DeviceCaptures,
    ) -> Self {
        let backend = CudaStreams {
            budget,
            properties,
            logger: logger.clone(),
            captures,
        };
        let max_streams = CubeClRuntimeConfig::get().streaming.max_streams;
        Self {
            streams: MultiStream::new(logger, backend, max_streams),
            service,
            modes: HashMap::new(),
            grid_constants,
        }
    }

    fn command<R>(
        &mut self,
        stream: StreamId,
        run: impl FnOnce(&mut Command<'_, NoDriver>) -> R,
    ) -> R {
        let mut resolved = self
            .streams
            .resolve(stream, [].into_iter())
            .expect("a stream without a device is always there");
        if let Some(mode) = self.modes.remove(&stream) {
            resolved.current().device_memory().mode(mode);
        }
        run(&mut Command::new(&mut (), resolved, self.service))
    }
}

impl CardMemory for CudaMemory {
    fn allocate(
        &mut self,
        memory: ManagedMemoryHandle,
        size: u64,
        stream: StreamId,
    ) -> Result<(), IoError> {
        self.command(stream, |command| command.initialize_memory(memory, size))
    }

    /// A launch without threads does not reach `info_buffer` (`launch` of `cubecl-cuda`'s `server.rs`).
    fn metadata<'a>(&self, info: &'a MetadataBindingInfo, is_empty: bool) -> &'a [u64] {
        match self.grid_constants {
            _ if is_empty => &[],
            true => &info.data[info.dynamic_metadata_offset.min(info.data.len())..],
            false => &info.data,
        }
    }

    /// Like `info_buffer` of `cubecl-cuda`'s `server.rs`.
    fn launch(
        &mut self,
        metadata: &[u64],
        _is_empty: bool,
        stream: StreamId,
    ) -> Result<Option<MetadataBuffer>, IoError> {
        if metadata.is_empty() {
            return Ok(None);
        }
        let bytes = size_of_val(metadata);
        self.command(stream, |command| {
            let cached = command.stream().metadata.should_cache(bytes);
            if cached && command.stream().metadata.get(metadata).is_some() {
                return Ok(None);
            }
            let handle = command.create_with_data(&vec![0; bytes])?;
            let memory = MemoryHandle::binding(handle.memory.clone()).downgrade();
            let mut evicts = false;
            if cached {
                let cache = &mut command.stream().metadata;
                let before = cache.len();
                cache.insert(metadata.to_vec(), handle);
                evicts = cache.len() == before;
            }
            Ok(Some(MetadataBuffer {
                memory,
                bytes: bytes as u64,
                evicts,
            }))
        })
    }

    fn flush(&mut self, stream: StreamId) {
        self.command(stream, |command| {
            command.flush_drops();
            use cubecl_server::storage::ComputeStorage;
            command.stream().device.storage().flush();
        });
    }

    fn cleanup(&mut self, stream: StreamId) {
        // CubeCL refuses only while it records a graph, and a simulated card has none.
        let _ = self.command(stream, |command| command.memory_cleanup());
    }

    fn mode(&mut self, mode: MemoryAllocationMode, stream: StreamId) {
        match self.streams.try_stream_mut(&stream) {
            Some(stream) => stream.device.mode(mode),
            None => {
                self.modes.insert(stream, mode);
            }
        }
    }

    fn report(&mut self, stream: StreamId) -> Option<StreamMemoryReport> {
        self.streams.try_stream_mut(&stream)?;
        Some(self.command(stream, |command| command.memory_report()))
    }

    fn streams(&self) -> Vec<StreamId> {
        self.streams.stream_ids().collect()
    }
}

#[cfg(test)]
mod tests {
    use cubecl_common::device::DeviceId;

    use super::*;

    /// `launch` of `cubecl-cuda` 0.11.3, `src/compute/server.rs`, returns before `info_buffer` if a dimension of the grid
    /// is 0.
    #[test]
    fn a_launch_without_threads_needs_no_buffer() {
        let memory = CudaMemory::new(
            false,
            MemoryBudget::new(None),
            ServiceId::of::<()>(DeviceId::new(0, 0)),
            MemoryDeviceProperties::new(1 << 30, 512),
            Arc::default(),
            DeviceCaptures::default(),
        );
        let info = MetadataBindingInfo::custom(vec![1, 2, 3]);
        let words = |is_empty| memory.metadata(&info, is_empty).len();
        assert_eq!([true, false].map(words), [0, 3]);
    }
}
