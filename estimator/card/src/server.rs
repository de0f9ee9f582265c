//! The CubeCL server of a simulated card: it records each call and executes it on the card's memory.
//!
//! The file is long because `Server` is one trait, whose methods share the queue of calls.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cubecl_common::bytes::Bytes as HostBytes;
use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle, ServiceId};
use cubecl_common::profile::{Instant, ProfileDuration, ProfileTicks};
use cubecl_environment::backtrace::BackTrace;
use cubecl_environment::future::DynFut;
use cubecl_environment::stream::StreamId;
use cubecl_ir::{DeviceProperties, ElemType};
use cubecl_server::dry_run::LaunchMode;
use cubecl_server::kernel::CubeKernel;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    ManagedMemoryHandle, MemoryAllocationMode, MemoryHandle, StreamMemoryReport,
};
use cubecl_server::server::{
    BufferBinding, CopyDescriptor, CubeCount, DeviceCaptures, Handle, KernelArguments,
    ProfileError, ProfilingToken, ReduceOperation, Server, ServerCommunication, ServerError,
    ServerUtilities,
};
use recording::{BufferId, Bytes, CALLS_PER_BATCH, ChangingLag, Event, Failure, Refusal};

use crate::card_state::CardState;
use crate::device_spec::{DeviceSpec, KernelGroup, Simulation};
use crate::in_place::NotOverwritten;
use crate::launch_time;
use crate::layout::{LayoutRule, Notes, Noting};
use crate::memory::{CardMemory, recorded_mode};
use crate::memory_without_pools::MemoryWithoutPools;
use crate::profiler::Profiler;
use crate::recorder::{Recorder, Suspects};
use crate::registry;
use crate::runtime_names;
use crate::storage::MemoryBudget;
use crate::throughput_probes::{Probe, ThroughputProbes};
use crate::tuning::{KernelProducts, TunerCalls, Tuning};
use crate::unwritten::{LaunchOutcome, Unwritten};

/// What the server of a card like `spec` tells burn about it. Its layout policy writes each layout that burn
/// requests into `notes`.
fn utilities(
    spec: &DeviceSpec,
    service: ServiceId,
    notes: Arc<Notes>,
) -> (ServerUtilities, DeviceCaptures) {
    let logger = Arc::new(ServerLogger::default());
    let rule = LayoutRule::new(spec);
    let (mut utilities, captures) = ServerUtilities::init(
        service,
        runtime_names::of(spec.runtime, 0),
        properties(spec, service),
        spec.runtime.rules().target(),
        logger,
        Noting { rule, notes },
    );
    utilities.server_comm_enabled = spec.runtime.rules().reduces_between_cards();
    (utilities, captures)
}

/// What a card like `spec` offers to kernels.
fn properties(spec: &DeviceSpec, service: ServiceId) -> DeviceProperties {
    let mut properties = spec.runtime.rules().properties(&spec.card);
    // CubeCL keeps its measurements of a device by this fingerprint for the whole process; no card may reuse
    // the measurements of another.
    let index = service.device.index_id;
    properties
        .identity
        .fingerprint
        .push_str(&format!("-{index}"));
    properties
}

/// The memory of a card like `spec`, limited by `budget`.
pub fn memory(
    spec: &DeviceSpec,
    budget: Arc<MemoryBudget>,
    service: ServiceId,
    logger: Arc<ServerLogger>,
    captures: DeviceCaptures,
) -> Box<dyn CardMemory> {
    let rules = spec.runtime.rules();
    rules.memory(&spec.card, budget, service, logger, captures)
}

/// A kernel in a launch.
#[derive(Clone, Copy, Debug)]
struct LaunchedKernel {
    name: &'static str,
    /// Whether the launch has no threads: a dimension of its grid is 0.
    is_empty: bool,
    /// How long the launch takes for burn's tuner; zero if the tuner is not timing.
    time: Duration,
}

/// A call that the client does not wait for.
#[derive(Debug)]
enum Call {
    Allocate {
        memory: ManagedMemoryHandle,
        size: u64,
    },
    Launch {
        kernel: LaunchedKernel,
        bindings: KernelArguments,
        skipped: bool,
        probe: Option<Probe>,
    },
    Write {
        memory: Vec<usize>,
    },
    /// Several cards reduce these buffers. That takes no memory of the pools, but the call holds the buffers until it is made.
    Reduce {
        buffers: [BufferBinding; 2],
    },
    Mode(MemoryAllocationMode),
}

