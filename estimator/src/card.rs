//! Simulated cards under burn.

use std::sync::{Arc, Mutex, Once, PoisonError};

use burn::BurnConfig;
use burn::backend::{DispatchDevice, Rocm, set_default_dtypes};
use burn::tensor::{BoolDType, Device, DeviceConfig, DeviceError, FloatDType, IntDType};
use cubecl_common::device::ServiceId;
use cubecl_common::device_handle::DeviceHandle;
use cubecl_environment::config::logger::LogCrateLevel;
use cubecl_environment::environment;
use cubecl_hip::{AmdDevice, Cards, HipRuntime, ShimServer};
use cubecl_server::config::autotune::AutotuneLogLevel;
use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl_server::runtime::Runtime as _;
use recording::Recording;
use serde_json::json;
use simulated_card::set_current_card;
pub(crate) use simulated_card::{
    CardMemory, CardState, MemoryBudget, MetadataBuffer, TunerCalls, cubecl_mode, memory,
};
pub use simulated_card::{
    CardSpec, DeviceSpec, InPlace, KernelGroup, Refusals, Runtime, Simulation,
};

use crate::error::{Error, panic_message};

/// A simulated card: burn trains on its [`device`](Self::device) as on any other, and the card records what
/// happens to its memory.
///
/// Drop its tensors and modules before the card. In a build without fusion and without autotune, dropping a card ends
/// its thread, and CubeCL waits up to 30 seconds for that end (`SHUTDOWN_JOIN_TIMEOUT` of `cubecl-common` 0.11.3,
/// `src/device/handle/channel.rs`), in vain as long as a tensor of the card is there.
#[derive(Debug)]
pub struct SimulatedCard {
    index: u16,
    shared: Arc<CardState>,
}

impl SimulatedCard {
    /// A new card. A process can use any number of cards at once, independently of each other.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyCards`] after 65,535 cards in one process.
    pub fn new(spec: DeviceSpec) -> Result<Self, Error> {
        let shared = CardState::new(spec);
        install();
        let index = simulated_card::insert(shared.clone()).ok_or(Error::TooManyCards)?;
        let card = Self { index, shared };
        card.configure_burn()?;
        Ok(card)
    }

    /// Sets burn's configuration for this card, regardless of any `burn.toml` and any environment variable.
    fn configure_burn(&self) -> Result<(), Error> {
        // A thread reads the configuration once, when it first needs it; each card has a thread of its own.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        configure_burn(self.shared.spec.simulation.fused);
        self.run(|| drop(burn::runtime_config()))
    }

    /// The burn device of this card.
    pub fn device(&self) -> Device {
        Device::rocm(self.index as usize)
    }

    /// The device, with `float` as the type of the floats that are created on it.
    ///
    /// # Errors
    ///
    /// [`Error::Precision`]: the card does not offer the type, or the device was used before.
    pub fn configured(&self, float: FloatDType) -> Result<Device, Error> {
        // burn's defaults for the devices of these runtimes: `defaults` of `CubeDevice` in
        // `burn-backend` 0.22.1, `src/lib.rs`.
        let bool_type = match self.shared.spec.runtime.rules().bool_bytes() {
            1 => BoolDType::U8,
            _ => BoolDType::U32,
        };
        let refused = |error: DeviceError| Error::Precision(error.to_string());
        let mut device = self.device();
        // Tensors that autodiff and the backend create on their own get the default types of the inner
        // device, which a program's choice of `float` does not change.
        if let DispatchDevice::Cube(below) = device.as_dispatch() {
            set_default_dtypes::<Rocm>(below, FloatDType::F32, IntDType::I32, bool_type)
                .map_err(refused)?;
        }
        let types = DeviceConfig::default()
            .float_dtype(float)
            .bool_dtype(bool_type);
        device.configure(types).map_err(refused)?;
        Ok(device)
    }

    /// Restarts the card as one like `spec`, with empty memory. burn still knows what it can fuse, so this must be the same on
    /// both ([`KernelGroup::of_any_generation`]). Its tuner knows what it learned about the card under the runtime name at
    /// index `name`, which must be another for other kernels.
    pub(crate) fn restart(&mut self, spec: DeviceSpec, name: usize, tuner_calls: TunerCalls) {
        // First execute what fusion still holds back of the last program.
        let _ = self.device().sync();
        let next = CardState::named(spec, name, tuner_calls);
        self.shared.becomes(next.clone());
        let _ = HipRuntime::client(&AmdDevice::new(self.index as usize)).flush();
        self.shared = next;
    }

