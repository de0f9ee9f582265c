//! A stand-in for CubeCL's ROCm runtime in a program that does not know fit-check. Its first device is the
//! card that the environment describes.
//!
//! `cargo fit-check` builds a user's program with this crate in place of `cubecl-hip`. The code between burn
//! and a card is the source of `estimator/hip-shim`. The code here installs the card, watches its recording,
//! and ends the program when it has seen enough steps.

#[path = "../../../estimator/hip-shim/src/lib.rs"]
mod shim;

mod program;

use cubecl_common::device::DeviceId;
use cubecl_ir::TargetProperties;
use cubecl_server::client::Client;
use cubecl_server::runtime::Runtime;
use cubecl_zspace::{Shape, Strides};

pub use shim::*;

/// The runtime that burn takes for ROCm, with the card that the environment describes.
#[derive(Debug, Clone)]
pub struct HipRuntime;

impl Runtime for HipRuntime {
    type Server = ShimServer;
    type Device = AmdDevice;

    /// Loads the client under the bare index, as CubeCL's own runtimes do, so that the card gets a thread
    /// besides that of burn's fusion. On one common thread, the first call of fusion could not create the
    /// card, and nothing calls it earlier.
    fn client(device: &Self::Device) -> Client {
        program::begin();
        Client::load::<ShimServer>(DeviceId::new(0, device.index as u16))
    }

    fn can_read_tensor(shape: &Shape, strides: &Strides) -> bool {
        shim::HipRuntime::can_read_tensor(shape, strides)
    }

    fn target_properties() -> TargetProperties {
        shim::HipRuntime::target_properties()
    }

    fn enumerate_devices(type_id: u16) -> Vec<DeviceId> {
        program::begin();
        shim::HipRuntime::enumerate_devices(type_id)
    }
}