impl Call {
    /// Whether this is a launch that is part of the recording.
    fn is_recorded_launch(&self) -> bool {
        matches!(self, Self::Launch { probe: None, .. })
    }

    /// The ids of the buffers of a probe that this call launches.
    fn probed(&self) -> Vec<usize> {
        match self {
            Self::Launch {
                bindings,
                probe: Some(_),
                ..
            } => ids(bindings.buffers()).collect(),
            _ => Vec::new(),
        }
    }
}

/// The server of a simulated card.
///
/// On a real card the program is ahead of the device's thread: CubeCL queues calls until there are 32 or the
/// program waits for an answer. Which tensors the program has dropped by the time of an allocation depends on
/// that, so this server queues calls too. (The real thread runs in parallel with the program, which may be up
/// to 32 calls further on by then. So a real card can have fewer bytes in use than this server records, and
/// not more. Its pools can hold more or fewer bytes: see [`QueueLag`](crate::QueueLag).)
#[derive(Debug)]
pub(crate) struct CardServer {
    service: ServiceId,
    captures: DeviceCaptures,
    throughput_probes: ThroughputProbes,
    shared: Arc<CardState>,
    utilities: Arc<ServerUtilities>,
    notes: Arc<Notes>,
    /// What the card has offered, by the kernel groups to which it has belonged. It is never dropped: see
    /// [`become_like`](Self::become_like).
    properties: Vec<(KernelGroup, Arc<DeviceProperties>)>,
    profiler: Profiler,
    products: KernelProducts,
    unwritten: Unwritten,
    /// The streams whose allocations are buffers of a throughput probe: nothing else asks for dedicated ones.
    probing: HashSet<StreamId>,
    /// Buffers of throughput probes that the card refused and CubeCL has not asked about yet.
    refused_probes: Vec<usize>,
    progress: Progress,
    /// While the tuner's calls are executed [apart](TunerCalls::Apart): what the program's calls left.
    program: Option<(Progress, Recorder)>,
}

/// How far a card has executed calls.
#[derive(Debug)]
struct Progress {
    memory: Box<dyn CardMemory>,
    waiting: Vec<(StreamId, Call)>,
    not_overwritten: NotOverwritten,
    lag: ChangingLag,
}

impl Progress {
    /// No call was executed in `memory`.
    fn new(memory: Box<dyn CardMemory>, simulation: &Simulation) -> Self {
        Self {
            memory,
            waiting: Vec::with_capacity(2 * CALLS_PER_BATCH),
            not_overwritten: NotOverwritten::new(simulation.in_place),
            lag: ChangingLag::new(simulation.queue_lag),
        }
    }
}

impl CardServer {
    pub fn new(shared: Arc<CardState>, service: ServiceId) -> Self {
        let notes = Arc::<Notes>::default();
        let (utilities, captures) = utilities(&shared.spec, service, notes.clone());
        let throughput_probes = ThroughputProbes::new(utilities.name, &utilities.properties);
        let logger = utilities.logger.clone();
        let memory = memory(
            &shared.spec,
            shared.budget.clone(),
            service,
            logger,
            captures.clone(),
        );
        let kernels = shared.spec.kernel_group();
        Self {
            properties: vec![(kernels, utilities.properties.clone())],
            progress: Progress::new(memory, &shared.spec.simulation),
            service,
            captures,
            throughput_probes,
            shared,
            utilities: Arc::new(utilities),
            notes,
            profiler: Profiler::default(),
            products: KernelProducts::default(),
            unwritten: Unwritten::default(),
            probing: HashSet::new(),
            refused_probes: Vec::new(),
            program: None,
        }
    }

    /// Lets burn's tuner begin or end to execute calls apart from those of the program, if it has begun or ended to
    /// choose a kernel since the last call.
    fn follow_tuner(&mut self) {
        if self.shared.tuner_calls != TunerCalls::Apart
            || self.shared.is_choosing() == self.program.is_some()
        {
            return;
        }
        let program = self.program.take();
        let begins = program.is_none();
        let (mut progress, mut recorder) = program.unwrap_or_else(|| {
            let memory = Box::<MemoryWithoutPools>::default();
            let progress = Progress::new(memory, &Simulation::default());
            (progress, Recorder::default())
        });
        std::mem::swap(&mut self.progress, &mut progress);
        std::mem::swap(&mut *self.shared.recorder(), &mut recorder);
        if begins {
            self.program = Some((progress, recorder));
        } else {
            self.profiler.close_all();
            self.shared.set_open_windows(0);
            self.unwritten = Unwritten::default();
        }
    }

