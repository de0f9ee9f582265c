//! A stand-in for CubeCL's ROCm runtime: every call goes to a simulated card.
//!
//! burn picks its runtime from a closed list. The ROCm entry of that list is the one whose devices have an
//! index. So `[patch.crates-io]` in the workspace manifest puts a crate *named* `cubecl-hip` in its place,
//! and `Device::rocm(i)` becomes the i-th simulated card. See `README.md`.
//!
//! Invariant: this crate decides nothing. [`ShimServer`] forwards each call to the server that [`install`]ed
//! code builds; an edit to this crate rebuilds CubeCL and burn.

use std::sync::{Arc, OnceLock};

use cubecl_common::device::{
    DeviceId, DeviceService, DeviceServiceStage, ServerUtilitiesHandle, ServiceId,
};
use cubecl_common::{bytes::Bytes, profile::ProfileDuration};
use cubecl_environment::{backtrace::BackTrace, future::DynFut, stream::StreamId};
use cubecl_ir::{ElemType, TargetProperties};
use cubecl_server::client::Client;
pub use cubecl_server::device::AmdDevice;
use cubecl_server::dry_run::LaunchMode;
use cubecl_server::id::GraphId;
use cubecl_server::kernel::CubeKernel;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    ManagedMemoryHandle, MemoryAllocationMode, StreamMemoryReport,
};
use cubecl_server::runtime::Runtime;
use cubecl_server::server::{
    BufferBinding, CopyDescriptor, CubeCount, Handle, IoError, KernelArguments, ProfileError,
    ProfilingToken, ReduceOperation, Server, ServerCommunication, ServerError, ServerStorage,
    ServerUtilities,
};
use cubecl_server::storage::{BytesResource, BytesStorage, ManagedResource};
use cubecl_zspace::{Shape, Strides};

/// The functions that the shim forwards to.
pub struct Cards {
    /// Builds the server of the card at `device_id`; its handles carry the given service.
    pub serve: fn(DeviceId, ServiceId) -> Box<dyn Server>,
    /// The indices of the cards that exist now.
    pub present: fn() -> Vec<u16>,
    /// Whether kernels read a tensor with this shape and these strides without a copy, on the card of this
    /// thread: CubeCL asks a runtime, without naming a device.
    pub reads: fn(&Shape, &Strides) -> bool,
}

static CARDS: OnceLock<Cards> = OnceLock::new();

/// Puts `cards` behind the shim; the first call of a process wins.
pub fn install(cards: Cards) {
    let _ = CARDS.set(cards);
}

/// `RuntimeId::Hip as u16` of `cubecl` 0.11.3 (`src/device.rs`), shifted to where a `DeviceId` carries its
/// runtime. That crate depends on this one, so this repeats the number.
pub const RUNTIME_TAG: u16 = 1 << 5;

/// The id under which CubeCL, and burn's fusion above it, know card `index`.
pub fn device_id(index: u16) -> DeviceId {
    DeviceId::new(RUNTIME_TAG, index)
}

/// The runtime that burn takes for ROCm.
#[derive(Debug, Clone)]
pub struct HipRuntime;

impl Runtime for HipRuntime {
    type Server = ShimServer;
    type Device = AmdDevice;

    /// Loads the client under the id that burn's fusion uses for the same device, and not under the bare
    /// index. Together with [`ShimServer::stage`], this puts both servers on one thread.
    fn client(device: &Self::Device) -> Client {
        Client::load::<ShimServer>(device_id(device.index as u16))
    }

    fn can_read_tensor(shape: &Shape, strides: &Strides) -> bool {
        let cards = CARDS.get();
        cards.is_some_and(|cards| (cards.reads)(shape, strides))
    }

    fn target_properties() -> TargetProperties {
        TargetProperties::default()
    }

    fn enumerate_devices(_type_id: u16) -> Vec<DeviceId> {
        let present = CARDS.get().map(|cards| (cards.present)());
        let ids = present.into_iter().flatten();
        ids.map(|index| DeviceId::new(0, index)).collect()
    }
}

/// Forwards to the server of a simulated card.
#[derive(Debug)]
pub struct ShimServer(Box<dyn Server>);

impl DeviceService for ShimServer {
    fn init(device_id: DeviceId) -> Self {
        let cards = CARDS
            .get()
            .expect("a simulated card is made through `estimator` before it is used");
        Self((cards.serve)(device_id, ServiceId::of::<Self>(device_id)))
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        DeviceService::utilities(&*self.0)
    }

    /// The stage, and so the thread, of burn's fusion server. Code on that thread reaches both servers by a
    /// plain call, in program order; on two threads, whether a tensor is dropped before or after the next
    /// allocation would be a race.
    fn stage() -> DeviceServiceStage {
        DeviceServiceStage::Upstream
    }
}

impl ServerCommunication for ShimServer {
    fn comm_init(&mut self, device_ids: Vec<DeviceId>) -> Result<(), ServerError> {
        self.0.comm_init(device_ids)
    }

