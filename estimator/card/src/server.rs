//! The CubeCL server of a simulated card: records every call, and makes it of the
//! card's memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cubecl_common::bytes::Bytes as HostBytes;
use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle, ServiceId};
use cubecl_common::profile::{Instant, ProfileDuration, ProfileTicks};
use cubecl_environment::future::DynFut;
use cubecl_environment::stream::StreamId;
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

use crate::Bytes;
use crate::device_spec::DeviceSpec;
use crate::launch_time;
use crate::layout::{LayoutRule, Notes, Noting};
use crate::memory::CardMemory;
use crate::profiler::Profiler;
use crate::queue_lag::QueueLag;
use crate::record::{Event, Failure};
use crate::recorder::{Recorder, Suspects};
use crate::runtime_names;
use crate::storage::MemoryBudget;
use crate::throughput_probes::{Probe, ThroughputProbes};
use crate::tuning::{Choice, Trial, Tuning, products};

/// What a card and its server share.
#[derive(Debug)]
pub struct Shared {
    /// What the card is like.
    pub spec: DeviceSpec,
    /// Its memory.
    pub budget: Arc<MemoryBudget>,
    /// Which of its names it has: see [`runtime_names`](crate::runtime_names).
    name: usize,
    recorder: Mutex<Recorder>,
    tuned: AtomicBool,
    windows: AtomicUsize,
    /// Those about which the tuner has not decided, outer ones first.
    trials: Mutex<Vec<Trial>>,
    choices: Mutex<Vec<Choice>>,
    /// What the card is to be from its next flush on.
    next: OnceLock<Arc<Shared>>,
}

impl Shared {
    /// Of a new card like `spec`.
    pub fn new(spec: DeviceSpec) -> Arc<Self> {
        Self::named(spec, 0)
    }

    /// Of a card like `spec` of which burn's tuner knows what it found out under this name.
    pub fn named(spec: DeviceSpec, name: usize) -> Arc<Self> {
        let budget = MemoryBudget::new(spec.available().map(|bytes| bytes.0));
        Arc::new(Self {
            spec,
            budget,
            name,
            recorder: Mutex::default(),
            tuned: AtomicBool::new(false),
            windows: AtomicUsize::new(0),
            trials: Mutex::default(),
            choices: Mutex::default(),
            next: OnceLock::new(),
        })
    }

    /// Whether burn's tuner asked the card anything.
    pub fn tuned(&self) -> bool {
        self.tuned.load(Ordering::Relaxed)
    }

    /// So many windows are being timed.
    fn watched(&self, windows: usize) {
        self.windows.store(windows, Ordering::Relaxed);
    }

    /// A candidate was tried.
    fn tried(&self, trial: Trial) {
        locked(&self.trials).push(trial);
    }

    /// The tuner has decided between the candidates that were tried since it last did.
    pub(crate) fn decided(&self, choice: impl FnOnce(&[Trial]) -> Option<Choice>) {
        let within = self.windows.load(Ordering::Relaxed);
        let mut trials = locked(&self.trials);
        trials.retain(|trial| trial.within <= within);
        let own = trials.partition_point(|trial| trial.within < within);
        // One that is made in order to try a candidate for another only matters to that.
        if within == 0 {
            locked(&self.choices).extend(choice(&trials[own..]));
        }
        trials.truncate(own);
    }

    /// What the tuner decided.
    pub fn choices(&self) -> Vec<Choice> {
        locked(&self.choices).clone()
    }

    /// The card is to be `next` from its next flush on.
    pub fn becomes(&self, next: Arc<Shared>) {
        // A card is restarted once: from then on it is the next.
        let _ = self.next.set(next);
    }

    /// What was recorded so far, to read or to add to.
    pub fn recorder(&self) -> MutexGuard<'_, Recorder> {
        locked(&self.recorder)
    }
}

/// A panic elsewhere leaves whole events, and no half of one.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the server of a card like `spec` tells burn about it; what burn asks room for goes
/// into `notes`.
fn utilities(
    spec: &DeviceSpec,
    service: ServiceId,
    notes: Arc<Notes>,
) -> (ServerUtilities, DeviceCaptures) {
    let logger = Arc::new(ServerLogger::default());
    let rules = spec.runtime.rules();
    let mut properties = rules.properties(&spec.card);
    // CubeCL keeps what it measures of a device under this name for the whole process; no card
    // is to spare another a measurement.
    let index = service.device.index_id;
    properties
        .identity
        .fingerprint
        .push_str(&format!("-{index}"));
    let rule = LayoutRule::new(spec);
    ServerUtilities::init(
        service,
        runtime_names::of(spec.runtime, 0),
        properties,
        rules.target(),
        logger,
        Noting { rule, notes },
    )
}