    /// Restarts the card as `shared` describes it, with empty memory. burn still knows what it can fuse, and
    /// its tuner knows the results of the name in `shared`.
    fn restart(&mut self, shared: Arc<CardState>) {
        if shared.name != self.shared.name {
            self.become_like(&shared.spec, shared.name);
        }
        let memory: Box<dyn CardMemory> = match shared.tuner_calls {
            TunerCalls::Only => Box::new(MemoryWithoutPools::default()),
            TunerCalls::OnCard | TunerCalls::Apart => memory(
                &shared.spec,
                shared.budget.clone(),
                self.service,
                self.utilities.logger.clone(),
                self.captures.clone(),
            ),
        };
        // A program that panicked may have left open windows and queued calls.
        self.progress = Progress::new(memory, &shared.spec.simulation);
        self.program = None;
        self.shared = shared;
        self.profiler = Profiler::default();
        self.unwritten = Unwritten::default();
        self.probing.clear();
        self.refused_probes.clear();
    }

    /// Has the card offer the kernels of one like `spec`, under the runtime name at index `name`, by which burn's tuners know
    /// the card, and CubeCL the throughput that it measured. Both are in the utilities, which all handles on the card share,
    /// even those that burn's fused operations keep for the life of the process.
    fn become_like(&mut self, spec: &DeviceSpec, name: usize) {
        let name = runtime_names::of(spec.runtime, name);
        let properties = self.properties(spec);
        self.throughput_probes = ThroughputProbes::new(name, &properties);
        // SAFETY: as with `Arc::get_mut_unchecked`, nobody else reads the utilities meanwhile. This runs on
        // the card's thread, for a caller that waits (`SimulatedCard::restart`) while no program runs on the
        // card: `TunedDevices` holds the card's lock. A tensor of an earlier program that is dropped on
        // another thread now only sends its drop to this thread. Earlier properties are kept.
        unsafe {
            let utilities = Arc::as_ptr(&self.utilities).cast_mut();
            (*utilities).name = name;
            (*utilities).properties_hash = properties.checksum();
            (*utilities).properties = properties;
        }
    }

    /// What the card offers like one like `spec`: the same for all cards of a kernel group.
    fn properties(&mut self, spec: &DeviceSpec) -> Arc<DeviceProperties> {
        let kernels = spec.kernel_group();
        let known = self.properties.iter().find(|(known, _)| *known == kernels);
        if let Some((_, known)) = known {
            return known.clone();
        }
        let properties = Arc::new(properties(spec, self.service));
        self.properties.push((kernels, properties.clone()));
        properties
    }

    fn enqueue(&mut self, stream: StreamId, call: Call) {
        self.follow_tuner();
        self.progress.waiting.push((stream, call));
        // CubeCL times candidates on the device's thread, where each call is made at once (`ChannelDeviceHandle::send`
        // of `cubecl-common` 0.11.3, `src/device/handle/channel.rs`).
        if self.profiler.is_running() {
            return self.drain_queue();
        }
        // The channel holds two batches of calls: the thread executes one while the client fills the other.
        while self.progress.waiting.len()
            >= CALLS_PER_BATCH * (1 + usize::from(self.progress.lag.is_full()))
        {
            let calls = self.progress.waiting.drain(..CALLS_PER_BATCH).collect();
            self.execute(calls, false);
            self.progress.lag.change();
        }
    }

    /// Executes all queued calls. The program waits meanwhile.
    fn drain_queue(&mut self) {
        self.follow_tuner();
        let calls = std::mem::take(&mut self.progress.waiting);
        self.execute(calls, true);
    }

