//! How long a kernel takes on a card that runs none. burn's tuner keeps the candidate that took the
//! least, so this decides which kernels a step is made of.
//!
//! This file is compiled twice: into the simulated card, and into the CUDA driver that counts
//! (`estimator/counting-driver`), so that burn's real tuner, on that driver, makes the choices that
//! it makes on a simulated card. So it depends on what both see of a launch, and on std alone: a
//! driver is told a kernel's name, its code and its arguments, and not the sizes of its buffers.
//!
//! 1. A kernel that multiplies matrices without the card's matrix units is behind any number of
//!    kernels that do it with them: matrix products and convolutions are bound by arithmetic, and
//!    matrix units have several times the rate of the others on every card that has them.
//! 2. Every other launch takes the same time. A candidate with fewer launches reads and writes
//!    memory fewer times, and that is what bounds everything else. Where the number is the same,
//!    burn's tuner keeps the candidate that it offers first.
//!
//! What is left out (how well a kernel uses its units, what a cache holds) decides on real cards
//! between candidates that mostly need the same memory.

use std::time::Duration;

/// How a kernel multiplies matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Products {
    /// It does not.
    None,
    /// With the card's matrix units.
    MatrixUnits,
    /// Without them.
    Scalar,
}

/// The time of a launch: three days. The tuner ends its search early where a candidate comes near
/// the card's peak, and on a card that runs nothing the probes of that peak mean nothing: with
/// [`PROBE`] they find at least some 10^8 operations a second. No candidate has the 10^13 and more
/// operations that would make three days look good, so each is tried.
pub(crate) const LAUNCH: Duration = Duration::from_millis(1 << 28);

/// The time of a launch that multiplies without matrix units: that of 256 others. Both are powers of
/// two in milliseconds, so that CUDA's 32-bit floats hold their sums exactly.
const SCALAR: Duration = Duration::from_millis(1 << 36);

/// The time of a launch of one of CubeCL's probes of a card's throughput. They launch with more and
/// more work until a launch takes 20 ms (`TARGET_DURATION` of `cubecl-runtime` 0.11.3,
/// `src/throughput/benchmarker.rs`), so with this they are content with the least.
#[allow(
    dead_code,
    reason = "a simulated card answers the probes without a launch"
)]
pub(crate) const PROBE: Duration = Duration::from_millis(20);

/// The time of a launch of a kernel that multiplies like this.
pub(crate) fn of(products: Products) -> Duration {
    match products {
        Products::None | Products::MatrixUnits => LAUNCH,
        Products::Scalar => SCALAR,
    }
}

/// The names of the functions of kernels that multiply matrices or convolve by doing so, without
/// underscores and capitals: `cubek-matmul` and `cubek-convolution` 0.3.1 and `burn-cubecl` 0.22.1. A
/// function's name begins that of the kernel in the compiled module, and is in the name of its type.
const PRODUCTS: [&str; 5] = [
    "matmul",
    "gemv",
    "gemm",
    "directconv2d",
    "convtranspose2ddirect",
];

/// Whether the kernel with this function multiplies matrices. `function` is its name, or begins with
/// it.
pub(crate) fn multiplies(function: &str) -> bool {
    let plain: String = function
        .chars()
        .filter(|character| *character != '_')
        .map(|character| character.to_ascii_lowercase())
        .collect();
    PRODUCTS.iter().any(|name| plain.contains(name))
}

/// Whether the kernel with this function is one of CubeCL's probes of a card's throughput
/// (`cubecl-std` 0.11.3, `src/throughput/runners`).
#[allow(dead_code, reason = "a simulated card knows them by their module")]
pub(crate) fn is_probe(function: &str) -> bool {
    function.contains("_throughput") || function.starts_with("launch_overhead")
}