    /// Runs `task` on the card's own thread, where CubeCL executes each call in program order: `task` does
    /// the same to the card's memory in every run.
    ///
    /// # Errors
    ///
    /// `task` panics: [`Error::NoKernel`] if burn has no kernel for it, else [`Error::Panicked`] with the
    /// message.
    pub fn run<R: Send + 'static>(&self, task: impl FnOnce() -> R + Send) -> Result<R, Error> {
        let client = HipRuntime::client(&AmdDevice::new(self.index as usize));
        let outcome = client.exclusive(|| {
            set_current_card(self.shared.clone());
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(task))
                .map_err(|panic| panic_message(&*panic).unwrap_or("no message").to_string())
        });
        match outcome {
            Ok(result) => result.map_err(Error::of_panic),
            Err(error) => Err(Error::Panicked(error.to_string())),
        }
    }

    /// Takes the recording so far; the card begins a new one.
    pub(crate) fn take_recording(&self) -> Recording {
        let mut recording = std::mem::take(&mut *self.shared.recorder()).recording;
        recording.shrink_to_fit();
        recording
    }

    pub(crate) fn shared(&self) -> &Arc<CardState> {
        &self.shared
    }
}

/// Sets burn's configuration for the threads that have not read it yet, regardless of any `burn.toml` and any
/// environment variable: its defaults, with or without fusion, and a log of each search for what it can fuse.
pub fn configure_burn(fused: bool) {
    let max_explorations = match fused {
        true => None,
        false => Some(0),
    };
    // The fields of `BurnConfig` are private; this is the content of a `burn.toml`.
    let content = json!({
        "fusion": {
            "beam_search": {"max_explorations": max_explorations},
            "logger": {"level": "basic", "log": "info"},
        },
    });
    let burn = serde_json::from_value::<BurnConfig>(content).expect("burn knows these fields");
    *BurnConfig::storage().lock() = Some(Arc::new(burn));
}

/// The service of some card, for calls into CubeCL where any service will do.
pub(crate) fn any_service() -> ServiceId {
    ServiceId::of::<ShimServer>(cubecl_hip::device_id(0))
}

/// Puts simulated cards behind the shim, once.
fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        keep_cubecl_in_memory();
        configure_cubecl(Trials::AsBurn);
        cubecl_hip::install(Cards {
            serve: simulated_card::serve,
            present: simulated_card::present,
            reads: simulated_card::can_read_on_current,
        });
    });
}

/// How often burn's tuner tries a candidate. The simulated time is the same in each trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trials {
    /// Once, which is enough to choose.
    Once,
    /// As often as on a real card with equal times in all trials. The number matters if the memory of the run
    /// does: buffers of a candidate's launch stay on the card until CubeCL cleans up the pools, as it does
    /// when another candidate needs a throughput probe.
    AsBurn,
}

/// Keeps what CubeCL learns about cards in memory. With burn's feature `persistence` CubeCL otherwise reads and
/// writes a database of the user's, where answers about simulated cards must not mix with those about real ones.
fn keep_cubecl_in_memory() {
    // No folder can be created below a file, so CubeCL finds no database and uses memory.
    if let Ok(file) = std::env::current_exe() {
        environment::set_root(file);
    }
}

/// Sets CubeCL's configuration, regardless of any `cubecl.toml` and any environment variable.
pub(crate) fn configure_cubecl(trials: Trials) {
    let mut config = CubeClRuntimeConfig::default();
    config.autotune.disable_cache = true;
    // `crate::listen` reads this log.
    config.autotune.logger.log = Some(LogCrateLevel::Info);
    let samples = match trials {
        Trials::Once => 1,
        Trials::AsBurn => config.autotune.bench.min_samples,
    };
    config.autotune.bench.min_samples = samples;
    config.autotune.bench.max_samples = samples;
    *CubeClRuntimeConfig::storage().lock() = Some(Arc::new(config));
}

/// Has CubeCL log the decisions of its tuner, besides what the user's `cubecl.toml` says, and listens to them:
/// [`choices_made`](crate::choices_made) counts them on real devices. Call this before the first use of a device.
pub fn listen_on_devices() {
    let mut config = CubeClRuntimeConfig::from_current_dir();
    let logger = &mut config.autotune.logger;
    logger.log.get_or_insert(LogCrateLevel::Info);
    if matches!(logger.level, AutotuneLogLevel::Disabled) {
        logger.level = AutotuneLogLevel::Minimal;
    }
    CubeClRuntimeConfig::try_set(config);
    crate::listen();
}

impl Drop for SimulatedCard {
    fn drop(&mut self) {
        if cfg!(any(feature = "fusion", feature = "autotune")) {
            // burn's fusion and its tuners keep their knowledge of a card for the life of the process, and
            // with it a handle on the card's thread; CubeCL would wait 30 seconds for the end of that thread.
            // So the thread stays, asleep, and only the card's memory goes.
            self.restart(self.shared.spec.clone(), 0, TunerCalls::OnCard);
        } else {
            // The card's thread ends, and with it the server.
            DeviceHandle::<ShimServer>::shutdown(cubecl_hip::device_id(self.index));
        }
        simulated_card::remove(self.index);
    }
}