    /// Executes `calls`, the first in the queue; `drains` if the program waits until the queue is empty.
    fn execute(&mut self, calls: Vec<(StreamId, Call)>, drains: bool) {
        let allocated = calls.iter().filter_map(|(_, call)| match call {
            Call::Allocate { memory, .. } => Some(memory),
            _ => None,
        });
        self.progress.not_overwritten.handed_over(allocated, drains);
        // The program often waits for a queue that is empty.
        if calls.is_empty() && self.shared.recorder().is_drained() {
            return;
        }
        let queued = calls.iter().chain(&self.progress.waiting);
        let launches = queued.filter(|(_, call)| call.is_recorded_launch()).count();
        self.shared.recorder().begin_call_batch(launches, drains);
        let of_probes: HashSet<usize> = calls.iter().flat_map(|(_, call)| call.probed()).collect();
        let mut suspects = Suspects::These(Vec::new());
        let mut refusals = self.shared.budget.refusals();
        for (stream, call) in calls {
            match call {
                // How often CubeCL launches a probe depends on the host's clock, and the probes of arithmetic
                // allocate for each launch, so the recording leaves that out. On a card that computes nothing the
                // last of these launches is not made: its number of iterations does not fit in 32 bits.
                Call::Allocate { memory, size }
                    if of_probes.contains(&memory.descriptor().id.value)
                        || self.throughput_probes.is_computing() =>
                {
                    // Without these few bytes CubeCL tunes without the probe.
                    let _ = self.progress.memory.allocate(memory, size, stream);
                }
                Call::Allocate { memory, size } => {
                    self.shared.recorder().note_freed(&suspects);
                    suspects = Suspects::These(vec![memory.descriptor().id.value]);
                    self.allocate(memory, size, stream);
                }
                Call::Launch {
                    kernel,
                    bindings,
                    skipped,
                    probe,
                } => {
                    suspects.add(ids(bindings.buffers()));
                    if let Some(probe) = probe {
                        self.launch_probe(&probe, &bindings, stream);
                    } else if self.launch_now(kernel, &bindings, skipped, stream) {
                        suspects = Suspects::All;
                    }
                }
                Call::Write { memory } => self.write_now(memory, stream),
                Call::Reduce { buffers } => suspects.add(ids(buffers.iter())),
                Call::Mode(mode) => self.set_mode(mode, stream),
            }
            // When the card refuses an allocation, the runtime first drops its cached metadata.
            let refused = self.shared.budget.refusals();
            if std::mem::replace(&mut refusals, refused) != refused {
                suspects = Suspects::All;
            }
        }
    }

    /// Records and executes a copy from the host to the buffers with these ids.
    fn write_now(&mut self, memory: Vec<usize>, stream: StreamId) {
        self.progress.memory.write(stream);
        let mut recorder = self.shared.recorder();
        for id in memory {
            match recorder.buffer(id) {
                Some(buffer) if self.unwritten.fill(buffer) => recorder.filled(buffer),
                Some(_) => self.profiler.failed(),
                None => {}
            }
        }
        recorder.event(stream, Event::Write);
    }

    /// Records and sets the mode of the next allocations.
    fn set_mode(&mut self, mode: MemoryAllocationMode, stream: StreamId) {
        self.progress.memory.mode(mode, stream);
        match mode {
            MemoryAllocationMode::Dedicated => {
                self.tunes();
                self.probing.insert(stream)
            }
            _ => self.probing.remove(&stream),
        };
        let event = Event::Mode(recorded_mode(mode));
        self.shared.recorder().event(stream, event);
    }

    /// Submits what waits on `stream`, if the runtime does so where the program waits for the device and where burn's
    /// tuner begins or ends to time a kernel.
    fn submit_where_awaited(&mut self, stream: StreamId) {
        if self.shared.spec.runtime.rules().submits_on_sync() {
            self.progress.memory.flush(stream);
            self.shared.recorder().event(stream, Event::Flush);
        }
    }

    /// Notes that burn tunes a kernel in this run, or probes the card for that.
    fn tunes(&self) {
        self.shared.tuned.store(true, Ordering::Relaxed);
        let simulation = &self.shared.spec.simulation;
        if simulation.tuning == Tuning::Warm && self.shared.tuner_calls != TunerCalls::Apart {
            // The program runs again after this run, so the candidates need no limit in it.
            self.shared.budget.lift_limit();
        }
    }

