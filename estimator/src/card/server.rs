//! The CubeCL server of a simulated card: records every call, and makes it of the
//! card's memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cubecl_common::bytes::Bytes as HostBytes;
use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle, ServiceId};
use cubecl_common::profile::ProfileDuration;
use cubecl_environment::future::DynFut;
use cubecl_environment::stream::StreamId;
use cubecl_server::allocator::{ContiguousMemoryLayoutPolicy, PitchedMemoryLayoutPolicy};
use cubecl_server::dry_run::LaunchMode;
use cubecl_server::kernel::CubeKernel;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    ManagedMemoryHandle, MemoryAllocationMode, MemoryHandle, StreamMemoryReport,
};
use cubecl_server::server::{
    BufferBinding, CopyDescriptor, CubeCount, DeviceCaptures, KernelArguments, ProfileError,
    ProfilingToken, Server, ServerCommunication, ServerError, ServerUtilities,
};
use cubecl_server::timestamp_profiler::TimestampProfiler;

use super::cuda::CudaMemory;
use super::memory::CardMemory;
use super::properties;
use super::spec::{CardSpec, Runtime};
use super::storage::Ledger;
use super::wgpu::WgpuMemory;
use crate::Bytes;
use crate::record::{Event, Failure};
use crate::recorder::{Recorder, Suspects};

/// What a card and its server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub spec: CardSpec,
    pub ledger: Arc<Ledger>,
    recorder: Mutex<Recorder>,
}

impl Shared {
    pub fn new(spec: CardSpec) -> Arc<Self> {
        let ledger = Ledger::new(spec.available().map(|bytes| bytes.0));
        Arc::new(Self {
            spec,
            ledger,
            recorder: Mutex::default(),
        })
    }

    /// What was recorded so far, to read or to add to.
    pub fn recorder(&self) -> MutexGuard<'_, Recorder> {
        // A panic elsewhere leaves events, and no half of one.
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the server of a card like `spec` tells burn about it.
fn utilities(spec: &CardSpec, service: ServiceId) -> (ServerUtilities, DeviceCaptures) {
    let logger = Arc::new(ServerLogger::default());
    let properties = properties::of(spec);
    let target = properties::target(spec);
    let alignment = properties.memory.alignment as usize;
    match spec.runtime {
        Runtime::Cuda => {
            let policy = PitchedMemoryLayoutPolicy::new(alignment);
            ServerUtilities::init(service, "cuda", properties, target, logger, policy)
        }
        Runtime::Vulkan | Runtime::Wgpu => {
            let name = match spec.runtime {
                Runtime::Vulkan => "wgpu<spirv>",
                _ => "wgpu<wgsl>",
            };
            let policy = ContiguousMemoryLayoutPolicy::new(alignment);
            ServerUtilities::init(service, name, properties, target, logger, policy)
        }
    }
}

/// The memory of a card like `spec`.
pub(crate) fn memory(
    spec: &CardSpec,
    ledger: Arc<Ledger>,
    service: ServiceId,
    logger: Arc<ServerLogger>,
    captures: DeviceCaptures,
) -> Box<dyn CardMemory> {
    let properties = properties::memory(spec);
    match spec.runtime {
        Runtime::Cuda => Box::new(CudaMemory::new(
            spec, ledger, service, properties, logger, captures,
        )),
        Runtime::Vulkan | Runtime::Wgpu => Box::new(WgpuMemory::new(ledger, properties, logger)),
    }
}

/// Calls that CubeCL's client does not wait for, and hands to the device's thread together:
/// `CHANNEL_MAX_TASK` of `cubecl-common` 0.11.3, `src/device/handle/channel.rs`.
const TOGETHER: usize = 32;

/// A call that the client does not wait for.
#[derive(Debug)]
enum Call {
    Allocate {
        memory: ManagedMemoryHandle,
        size: u64,
    },
    Launch {
        kernel: &'static str,
        bindings: KernelArguments,
        skipped: bool,
    },
    Write {
        memory: Vec<usize>,
    },
    Mode(MemoryAllocationMode),
}

/// The server of a simulated card.
///
/// On a real card the program is ahead of the device's thread: calls wait until 32 of them
/// are there, or somebody waits for an answer. Which tensors are gone by the time of an
/// allocation depends on that, so calls wait here too. (The real thread then works beside
/// the program, which may be up to 32 calls further on: a card can meet less than is recorded
/// here, and not more.)
#[derive(Debug)]
pub(crate) struct CardServer {
    shared: Arc<Shared>,
    memory: Box<dyn CardMemory>,
    utilities: Arc<ServerUtilities>,
    timestamps: TimestampProfiler,
    waiting: Vec<(StreamId, Call)>,
}

impl CardServer {
    pub fn new(shared: Arc<Shared>, service: ServiceId) -> Self {
        let (utilities, captures) = utilities(&shared.spec, service);
        let logger = utilities.logger.clone();
        let memory = memory(
            &shared.spec,
            shared.ledger.clone(),
            service,
            logger,
            captures,
        );
        Self {
            shared,
            memory,
            utilities: Arc::new(utilities),
            timestamps: TimestampProfiler::default(),
            waiting: Vec::with_capacity(TOGETHER),
        }
    }

