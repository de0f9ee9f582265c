//! A stream of a card under CubeCL's wgpu runtime: its three memories, and its launches that are not submitted yet.

use std::sync::Arc;

use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::relocation::{
    CopyQueue, RelocatableStream, RelocationNeed, RelocationReason, StorageCopy,
};
use cubecl_server::memory_management::{
    Cleanup, ErrorGraph, FailureId, ManagedMemoryHandle, MemoryAllocationMode, MemoryConfiguration,
    MemoryManagement, MemoryManagementOptions, PageUpdate,
};
use cubecl_server::metadata_cache::{MetadataCachePolicy, MetadataInfoCache};
use cubecl_server::server::{BufferBinding, IoError, ServerError};
use cubecl_server::stream::scheduler::SchedulerStreamBackend;
use cubecl_server::stream::{StreamFactory, StreamMemory};

use crate::storage::{MemoryBudget, PageRelease, VirtualStorage};

/// Launches in one submission: `RuntimeOptions::with_tasks_max` of `cubecl-wgpu` 0.11.3,
/// `src/runtime.rs`.
pub(super) const TASKS_MAX: usize = 32;

/// `MetadataCachePolicy::new(512, 2048)` of `cubecl-wgpu` 0.11.3, `src/compute/stream.rs`.
const CACHED_METADATA: (usize, usize) = (512, 2048);

/// `wgpu::COPY_BUFFER_ALIGNMENT`: the alignment of staging buffers.
pub(super) const COPY_ALIGNMENT: u64 = 4;

/// The name of a stream's memory for reads.
pub(super) const STAGING: &str = "Staging CPU Memory";

/// The name of a stream's memory for launches.
pub(super) const UNIFORMS: &str = "Uniform GPU Memory";

/// A task in the scheduler's queue.
#[derive(Debug)]
pub(crate) enum Task {
    /// A launch.
    Launch {
        metadata: Vec<u64>,
        /// Whether it has no threads.
        is_empty: bool,
    },
    /// A write from the host, which submits what came before it.
    Write,
}

/// The state of one stream, like `WgpuStream` in `cubecl-wgpu`'s `stream.rs`.
#[derive(Debug)]
pub(crate) struct WgpuStream {
    pub(super) main: MemoryManagement<VirtualStorage>,
    pub(super) staging: MemoryManagement<VirtualStorage>,
    pub(super) uniforms: MemoryManagement<VirtualStorage>,
    pub(super) metadata: MetadataInfoCache<ManagedMemoryHandle>,
    /// The uniforms of launches that are not submitted yet.
    queued: Vec<ManagedMemoryHandle>,
    /// The launches and reads that are not submitted yet.
    pub(super) tasks: usize,
}

impl WgpuStream {
    /// Like `info_uniform`, `reserve_uniform` and `register_pipeline` of `cubecl-wgpu`: a launch without threads has a
    /// uniform, but is no task.
    fn launch(&mut self, metadata: Vec<u64>, is_empty: bool, failures: &mut ErrorGraph) {
        let bytes = size_of_val(metadata.as_slice());
        let cached = self.metadata.should_cache(bytes);
        if bytes > 0 && !(cached && self.metadata.get(&metadata).is_some()) {
            let uniform = self
                .uniforms
                .reserve(bytes as u64, PageUpdate::Allow, failures);
            // The real runtime panics if it cannot reserve a uniform; the failure to report is the allocation
            // that filled the card.
            if let Ok(uniform) = uniform {
                self.queued.push(uniform.clone());
                if cached {
                    self.metadata.insert(metadata, uniform);
                }
            }
        }
        if is_empty {
            return;
        }
        self.tasks += 1;
        if self.tasks >= TASKS_MAX {
            self.submit();
        }
    }

    /// Like `submit_tasks` of `cubecl-wgpu`: without a task there is nothing to submit.
    pub(super) fn submit(&mut self) {
        if self.tasks > 0 {
            self.queued.clear();
            self.tasks = 0;
        }
    }
}

impl StreamMemory for WgpuStream {
    fn failure(&self, binding: &BufferBinding) -> Option<FailureId> {
        self.main.failure(&binding.memory, binding.range())
    }

    fn taint(&mut self, binding: &BufferBinding, failure: FailureId, failures: &mut ErrorGraph) {
        self.main
            .taint(&binding.memory, binding.range(), failure, failures)
    }

    fn written(&mut self, binding: &BufferBinding, failures: &mut ErrorGraph) {
        self.main
            .written(&binding.memory, binding.range(), failures)
    }
}

/// A copy queue that copies nothing.
struct NoCopies;

impl CopyQueue<VirtualStorage> for NoCopies {
    fn wait_device(&mut self) -> Result<(), ServerError> {
        Ok(())
    }