    fn all_reduce(
        &mut self,
        src: BufferBinding,
        dst: BufferBinding,
        dtype: ElemType,
        stream_id: StreamId,
        op: ReduceOperation,
        device_ids: Vec<DeviceId>,
    ) -> Result<(), ServerError> {
        self.0
            .all_reduce(src, dst, dtype, stream_id, op, device_ids)
    }

    fn sync_collective(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.0.sync_collective(stream_id)
    }

    fn send(
        &mut self,
        desc: CopyDescriptor,
        dtype: ElemType,
        stream_id: StreamId,
        device_id_dst: DeviceId,
    ) -> Result<(), ServerError> {
        self.0.send(desc, dtype, stream_id, device_id_dst)
    }

    fn recv(
        &mut self,
        handle: Handle,
        dtype: ElemType,
        stream_id: StreamId,
        device_id_src: DeviceId,
    ) -> Result<(), ServerError> {
        self.0.recv(handle, dtype, stream_id, device_id_src)
    }
}

impl ServerStorage for ShimServer {
    type Storage = BytesStorage;

    fn get_resource(
        &mut self,
        _binding: BufferBinding,
        _stream_id: StreamId,
    ) -> Result<ManagedResource<BytesResource>, ServerError> {
        // A simulated card has no bytes to point to.
        Err(IoError::UnsupportedIoOperation {
            backtrace: BackTrace::capture(),
        }
        .into())
    }
}

impl Server for ShimServer {
    fn initialize_memory(
        &mut self,
        memory: ManagedMemoryHandle,
        size: u64,
        stream_id: StreamId,
    ) -> Result<(), ServerError> {
        self.0.initialize_memory(memory, size, stream_id)
    }

    fn staging(&mut self, sizes: &[usize], stream_id: StreamId) -> Result<Vec<Bytes>, ServerError> {
        self.0.staging(sizes, stream_id)
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.0.logger()
    }

    fn utilities(&self) -> Arc<ServerUtilities> {
        Server::utilities(&*self.0)
    }

    fn read(
        &mut self,
        descriptors: Vec<CopyDescriptor>,
        stream_id: StreamId,
    ) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        self.0.read(descriptors, stream_id)
    }

    fn write(&mut self, descriptors: Vec<(CopyDescriptor, Bytes)>, stream_id: StreamId) {
        self.0.write(descriptors, stream_id)
    }

    fn sync(
        &mut self,
        handles: Vec<BufferBinding>,
        stream_id: StreamId,
    ) -> DynFut<Result<(), ServerError>> {
        self.0.sync(handles, stream_id)
    }

    fn check(
        &mut self,
        handles: Vec<BufferBinding>,
        stream_id: StreamId,
    ) -> Result<(), ServerError> {
        self.0.check(handles, stream_id)
    }

    unsafe fn launch(
        &mut self,
        kernel: Box<dyn CubeKernel>,
        count: CubeCount,
        bindings: KernelArguments,
        stream_id: StreamId,
        launch_mode: LaunchMode,
    ) {
        // SAFETY: the caller's promise, passed on.
        unsafe {
            self.0
                .launch(kernel, count, bindings, stream_id, launch_mode)
        }
    }

    fn flush(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.0.flush(stream_id)
    }

    fn graph_prepare(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.0.graph_prepare(stream_id)
    }

    fn begin_capture(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.0.begin_capture(stream_id)
    }

    fn end_capture(&mut self, stream_id: StreamId) -> Result<GraphId, ServerError> {
        self.0.end_capture(stream_id)
    }

    fn replay(&mut self, graph: GraphId, stream_id: StreamId) -> Result<(), ServerError> {
        self.0.replay(graph, stream_id)
    }

    fn graph_destroy(&mut self, graph: GraphId, stream_id: StreamId) {
        self.0.graph_destroy(graph, stream_id)
    }

    fn memory_report(&mut self, stream_id: StreamId) -> Option<StreamMemoryReport> {
        self.0.memory_report(stream_id)
    }

    fn stream_ids(&self) -> Vec<StreamId> {
        self.0.stream_ids()
    }

    fn memory_cleanup(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.0.memory_cleanup(stream_id)
    }

    fn start_profile(&mut self, stream_id: StreamId) -> Result<ProfilingToken, ServerError> {
        self.0.start_profile(stream_id)
    }

    fn end_profile(
        &mut self,
        stream_id: StreamId,
        token: ProfilingToken,
    ) -> Result<ProfileDuration, ProfileError> {
        self.0.end_profile(stream_id, token)
    }

    fn abandon_profile(&mut self, stream_id: StreamId, token: ProfilingToken) {
        self.0.abandon_profile(stream_id, token)
    }

    fn allocation_mode(&mut self, mode: MemoryAllocationMode, stream_id: StreamId) {
        self.0.allocation_mode(mode, stream_id)
    }
}