/// The memory of the card of `spec`.
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
        probe: Option<Probe>,
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
/// here, and not more. Of what the pools hold it can be either: see [`QueueLag`].)
#[derive(Debug)]
pub(crate) struct CardServer {
    service: ServiceId,
    captures: DeviceCaptures,
    throughput_probes: ThroughputProbes,
    shared: Arc<Shared>,
    memory: Box<dyn CardMemory>,
    utilities: Arc<ServerUtilities>,
    notes: Arc<Notes>,
    profiler: Profiler,
    waiting: Vec<(StreamId, Call)>,
    /// How many calls the program is ahead of those that are made next.
    lag: usize,
    /// The state of the numbers that [`QueueLag::Varying`] takes.
    random: u64,
}

fn seed(queue_lag: QueueLag) -> u64 {
    match queue_lag {
        QueueLag::Varying(which) => which,
        QueueLag::None | QueueLag::Full => 0,
    }
}

/// How many calls the program is ahead next, after it was `lag` ahead. A thread that has fallen behind
/// mostly stays so for a while: half of the time nothing changes.
fn next_lag(queue_lag: QueueLag, lag: usize, random: &mut u64) -> usize {
    match queue_lag {
        QueueLag::None => 0,
        QueueLag::Full => TOGETHER,
        QueueLag::Varying(_) => {
            // Knuth's generator (The Art of Computer Programming, volume 2, section 3.3.4, table 1).
            *random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = (*random >> 33) as usize;
            match number & 1 {
                0 => lag,
                _ => (number >> 1) % (TOGETHER + 1),
            }
        }
    }
}

impl CardServer {
    pub fn new(shared: Arc<Shared>, service: ServiceId) -> Self {
        let notes = Arc::<Notes>::default();
        let (utilities, captures) = utilities(&shared.spec, service, notes.clone());
        let throughput_probes = ThroughputProbes::new(utilities.name, &utilities.properties);
        let logger = utilities.logger.clone();
        let queue_lag = shared.spec.simulation.queue_lag;
        let mut random = seed(queue_lag);
        let memory = memory(
            &shared.spec,
            shared.budget.clone(),
            service,
            logger,
            captures.clone(),
        );
        Self {
            service,
            captures,
            throughput_probes,
            shared,
            memory,
            utilities: Arc::new(utilities),
            notes,
            profiler: Profiler::default(),
            waiting: Vec::with_capacity(2 * TOGETHER),
            lag: next_lag(queue_lag, 0, &mut random),
            random,
        }
    }

    /// The card as it is when it is switched on: with the memory that `shared` says, all of it
    /// empty. What burn has found out that can be fused stays known, and what its tuner found out under
    /// the name that `shared` says.
    fn restart(&mut self, shared: Arc<Shared>) {
        if shared.name != self.shared.name {
            self.rename(runtime_names::of(shared.spec.runtime, shared.name));
        }
        self.memory = memory(
            &shared.spec,
            shared.budget.clone(),
            self.service,
            self.utilities.logger.clone(),
            self.captures.clone(),
        );
        self.random = seed(shared.spec.simulation.queue_lag);
        self.lag = next_lag(shared.spec.simulation.queue_lag, 0, &mut self.random);
        self.shared = shared;
        // A program that panicked may have left some of these.
        self.profiler = Profiler::default();
        self.waiting.clear();
    }

    /// From here on burn's tuners, and CubeCL where it keeps the peaks that it measured, know this card by
    /// `name`. Every handle on the card has the same utilities, burn's fused operations too, which it
    /// keeps for as long as the process lives; so it is there that the name changes.
    fn rename(&mut self, name: &'static str) {
        // SAFETY: as with `Arc::get_mut_unchecked`, nobody else looks into the utilities meanwhile. This
        // runs on the card's thread, for a caller that waits (`SimulatedCard::restart`) while no
        // program runs on the card: its workbench holds the card's lock. A tensor of an earlier
        // program that is dropped on another thread now only sends its drop to this thread.
        unsafe { (*Arc::as_ptr(&self.utilities).cast_mut()).name = name };
        self.throughput_probes = ThroughputProbes::new(name, &self.utilities.properties);
    }

    fn enqueue(&mut self, stream: StreamId, call: Call) {
        self.waiting.push((stream, call));
        // The channel holds two batches: one that is made, and one that is filled meanwhile.
        if self.waiting.len() >= TOGETHER + self.lag {
            let calls = self.waiting.drain(..TOGETHER).collect();
            self.execute(calls);
            self.lag = next_lag(
                self.shared.spec.simulation.queue_lag,
                self.lag,
                &mut self.random,
            );
        }
    }

    /// Makes all the calls that wait. The program stands still meanwhile.
    fn drain_queue(&mut self) {
        let calls = std::mem::take(&mut self.waiting);
        self.execute(calls);
    }