    fn allocate(&mut self, memory: ManagedMemoryHandle, size: u64, stream: StreamId) {
        {
            let mut recorder = self.shared.recorder();
            let id = memory.descriptor().id.value;
            let weak = MemoryHandle::binding(memory.clone()).downgrade();
            let buffer = recorder.allocated(stream, id, weak, Bytes(size), false);
            recorder.laid_out(buffer, self.notes.take(id));
            if self.profiler.is_running() || self.probing.contains(&stream) {
                recorder.make_optional(buffer);
            }
        }
        if self.profiler.is_running() {
            self.profiler.allocated(&memory, Bytes(size));
            self.shared.tries(size);
        }
        self.allocate_from_pools(memory, size, stream);
    }

    /// Allocates `size` bytes for `memory`. The first time that the card refuses, this notes the failure in
    /// the recording and lifts the card's limit: the recording goes on to the next mark, without a second failure
    /// that only follows from the first.
    fn allocate_from_pools(&mut self, memory: ManagedMemoryHandle, size: u64, stream: StreamId) {
        let spec = &self.shared.spec;
        let is_probe = self.probing.contains(&stream);
        let is_trial = self.profiler.is_running() && !is_probe;
        let refusal = match is_trial && size > spec.largest_trial().0 {
            true => Refusal::TooLarge {
                largest: spec.largest_trial(),
            },
            false => match self.progress.memory.allocate(memory.clone(), size, stream) {
                Ok(()) => return,
                Err(error) => spec.refusal(&error),
            },
        };
        if is_probe {
            // CubeCL asks (`check`), and tunes without this probe.
            self.refused_probes.push(memory.descriptor().id.value);
            return;
        }
        let mut recorder = self.shared.recorder();
        let buffer = recorder
            .buffer(memory.descriptor().id.value)
            .expect("the allocation was recorded before it was tried");
        let failure = Failure { buffer, refusal };
        if is_trial {
            // The tuner drops a candidate that needs this buffer; the step itself may still fit.
            self.unwritten.refused(failure);
            return;
        }
        recorder.recording.failure.get_or_insert(failure);
        drop(recorder);
        self.shared.budget.lift_limit();
        // Any size will do, since nothing is ever written to the buffer.
        let _ = self.progress.memory.allocate(memory, size.min(1), stream);
    }

    /// Notes that the step failed if a buffer is unwritten that the program `needs`.
    fn fail_if_unwritten(&mut self, needs: impl Fn(&Recorder, BufferId) -> bool) {
        if self.unwritten.is_empty() {
            return;
        }
        let mut recorder = self.shared.recorder();
        recorder.note_dropped();
        if let Some(failure) = self.unwritten.first(|buffer| needs(&recorder, buffer)) {
            recorder.recording.failure.get_or_insert(failure);
        }
    }

    /// Answers a throughput probe, and executes its launch if it is made on every card. The recording leaves it out.
    fn launch_probe(&mut self, probe: &Probe, bindings: &KernelArguments, stream: StreamId) {
        self.throughput_probes.answer(probe, &bindings.info.data);
        if self.throughput_probes.is_certain() {
            let metadata = self.progress.memory.metadata(&bindings.info, false);
            // Without these few bytes CubeCL tunes without the probe.
            let _ = self.progress.memory.launch(metadata, false, stream);
        }
    }

