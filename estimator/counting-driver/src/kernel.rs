//! What the driver knows about a kernel, from its name and its code.

use std::time::Duration;

use crate::launch_time::{self, Products};

/// A loaded kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// How long a launch takes on its stream's clock.
    pub time: Duration,
    /// Whether CubeCL probes the card's throughput with it.
    pub is_probe: bool,
}

impl Kernel {
    /// The kernel `name` of a module whose code is `ptx`.
    pub fn new(name: &str, ptx: &str) -> Self {
        let is_probe = launch_time::is_probe(name);
        let time = match is_probe {
            true => launch_time::PROBE,
            false => launch_time::of(products(name, ptx)),
        };
        Self { time, is_probe }
    }
}

/// How the kernel `name` multiplies matrices. Instructions that use matrix units have `mma` in their
/// names (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions": `wmma.mma`, `mma.sync`,
/// `wgmma.mma_async`; `tcgen05.mma`).
fn products(name: &str, ptx: &str) -> Products {
    match launch_time::multiplies(name) {
        false => Products::None,
        true if ptx.contains("mma.") => Products::MatrixUnits,
        true => Products::Scalar,
    }
}
