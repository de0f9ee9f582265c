//! A stand-in for CubeCL's ROCm runtime under a program that knows nothing of it: its first
//! device is the card that the environment describes.
//!
//! `cargo fit-check` builds a user's program with this crate in the place of `cubecl-hip`. What
//! stands between burn and a card is `estimator/hip-shim`, the very source; what is here installs
//! the card, watches what happens on it, and ends the program when enough was seen.

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

    /// Under the bare index, as CubeCL's own runtimes have it: the card gets a thread beside that
    /// of burn's fusion. On one thread the card could not be made by the first call that fusion
    /// makes, and nobody makes one earlier.
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