    fn later(&mut self, stream: StreamId, call: Call) {
        self.waiting.push((stream, call));
        if self.waiting.len() == TOGETHER {
            self.catch_up();
        }
    }

    /// Makes the calls that wait. The program stands still meanwhile.
    fn catch_up(&mut self) {
        let mut suspects = Suspects::All;
        let mut refusals = self.shared.ledger.refusals();
        for (stream, call) in std::mem::take(&mut self.waiting) {
            match call {
                Call::Allocate { memory, size } => {
                    self.shared.recorder().note_freed(&suspects);
                    suspects = Suspects::These(vec![memory.descriptor().id.value]);
                    self.allocate(memory, size, stream);
                }
                Call::Launch {
                    kernel,
                    bindings,
                    skipped,
                } => {
                    suspects.add(ids(bindings.buffers()));
                    if self.launch_now(kernel, &bindings, skipped, stream) {
                        suspects = Suspects::All;
                    }
                }
                Call::Write { memory } => {
                    self.memory.write(stream);
                    let mut recorder = self.shared.recorder();
                    memory.into_iter().for_each(|id| recorder.filled(id));
                    recorder.event(stream, Event::Write);
                }
                Call::Mode(mode) => {
                    self.memory.mode(mode, stream);
                    let event = Event::Mode(mode.into());
                    self.shared.recorder().event(stream, event);
                }
            }
            // A runtime that is refused memory first gives up its cached metadata.
            let refused = self.shared.ledger.refusals();
            if std::mem::replace(&mut refusals, refused) != refused {
                suspects = Suspects::All;
            }
        }
    }

    fn allocate(&mut self, memory: ManagedMemoryHandle, size: u64, stream: StreamId) {
        {
            let mut recorder = self.shared.recorder();
            let id = memory.descriptor().id.value;
            let weak = MemoryHandle::binding(memory.clone()).downgrade();
            recorder.allocated(stream, id, weak, Bytes(size), false);
        }
        self.give(memory, size, stream);
    }

    /// Gives `memory` its bytes. The first time that the card cannot, it says so in the
    /// recording and has no limit from then on: the program reaches its next mark, where
    /// it is stopped, without a second failure that would only follow from the first.
    fn give(&mut self, memory: ManagedMemoryHandle, size: u64, stream: StreamId) {
        let Err(error) = self.memory.allocate(memory.clone(), size, stream) else {
            return;
        };
        let refusal = self.shared.spec.refusal(&error);
        let mut recorder = self.shared.recorder();
        if recorder.recording.failure.is_none() {
            let buffer = recorder
                .buffer(memory.descriptor().id.value)
                .expect("the allocation was recorded before it was tried");
            recorder.recording.failure = Some(Failure { buffer, refusal });
        }
        drop(recorder);
        self.shared.ledger.open();
        // Any size will do, since nothing is ever written to it.
        let _ = self.memory.allocate(memory, size.min(1), stream);
    }

    /// Returns whether the runtime let go of a metadata buffer of its own for it.
    fn launch_now(
        &mut self,
        kernel: &'static str,
        bindings: &KernelArguments,
        skipped: bool,
        stream: StreamId,
    ) -> bool {
        // Nothing is compiled, so what the caller declared is all that is known.
        let reads: Vec<usize> = ids(bindings.buffers_read(None)).collect();
        let writes: Vec<usize> = ids(bindings.buffers_written(None)).collect();
        // A dry run launches nothing, so nothing needs metadata.
        let metadata = match skipped {
            true => &[],
            false => self.memory.metadata(&bindings.info),
        };
        self.shared
            .recorder()
            .launch(stream, kernel, metadata, &reads, &writes);
        if metadata.is_empty() {
            return false;
        }
        // A full card shows at the allocation that filled it, not here.
        let Ok(Some(buffer)) = self.memory.launch(metadata, stream) else {
            return false;
        };
        if let Some(memory) = buffer.memory.upgrade() {
            let id = memory.id().value;
            let bytes = Bytes(buffer.bytes);
            self.shared
                .recorder()
                .allocated(stream, id, buffer.memory, bytes, true);
        }
        buffer.evicts
    }
}

/// The ids of the managed memory under `bindings`.
fn ids<'a>(bindings: impl Iterator<Item = &'a BufferBinding>) -> impl Iterator<Item = usize> {
    bindings.map(|binding| binding.memory.id().value)
}