    /// Records and executes a launch that belongs to no probe. Returns whether the runtime evicted one of its metadata
    /// buffers for it.
    fn launch_now(
        &mut self,
        kernel: LaunchedKernel,
        bindings: &KernelArguments,
        skipped: bool,
        stream: StreamId,
    ) -> bool {
        self.throughput_probes.end();
        // No kernel is compiled, so only the caller's declaration tells what it reads and writes.
        let reads: Vec<usize> = ids(bindings.buffers_read(None)).collect();
        let writes: Vec<usize> = ids(bindings.buffers_written(None)).collect();
        // A dry run launches nothing, so nothing needs metadata.
        let metadata = match skipped {
            true => &[],
            false => self
                .progress
                .memory
                .metadata(&bindings.info, kernel.is_empty),
        };
        let mut recorder = self.shared.recorder();
        let (reads, writes) = recorder.operands(&reads, &writes);
        // Without threads it reads and writes nothing. (CubeCL's wgpu runtime would let it fail of an unwritten operand.)
        let outcome = match skipped || kernel.is_empty {
            true => LaunchOutcome::Runs,
            false => self.unwritten.launch(&reads, &writes),
        };
        if outcome == LaunchOutcome::Runs {
            recorder.launch(stream, kernel.name, metadata, &reads, &writes);
            if kernel.is_empty {
                recorder.recording.empty_last_launch();
            }
            self.profiler.launched(kernel.time);
        } else {
            self.profiler.failed();
        }
        drop(recorder);
        if outcome == LaunchOutcome::Skipped || metadata.is_empty() {
            return false;
        }
        // A full card is reported at the allocation that filled it, not here.
        let launched = self
            .progress
            .memory
            .launch(metadata, kernel.is_empty, stream);
        let Ok(Some(buffer)) = launched else {
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

fn ids<'a>(bindings: impl Iterator<Item = &'a BufferBinding>) -> impl Iterator<Item = usize> {
    bindings.map(|binding| binding.memory.id().value)
}

/// The server of the card at `device`.
///
/// # Panics
///
/// Panics if there is no such card; burn only asks for devices that it was given.
fn server(device: DeviceId, service: ServiceId) -> CardServer {
    let card = registry::card(device.index_id);
    let card = card.expect("a simulated card is there for as long as its device is used");
    CardServer::new(card, service)
}

/// The server of the card at `device`, as the shim asks for it.
///
/// # Panics
///
/// Panics if there is no such card; burn only asks for devices that it was given.
pub fn serve(device: DeviceId, service: ServiceId) -> Box<dyn Server> {
    spare_the_processor();
    Box::new(server(device, service))
}

/// Lets the system wake this thread up to a tenth of a second later than a timer asks for.
///
/// CubeCL has the thread of a device look every 150 microseconds whether the device is to end (`PARK_STEP_SERVER` of
/// `cubecl-common` 0.11.3, `src/device/handle/channel.rs`), and these threads stay as long as the process. Fifty idle
/// cards took more than a core. Work does not come later for it: who sends some wakes the thread.
fn spare_the_processor() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_timerslack(100_000_000);
}

impl DeviceService for CardServer {
    /// CubeCL does not call this: the shim requests a server by device and service.
    fn init(device_id: DeviceId) -> Self {
        server(device_id, ServiceId::of::<Self>(device_id))
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone()
    }
}

/// The part of a collective operation that one card sees: its own memory. What NCCL keeps is outside of CubeCL's pools.
impl ServerCommunication for CardServer {
    fn comm_init(&mut self, _device_ids: Vec<DeviceId>) -> Result<(), ServerError> {
        Ok(())
    }

    fn all_reduce(
        &mut self,
        src: BufferBinding,
        dst: BufferBinding,
        _dtype: ElemType,
        stream_id: StreamId,
        _op: ReduceOperation,
        _device_ids: Vec<DeviceId>,
    ) -> Result<(), ServerError> {
        let buffers = [src, dst];
        self.enqueue(stream_id, Call::Reduce { buffers });
        Ok(())
    }

    fn sync_collective(&mut self, _stream_id: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn send(
        &mut self,
        _desc: CopyDescriptor,
        _dtype: ElemType,
        _stream_id: StreamId,
        _device_id_dst: DeviceId,
    ) -> Result<(), ServerError> {
        Ok(())
    }

    /// Allocates the buffer that the other card's data goes to, as `recv_checked` of `cubecl-cuda` 0.11.3,
    /// `src/compute/server.rs`.
    fn recv(
        &mut self,
        handle: Handle,
        _dtype: ElemType,
        stream_id: StreamId,
        _device_id_src: DeviceId,
    ) -> Result<(), ServerError> {
        let size = handle.size();
        self.initialize_memory(handle.memory, size, stream_id)
    }
}

impl Server for CardServer {
    fn initialize_memory(
        &mut self,
        memory: ManagedMemoryHandle,
        size: u64,
        stream_id: StreamId,
    ) -> Result<(), ServerError> {
        self.enqueue(stream_id, Call::Allocate { memory, size });
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
        self.drain_queue();
        let sizes: Vec<_> = descriptors
            .iter()
            .map(|copy| copy.shape.iter().product::<usize>() * copy.elem_size)
            .collect();
        let bytes: Vec<u64> = sizes.iter().map(|size| *size as u64).collect();
        self.fail_if_unwritten(|recorder, buffer| {
            let mut read = ids(descriptors.iter().map(|copy| &copy.handle));
            read.any(|id| recorder.buffer(id) == Some(buffer))
        });
        // A refusal is reported at the allocation that filled the card, not here.
        let _ = self.progress.memory.read(&bytes, stream_id);
        self.shared.recorder().read(stream_id, bytes);
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
        self.enqueue(stream_id, Call::Write { memory });
    }

