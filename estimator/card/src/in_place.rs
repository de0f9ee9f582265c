//! Whether burn overwrites operands in place.

use cubecl_server::memory_management::ManagedMemoryHandle;
use serde::{Deserialize, Serialize};

use crate::random;

/// Whether burn overwrites an operand that nothing else uses, or gives the result a buffer of its own.
///
/// burn asks CubeCL, which counts the handles of the operand (`ManagedMemoryHandle::can_mut` in
/// `cubecl-runtime` 0.11.3, `src/memory_management/handle.rs`). While the device's thread makes the
/// allocation of that operand it holds one handle more (`initialize_memory` in `cubecl-cuda` 0.11.3,
/// `src/compute/server.rs`). If burn asks at that moment, it is told no. On a real card this happens now and
/// then, so a few launches of a real step are not those of [`WhenPossible`](Self::WhenPossible).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InPlace {
    /// burn overwrites every operand that nothing else uses: the device's thread is never asked at the wrong
    /// moment.
    #[default]
    WhenPossible,
    /// burn overwrites no operand.
    Never,
    /// burn overwrites half of the operands, and so sometimes the second where it would overwrite the first. The
    /// number is the seed of the choice.
    Half(u64),
    /// burn overwrites all operands but one in a hundred. The number is the seed of the choice. In a log of CUDA's own
    /// runtime on a machine with little else to do it was one launch in 13,000; on a busy machine it is more.
    Most(u64),
}

/// Of so many operands [`InPlace::Most`] leaves one.
const ONE_IN: usize = 100;

impl InPlace {
    /// What to try besides [`WhenPossible`](Self::WhenPossible). No run shows all that is possible.
    pub const SAMPLES: [Self; 5] = [
        Self::Never,
        Self::Half(1),
        Self::Half(2),
        Self::Half(3),
        Self::Half(4),
    ];
}

/// The buffers that burn is not to overwrite.
#[derive(Debug)]
pub(crate) struct NotOverwritten {
    in_place: InPlace,
    random: u64,
    /// A handle of each, as long as the program holds it.
    held: Vec<ManagedMemoryHandle>,
}

impl NotOverwritten {
    pub fn new(in_place: InPlace) -> Self {
        let random = match in_place {
            InPlace::Half(seed) | InPlace::Most(seed) => seed,
            InPlace::WhenPossible | InPlace::Never => 0,
        };
        Self {
            in_place,
            random,
            held: Vec::new(),
        }
    }

    /// Notes the allocation of `memory`.
    pub fn allocated(&mut self, memory: &ManagedMemoryHandle) {
        let overwritten = match self.in_place {
            InPlace::WhenPossible => true,
            InPlace::Never => false,
            InPlace::Half(_) => random::next(&mut self.random) & 1 == 0,
            InPlace::Most(_) => !random::next(&mut self.random).is_multiple_of(ONE_IN),
        };
        if !overwritten {
            self.held.push(memory.clone());
        }
    }

    /// Drops the handles of buffers that the program no longer holds, so that their pools see them as free.
    pub fn drop_unused(&mut self) {
        self.held.retain(|memory| !memory.can_mut());
    }
}