impl DeviceService for CardServer {
    /// Not how these servers are made: the slot asks for them by device and service.
    fn init(device_id: DeviceId) -> Self {
        super::registry::server(device_id, ServiceId::of::<Self>(device_id))
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone()
    }
}

impl ServerCommunication for CardServer {}

impl Server for CardServer {
    fn initialize_memory(
        &mut self,
        memory: ManagedMemoryHandle,
        size: u64,
        stream_id: StreamId,
    ) -> Result<(), ServerError> {
        self.later(stream_id, Call::Allocate { memory, size });
        Ok(())
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.utilities.logger.clone()
    }

    fn utilities(&self) -> Arc<ServerUtilities> {
        self.utilities.clone()
    }

    /// Every value that is read is zero.
    fn read(
        &mut self,
        descriptors: Vec<CopyDescriptor>,
        stream_id: StreamId,
    ) -> DynFut<Result<Vec<HostBytes>, ServerError>> {
        self.catch_up();
        let sizes: Vec<_> = descriptors
            .iter()
            .map(|copy| copy.shape.iter().product::<usize>() * copy.elem_size)
            .collect();
        let bytes: Vec<u64> = sizes.iter().map(|size| *size as u64).collect();
        // A refusal shows at the allocation that filled the card, not here.
        let _ = self.memory.read(&bytes, stream_id);
        self.shared.recorder().event(stream_id, Event::Read(bytes));
        let zeros = sizes.into_iter();
        let zeros = zeros.map(|size| HostBytes::from_bytes_vec(vec![0; size]));
        let zeros = zeros.collect();
        Box::pin(async move { Ok(zeros) })
    }

    fn write(&mut self, descriptors: Vec<(CopyDescriptor, HostBytes)>, stream_id: StreamId) {
        let ids = descriptors
            .iter()
            .map(|(copy, _)| copy.handle.memory.id().value);
        let memory = ids.collect();
        self.later(stream_id, Call::Write { memory });
    }

    fn sync(
        &mut self,
        _handles: Vec<BufferBinding>,
        stream_id: StreamId,
    ) -> DynFut<Result<(), ServerError>> {
        self.catch_up();
        if self.shared.spec.runtime != Runtime::Cuda {
            // `sync` of `cubecl-wgpu` runs and submits what waits in the scheduler.
            self.memory.flush(stream_id);
            self.shared.recorder().event(stream_id, Event::Flush);
        }
        Box::pin(async { Ok(()) })
    }

    fn check(
        &mut self,
        _handles: Vec<BufferBinding>,
        _stream_id: StreamId,
    ) -> Result<(), ServerError> {
        self.catch_up();
        Ok(())
    }

    unsafe fn launch(
        &mut self,
        kernel: Box<dyn CubeKernel>,
        _count: CubeCount,
        bindings: KernelArguments,
        stream_id: StreamId,
        launch_mode: LaunchMode,
    ) {
        let call = Call::Launch {
            kernel: kernel.name(),
            bindings,
            skipped: launch_mode.is_skipped(),
        };
        self.later(stream_id, call);
    }

    fn flush(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.catch_up();
        self.memory.flush(stream_id);
        self.shared.recorder().event(stream_id, Event::Flush);
        Ok(())
    }

    fn memory_report(&mut self, stream_id: StreamId) -> Option<StreamMemoryReport> {
        self.catch_up();
        self.memory.report(stream_id)
    }

    fn stream_ids(&self) -> Vec<StreamId> {
        self.memory.streams()
    }

    fn memory_cleanup(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.catch_up();
        self.shared.recorder().note_freed(&Suspects::All);
        self.memory.cleanup(stream_id);
        self.shared.recorder().event(stream_id, Event::Cleanup);
        Ok(())
    }

    fn start_profile(&mut self, _stream_id: StreamId) -> Result<ProfilingToken, ServerError> {
        self.catch_up();
        Ok(self.timestamps.start())
    }

    fn end_profile(
        &mut self,
        _stream_id: StreamId,
        token: ProfilingToken,
    ) -> Result<ProfileDuration, ProfileError> {
        self.catch_up();
        self.timestamps.stop(token)
    }

    fn allocation_mode(&mut self, mode: MemoryAllocationMode, stream_id: StreamId) {
        self.later(stream_id, Call::Mode(mode));
    }
}
