//! How long a kernel takes on a card that runs none. burn's tuner keeps the fastest candidate, so this rule
//! decides which kernels a step consists of.
//!
//! This file is compiled twice: into the simulated card, and into the counting CUDA driver
//! (`estimator/counting-driver`), so that burn's real tuner makes the same choices on that driver as on a
//! simulated card. So it depends only on what both see of a launch, and on std alone: a driver knows a
//! kernel's name, its code and its arguments, but not the sizes of its buffers.
//!
//! 1. A launch that multiplies matrices without the card's matrix units takes as long as 256 launches that
//!    use them: matrix products and convolutions are bound by arithmetic, and on every card with matrix units
//!    these have several times the rate of the other units.
//! 2. Every other launch takes the same time. A candidate with fewer launches reads and writes memory fewer
//!    times, which is what bounds all other kernels. If the number of launches is equal, burn's tuner keeps
//!    the candidate that it offers first.
//!
//! The rule leaves out how well a kernel uses its units and what a cache holds. On real cards these decide
//! between candidates that mostly need the same memory.

use std::time::Duration;

/// How a kernel multiplies matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Products {
    /// It multiplies no matrices.
    None,
    /// It multiplies with the card's matrix units.
    MatrixUnits,
    /// It multiplies without matrix units.
    Scalar,
}

/// The time of a launch: three days. The tuner ends its search early if a candidate comes near the card's
/// peak throughput. On a card that runs nothing the probes of that peak mean nothing: with [`PROBE`] they
/// measure at least some 10^8 operations a second. No candidate has the 10^13 or more operations that would
/// come near that peak in three days, so the tuner tries each.
pub(crate) const LAUNCH: Duration = Duration::from_millis(1 << 28);

/// The time of a launch that multiplies without matrix units: 256 times [`LAUNCH`]. Both are powers of two in
/// milliseconds, so CUDA's 32-bit floats hold their sums exactly.
const SCALAR: Duration = Duration::from_millis(1 << 36);

/// The time of a launch of one of CubeCL's probes of a card's throughput. CubeCL increases the work of a
/// probe until a launch takes 20 ms (`TARGET_DURATION` of `cubecl-runtime` 0.11.3,
/// `src/throughput/benchmarker.rs`), so with this time it keeps the least work.
#[allow(
    dead_code,
    reason = "a simulated card answers the probes without a launch"
)]
pub(crate) const PROBE: Duration = Duration::from_millis(20);

/// The time of a launch of a kernel that multiplies matrices like this.
pub(crate) fn of(products: Products) -> Duration {
    match products {
        Products::None | Products::MatrixUnits => LAUNCH,
        Products::Scalar => SCALAR,
    }
}

/// Functions whose kernels multiply matrices, or convolve by doing so, in lower case and without underscores:
/// `cubek-matmul` and `cubek-convolution` 0.3.1 and `burn-cubecl` 0.22.1. A kernel's name in the compiled
/// module begins with its function's name, and its type name contains it.
const PRODUCTS: [&str; 5] = [
    "matmul",
    "gemv",
    "gemm",
    "directconv2d",
    "convtranspose2ddirect",
];

/// Whether a kernel multiplies matrices. `function` is the name of its function, or begins with it.
pub(crate) fn multiplies(function: &str) -> bool {
    let plain: String = function
        .chars()
        .filter(|character| *character != '_')
        .map(|character| character.to_ascii_lowercase())
        .collect();
    PRODUCTS.iter().any(|name| plain.contains(name))
}

/// Whether a kernel is one of CubeCL's probes of a card's throughput (`cubecl-std` 0.11.3,
/// `src/throughput/runners`). `function` is the name of its function, or begins with it.
#[allow(dead_code, reason = "a simulated card knows them by their module")]
pub(crate) fn is_probe(function: &str) -> bool {
    function.contains("_throughput") || function.starts_with("launch_overhead")
}