    fn copy(&mut self, _: &mut VirtualStorage, _: &StorageCopy) -> Result<(), IoError> {
        Ok(())
    }

    fn wait_copies(&mut self) -> Result<(), ServerError> {
        Ok(())
    }
}

impl RelocatableStream for WgpuStream {
    fn recording(&self) -> bool {
        false
    }

    fn has_outdated(&self) -> bool {
        self.main.has_outdated()
    }

    fn relocation_need(&self) -> RelocationNeed {
        self.main.relocation_need()
    }

    fn bytes_allocated(&self) -> u64 {
        self.main.bytes_allocated()
            + self.staging.bytes_allocated()
            + self.uniforms.bytes_allocated()
    }

    fn relocate(&mut self, reason: RelocationReason, failures: &mut ErrorGraph) {
        self.main.relocate(&mut NoCopies, reason, failures);
    }

    fn cleanup_memory(&mut self, failures: &mut ErrorGraph) {
        self.main.cleanup(Cleanup::Explicit, failures);
        self.uniforms.cleanup(Cleanup::Explicit, failures);
    }
}

/// Creates the streams of a card.
#[derive(Debug)]
pub(crate) struct WgpuStreams {
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) properties: MemoryDeviceProperties,
    pub(super) logger: Arc<ServerLogger>,
}

impl WgpuStreams {
    fn memory(
        &self,
        budget: Arc<MemoryBudget>,
        alignment: u64,
        config: MemoryConfiguration,
        options: MemoryManagementOptions,
    ) -> MemoryManagement<VirtualStorage> {
        MemoryManagement::from_configuration(
            VirtualStorage::new(budget, alignment, PageRelease::AtOnce),
            &self.properties,
            config,
            self.logger.clone(),
            options,
        )
    }
}

impl StreamFactory for WgpuStreams {
    type Stream = WgpuStream;

    fn create(&mut self) -> Result<WgpuStream, ServerError> {
        let alignment = self.properties.alignment;
        let own = |name| MemoryManagementOptions::new(name).mode(MemoryAllocationMode::Auto);
        Ok(WgpuStream {
            main: self.memory(
                self.budget.clone(),
                alignment,
                MemoryConfiguration::default(),
                MemoryManagementOptions::new("Main GPU Memory"),
            ),
            // A buffer that the host maps to read it is in host memory (`GpuToCpu` in `create_buffer` of `wgpu-hal`
            // 30.0.1, `src/vulkan/device.rs`), which is not part of the card's budget. Reports of the pools count it.
            staging: self.memory(
                MemoryBudget::new(None),
                COPY_ALIGNMENT,
                MemoryConfiguration::ExclusivePages,
                own(STAGING),
            ),
            uniforms: self.memory(
                self.budget.clone(),
                alignment,
                MemoryConfiguration::ExclusivePages,
                own(UNIFORMS),
            ),
            metadata: MetadataInfoCache::new(MetadataCachePolicy::new(
                CACHED_METADATA.0,
                CACHED_METADATA.1,
            )),
            queued: Vec::new(),
            tasks: 0,
        })
    }
}

impl SchedulerStreamBackend for WgpuStreams {
    type Task = Task;
    type Stream = WgpuStream;
    type Factory = Self;

    fn enqueue(task: Task, stream: &mut WgpuStream, failures: &mut ErrorGraph) {
        match task {
            Task::Launch { metadata, is_empty } => stream.launch(metadata, is_empty, failures),
            Task::Write => stream.submit(),
        }
    }

    fn flush(stream: &mut WgpuStream, _failures: &mut ErrorGraph) {
        stream.submit();
    }

    fn factory(&mut self) -> &mut Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CubeCL submits 32 tasks at once, and frees their uniforms; a launch without threads is none of them
    /// (`register_pipeline` of `cubecl-wgpu` 0.11.3, `src/compute/stream.rs`).
    #[test]
    fn a_launch_without_threads_is_no_task() {
        let mut streams = WgpuStreams {
            budget: MemoryBudget::new(None),
            properties: MemoryDeviceProperties::new(1 << 30, 64),
            logger: Arc::default(),
        };
        let mut stream = streams.create().unwrap();
        let mut failures = ErrorGraph::default();
        // 2,400 bytes: too long for the cache.
        let mut launch = |stream: &mut WgpuStream, is_empty| {
            stream.launch(vec![0; 300], is_empty, &mut failures);
            stream.queued.len()
        };
        assert_eq!(launch(&mut stream, true), 1);
        stream.submit();
        for queued in 2..=32 {
            assert_eq!(launch(&mut stream, false), queued);
        }
        assert_eq!(launch(&mut stream, false), 0);
    }
}
