//! Cards that do not exist.

mod cuda;
mod memory;
mod properties;
mod registry;
mod server;
mod spec;
mod storage;
mod wgpu;

use std::sync::Arc;

use burn::backend::{DispatchDevice, Rocm, set_default_dtypes};
use burn::tensor::{BoolDType, Device, DeviceConfig, DeviceError, FloatDType, IntDType};
use cubecl_common::device_handle::DeviceHandle;
use cubecl_hip::{AmdDevice, HipRuntime, SlotServer};
use cubecl_server::runtime::Runtime as _;

use crate::Error;
use crate::record::Recording;
pub(crate) use memory::CardMemory;
pub(crate) use server::{Shared, memory};
pub use spec::{CardSpec, Runtime};
pub(crate) use storage::Ledger;

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
    pub fn new(spec: CardSpec) -> Result<Self, Error> {
        let shared = Shared::new(spec);
        let index = registry::insert(shared.clone()).ok_or(Error::TooManyCards)?;
        Ok(Self { index, shared })
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
        // `burn-backend` 0.22.1, `src/lib.rs`. WGSL has no bytes, so a bool takes a word.
        let bool_type = match self.shared.spec.runtime {
            Runtime::Wgpu => BoolDType::U32,
            Runtime::Cuda | Runtime::Vulkan => BoolDType::U8,
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

    /// Runs `task` on the card's own thread, where each call into the card is made in program
    /// order: what `task` does to the card's memory is the same in every run.
    ///
    /// # Errors
    ///
    /// [`Error::Panicked`] with the message, if `task` panics.
    pub fn run<R: Send + 'static>(&self, task: impl FnOnce() -> R + Send) -> Result<R, Error> {
        let client = HipRuntime::client(&AmdDevice::new(self.index as usize));
        let outcome = client.exclusive(|| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(task)).map_err(|panic| {
                let message = panic.downcast_ref::<&str>().map(|text| text.to_string());
                message
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "no message".into())
            })
        });
        match outcome {
            Ok(result) => result.map_err(Error::Panicked),
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

impl Drop for SimulatedCard {
    fn drop(&mut self) {
        // Its thread ends, and with it the server.
        DeviceHandle::<SlotServer>::shutdown(cubecl_hip::device_id(self.index));
        registry::remove(self.index);
    }
}
