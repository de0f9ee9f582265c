//! Whether burn overwrites operands in place.

use serde::{Deserialize, Serialize};

/// Whether burn overwrites an operand that nothing else uses, or gives the result a buffer of its own.
///
/// burn asks CubeCL, which counts the handles of the operand (`ManagedMemoryHandle::can_mut` in
/// `cubecl-runtime` 0.11.3, `src/memory_management/handle.rs`). While the device's thread makes the
/// allocation of that operand it holds one handle more (`initialize_memory` in `cubecl-cuda` 0.11.3,
/// `src/compute/server.rs`). If burn asks at that moment, it is told no. On a real card this happens now and
/// then, so a real step makes some of the calls of [`WhenPossible`](Self::WhenPossible), and some of
/// [`Never`](Self::Never).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InPlace {
    /// burn overwrites every operand that nothing else uses: the device's thread is never asked at the wrong
    /// moment.
    #[default]
    WhenPossible,
    /// burn overwrites no operand.
    Never,
}
