//! Cards that do not exist, under burn.

use std::sync::{Arc, Mutex, Once, PoisonError};

use burn::BurnConfig;
use burn::backend::{DispatchDevice, Rocm, set_default_dtypes};
use burn::tensor::{BoolDType, Device, DeviceConfig, DeviceError, FloatDType, IntDType};
use cubecl_common::device::ServiceId;
use cubecl_common::device_handle::DeviceHandle;
use cubecl_environment::config::logger::LogCrateLevel;
use cubecl_hip::{AmdDevice, Cards, HipRuntime, ShimServer};
use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl_server::runtime::Runtime as _;
use simulated_card::set_current_card;
pub(crate) use simulated_card::{CardMemory, MemoryBudget, Shared, memory};
pub use simulated_card::{CardSpec, DeviceSpec, KernelGroup, QueueLag, Runtime, Simulation};

use crate::Error;
use crate::record::Recording;

/// A card that does not exist: burn trains on its [`device`](Self::device) as on any other,
/// and it remembers what was done to its memory.
#[derive(Debug)]
pub struct SimulatedCard {
    index: u16,
    shared: Arc<Shared>,
}

impl SimulatedCard {
    /// A new card. Any number can be used at once; none sees another.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyCards`] after 65,535 cards in one process.
    pub fn new(spec: DeviceSpec) -> Result<Self, Error> {
        let shared = Shared::new(spec);
        install();
        let index = simulated_card::insert(shared.clone()).ok_or(Error::TooManyCards)?;
        let card = Self { index, shared };
        card.configure_burn()?;
        Ok(card)
    }

    /// Settles burn's configuration for this card, of which no `burn.toml` and no variable is part.
    fn configure_burn(&self) -> Result<(), Error> {
        // A thread takes the configuration when it first asks for it, and keeps it; a card is asked on a
        // thread of its own.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let burn = match self.shared.spec.simulation.fused {
            true => BurnConfig::default(),
            // Its fields are private; this is the form of `burn.toml`, as JSON.
            false => {
                serde_json::from_str(r#"{"fusion": {"beam_search": {"max_explorations": 0}}}"#)
                    .expect("burn knows this field")
            }
        };
        *BurnConfig::storage().lock() = Some(Arc::new(burn));
        self.run(|| drop(burn::runtime_config()))
    }

    /// The device under which burn knows this card.
    pub fn device(&self) -> Device {
        Device::rocm(self.index as usize)
    }

    /// The device, with `float` as the type of the floats that are created on it.
    ///
    /// # Errors
    ///
    /// [`Error::Precision`]: the card does not offer it, or the device was used before.
    pub fn configured(&self, float: FloatDType) -> Result<Device, Error> {
        // burn's defaults for the devices of these runtimes: `defaults` of `CubeDevice` in
        // `burn-backend` 0.22.1, `src/lib.rs`.
        let bool_type = match self.shared.spec.runtime.rules().bool_bytes() {
            1 => BoolDType::U8,
            _ => BoolDType::U32,
        };
        let refused = |error: DeviceError| Error::Precision(error.to_string());
        let mut device = self.device();
        // What autodiff and the backend make of their own accord has the defaults of the
        // device below, which a program's own choice of `float` leaves alone.
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

    /// Switches the card off and on: from here on it is like `spec`, which has the same kernels,
    /// and its memory is empty. What burn found out that can be fused stays known, and what its tuner
    /// found out about the card when it had this `name`, one of any number.
    pub(crate) fn restart(&mut self, spec: DeviceSpec, name: usize) {
        // What fusion still holds back of the last program is done before.
        let _ = self.device().sync();
        let next = Shared::named(spec, name);
        self.shared.becomes(next.clone());
        let _ = HipRuntime::client(&AmdDevice::new(self.index as usize)).flush();
        self.shared = next;
    }

    /// Runs `task` on the card's own thread, where each call into the card is made in program
    /// order: what `task` does to the card's memory is the same in every run.
    ///
    /// # Errors
    ///
    /// `task` panics: [`Error::NoKernel`] if for want of a kernel, else [`Error::Panicked`] with
    /// the message.
    pub fn run<R: Send + 'static>(&self, task: impl FnOnce() -> R + Send) -> Result<R, Error> {
        let client = HipRuntime::client(&AmdDevice::new(self.index as usize));
        let outcome = client.exclusive(|| {
            set_current_card(self.shared.clone());
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(task)).map_err(|panic| {
                let message = panic.downcast_ref::<&str>().map(|text| text.to_string());
                message
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "no message".into())
            })
        });
        match outcome {
            Ok(result) => result.map_err(Error::of_panic),
            Err(error) => Err(Error::Panicked(error.to_string())),
        }
    }

    /// What was done to the card so far; it starts anew from here.
    pub(crate) fn take_recording(&self) -> Recording {
        std::mem::take(&mut self.shared.recorder().recording)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// The service of any card, for calls into CubeCL that want one where it does not matter which.
pub(crate) fn any_service() -> ServiceId {
    ServiceId::of::<ShimServer>(cubecl_hip::device_id(0))
}

/// Puts simulated cards behind the shim, once.
fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        configure_cubecl(Trials::AsBurn);
        cubecl_hip::install(Cards {
            serve: simulated_card::serve,
            present: simulated_card::present,
            reads: simulated_card::can_read_on_current,
        });
    });
}

/// How often burn's tuner tries a candidate, which takes the same time whenever it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trials {
    /// Often enough to choose.
    Once,
    /// As often as on a real card where all times are the same. It counts where the memory of such a run
    /// does: what a candidate was launched with stays on the card, unless the pools were tidied up since, as
    /// they are when another candidate has a peak probed.
    AsBurn,
}

/// Settles CubeCL's configuration, of which neither `cubecl.toml` nor a variable is part.
pub(crate) fn configure_cubecl(trials: Trials) {
    let mut config = CubeClRuntimeConfig::default();
    // See `crate::listen`.
    config.autotune.logger.log = Some(LogCrateLevel::Info);
    let samples = match trials {
        Trials::Once => 1,
        Trials::AsBurn => config.autotune.bench.min_samples,
    };
    config.autotune.bench.min_samples = samples;
    config.autotune.bench.max_samples = samples;
    *CubeClRuntimeConfig::storage().lock() = Some(Arc::new(config));
}

impl Drop for SimulatedCard {
    fn drop(&mut self) {
        if cfg!(any(feature = "fusion", feature = "autotune")) {
            // burn's fusion and its tuners keep what they know of a card for as long as the
            // process lives, and in it a hold on the card's thread, for whose end CubeCL would
            // wait 30 seconds. So that thread stays, asleep, and only the card's memory goes.
            self.restart(self.shared.spec.clone(), 0);
        } else {
            // Its thread ends, and with it the server.
            DeviceHandle::<ShimServer>::shutdown(cubecl_hip::device_id(self.index));
        }
        simulated_card::remove(self.index);
    }
}