    fn sync(
        &mut self,
        _handles: Vec<BufferBinding>,
        stream_id: StreamId,
    ) -> DynFut<Result<(), ServerError>> {
        self.drain_queue();
        // What burn's fusion held back until the end of the phase may still be tuned, and probes synchronize too.
        if !self.throughput_probes.is_probing() && self.shared.phase_ends() {
            // burn's tuner is not at work here. The windows that are open are of candidates that panicked, and
            // what the card refused after that, it refused to the step.
            self.shared.lose_requests();
            self.follow_tuner();
            self.profiler.close_all();
            self.shared.set_open_windows(0);
            self.fail_if_unwritten(Recorder::is_live);
        }
        self.submit_where_awaited(stream_id);
        Box::pin(async { Ok(()) })
    }

    fn check(
        &mut self,
        handles: Vec<BufferBinding>,
        _stream_id: StreamId,
    ) -> Result<(), ServerError> {
        self.drain_queue();
        let refused = std::mem::take(&mut self.refused_probes);
        match ids(handles.iter()).any(|id| refused.contains(&id)) {
            true => Err(ServerError::Generic {
                reason: "no memory is left for this buffer".into(),
                backtrace: BackTrace::capture(),
            }),
            false => Ok(()),
        }
    }

    unsafe fn launch(
        &mut self,
        kernel: Box<dyn CubeKernel>,
        count: CubeCount,
        bindings: KernelArguments,
        stream_id: StreamId,
        launch_mode: LaunchMode,
    ) {
        let name = kernel.name();
        let is_empty = count.is_empty();
        let time = match self.profiler.is_running() && !is_empty {
            true => launch_time::of(self.products.of(&*kernel)),
            false => Duration::ZERO,
        };
        let call = Call::Launch {
            kernel: LaunchedKernel {
                name,
                is_empty,
                time,
            },
            probe: Probe::of(&*kernel),
            bindings,
            skipped: launch_mode.is_skipped(),
        };
        self.enqueue(stream_id, call);
    }

    fn flush(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.drain_queue();
        self.progress.memory.flush(stream_id);
        self.shared.recorder().event(stream_id, Event::Flush);
        if let Some(next) = self.shared.next.get().cloned() {
            self.restart(next);
        }
        Ok(())
    }

    fn memory_report(&mut self, stream_id: StreamId) -> Option<StreamMemoryReport> {
        self.drain_queue();
        self.progress.memory.report(stream_id)
    }

    fn stream_ids(&self) -> Vec<StreamId> {
        self.progress.memory.streams()
    }

    fn memory_cleanup(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.drain_queue();
        self.throughput_probes.clean_up();
        self.shared.recorder().note_dropped();
        self.progress.memory.cleanup(stream_id);
        self.shared.recorder().event(stream_id, Event::Cleanup);
        Ok(())
    }

    fn start_profile(&mut self, stream_id: StreamId) -> Result<ProfilingToken, ServerError> {
        self.drain_queue();
        self.submit_where_awaited(stream_id);
        self.tunes();
        let token = self.profiler.start();
        self.shared.set_open_windows(self.profiler.open_windows());
        Ok(token)
    }

    fn end_profile(
        &mut self,
        stream_id: StreamId,
        token: ProfilingToken,
    ) -> Result<ProfileDuration, ProfileError> {
        self.drain_queue();
        self.submit_where_awaited(stream_id);
        let trial = self
            .profiler
            .stop(token, self.shared.spec.simulation.preference)?;
        self.shared.set_open_windows(self.profiler.open_windows());
        let shared = self.shared.clone();
        // The tuner awaits the time only of runs that count, and not of a warm-up run.
        Ok(ProfileDuration::new_device_time(async move {
            shared.tried(trial);
            let start = Instant::now();
            ProfileTicks::from_start_end(start, start + trial.time)
        }))
    }

    fn abandon_profile(&mut self, _stream_id: StreamId, token: ProfilingToken) {
        self.drain_queue();
        self.profiler.abandon(token);
        self.shared.set_open_windows(self.profiler.open_windows());
    }

    fn allocation_mode(&mut self, mode: MemoryAllocationMode, stream_id: StreamId) {
        self.enqueue(stream_id, Call::Mode(mode));
    }
}