    fn execute(&mut self, calls: Vec<(StreamId, Call)>) {
        let mut suspects = Suspects::All;
        let mut refusals = self.shared.budget.refusals();
        for (stream, call) in calls {
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
                    probe,
                } => {
                    suspects.add(ids(bindings.buffers()));
                    match probe {
                        // How often it is launched depends on the time of day, and is not to show.
                        Some(probe) => self.throughput_probes.answer(&probe, &bindings.info.data),
                        None => {
                            self.throughput_probes.passed_by();
                            if self.launch_now(kernel, &bindings, skipped, stream) {
                                suspects = Suspects::All;
                            }
                        }
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
            let refused = self.shared.budget.refusals();
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
            let buffer = recorder.allocated(stream, id, weak, Bytes(size), false);
            recorder.laid_out(buffer, self.notes.take(id));
        }
        self.profiler.allocated(&memory, Bytes(size));
        self.give(memory, size, stream);
    }

    /// Gives `memory` its bytes. The first time that the card cannot, it says so in the
    /// recording and has no limit from then on: the program reaches its next mark, where
    /// it is stopped, without a second failure that would only follow from the first.
    fn give(&mut self, memory: ManagedMemoryHandle, size: u64, stream: StreamId) {
        let Err(error) = self.memory.allocate(memory.clone(), size, stream) else {
            return;
        };
        if self.profiler.is_running() {
            // A candidate that does not fit is not a step that does not.
            self.profiler.refused();
            return;
        }
        let refusal = self.shared.spec.refusal(&error);
        let mut recorder = self.shared.recorder();
        if recorder.recording.failure.is_none() {
            let buffer = recorder
                .buffer(memory.descriptor().id.value)
                .expect("the allocation was recorded before it was tried");
            recorder.recording.failure = Some(Failure { buffer, refusal });
        }
        drop(recorder);
        self.shared.budget.open();
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
        let mut recorder = self.shared.recorder();
        recorder.launch(stream, kernel, metadata, &reads, &writes);
        if self.profiler.is_running() {
            self.profiler.launched(launch_time::of(products(kernel)));
        }
        drop(recorder);
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
    /// Not how these servers are made: the shim asks for them by device and service.
    fn init(device_id: DeviceId) -> Self {
        crate::registry::server(device_id, ServiceId::of::<Self>(device_id))
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
        self.enqueue(stream_id, Call::Write { memory });
    }

    fn sync(
        &mut self,
        _handles: Vec<BufferBinding>,
        stream_id: StreamId,
    ) -> DynFut<Result<(), ServerError>> {
        self.drain_queue();
        if self.shared.spec.runtime.rules().submits_on_sync() {
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
        self.drain_queue();
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
            probe: Probe::of(&*kernel),
            bindings,
            skipped: launch_mode.is_skipped(),
        };
        self.enqueue(stream_id, call);
    }

    fn flush(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.drain_queue();
        self.memory.flush(stream_id);
        self.shared.recorder().event(stream_id, Event::Flush);
        if let Some(next) = self.shared.next.get().cloned() {
            self.restart(next);
        }
        Ok(())
    }

    fn memory_report(&mut self, stream_id: StreamId) -> Option<StreamMemoryReport> {
        self.drain_queue();
        self.memory.report(stream_id)
    }

    fn stream_ids(&self) -> Vec<StreamId> {
        self.memory.streams()
    }

    fn memory_cleanup(&mut self, stream_id: StreamId) -> Result<(), ServerError> {
        self.drain_queue();
        self.shared.recorder().note_freed(&Suspects::All);
        self.memory.cleanup(stream_id);
        self.shared.recorder().event(stream_id, Event::Cleanup);
        Ok(())
    }

    fn start_profile(&mut self, _stream_id: StreamId) -> Result<ProfilingToken, ServerError> {
        self.drain_queue();
        self.shared.tuned.store(true, Ordering::Relaxed);
        if self.shared.spec.simulation.tuning == Tuning::Warm {
            // The program will be run again, and what a candidate needs is not to count then.
            self.shared.budget.open();
        }
        let token = self.profiler.start();
        self.shared.watched(self.profiler.open());
        Ok(token)
    }

    fn end_profile(
        &mut self,
        _stream_id: StreamId,
        token: ProfilingToken,
    ) -> Result<ProfileDuration, ProfileError> {
        self.drain_queue();
        let trial = self
            .profiler
            .stop(token, self.shared.spec.simulation.preference)?;
        self.shared.watched(self.profiler.open());
        let shared = self.shared.clone();
        // The tuner asks for the time only of what counts, and not of a first run to warm up.
        Ok(ProfileDuration::new_device_time(async move {
            shared.tried(trial);
            let start = Instant::now();
            ProfileTicks::from_start_end(start, start + trial.time)
        }))
    }

    fn abandon_profile(&mut self, _stream_id: StreamId, token: ProfilingToken) {
        self.drain_queue();
        self.profiler.abandon(token);
        self.shared.watched(self.profiler.open());
    }

    fn allocation_mode(&mut self, mode: MemoryAllocationMode, stream_id: StreamId) {
        self.enqueue(stream_id, Call::Mode(mode));
    }
}
