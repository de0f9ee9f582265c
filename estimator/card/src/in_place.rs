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
///
/// Few operands can meet that moment. The thread executes one batch of 32 calls while the program fills the next
/// (`execute_tasks` of `cubecl-common` 0.11.3, `src/device/handle/channel.rs`). So it can only be an operand that was
/// allocated in the batch before the one in which burn asks, and only if the program did not wait for that batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InPlace {
    /// burn overwrites every operand that nothing else uses: the device's thread is never asked at the wrong
    /// moment.
    #[default]
    WhenPossible,
    /// burn overwrites no operand that the device's thread may be allocating.
    Never,
    /// burn overwrites half of those operands, and so sometimes the second where it would overwrite the first. The
    /// number is the seed of the choice.
    Half(u64),
    /// burn overwrites all of those operands but one in a hundred. The number is the seed of the choice. In a log of CUDA's own
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

/// The buffers that burn is not to overwrite now.
#[derive(Debug)]
pub(crate) struct NotOverwritten {
    in_place: InPlace,
    random: u64,
    /// A handle of each, which the device's thread may be allocating.
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

    /// Whether burn is not to overwrite the buffer that is allocated next, while the device's thread allocates it.
    fn spares_next(&mut self) -> bool {
        match self.in_place {
            InPlace::WhenPossible => false,
            InPlace::Never => true,
            InPlace::Half(_) => random::next(&mut self.random) & 1 == 1,
            InPlace::Most(_) => random::next(&mut self.random).is_multiple_of(ONE_IN),
        }
    }

    /// The program has handed over a batch of calls that allocate `memory`, and the device's thread has executed those
    /// before. The program goes on, or `waits` for this batch too.
    pub fn handed_over<'a>(
        &mut self,
        memory: impl Iterator<Item = &'a ManagedMemoryHandle>,
        waits: bool,
    ) {
        self.held.clear();
        for memory in memory {
            if self.spares_next() && !waits {
                let held = memory.clone();
                // What only the call and this handle hold, the program has dropped: it is free after its last call.
                let is_dropped = held.can_mut();
                if !is_dropped {
                    self.held.push(held);
                }
            }
        }
    }
}
