//! Whether burn overwrites operands in place.

use cubecl_server::memory_management::ManagedMemoryHandle;
use serde::{Deserialize, Serialize};

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
}

/// The buffers that burn is not to overwrite now.
#[derive(Debug)]
pub(crate) struct NotOverwritten {
    in_place: InPlace,
    /// A handle of each, which the device's thread may be allocating.
    held: Vec<ManagedMemoryHandle>,
}

impl NotOverwritten {
    pub fn new(in_place: InPlace) -> Self {
        Self {
            in_place,
            held: Vec::new(),
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
        if self.in_place == InPlace::WhenPossible || waits {
            return;
        }
        for memory in memory {
            let held = memory.clone();
            // What only the call and this handle hold, the program has dropped: it is free after its last call.
            let is_dropped = held.can_mut();
            if !is_dropped {
                self.held.push(held);
            }
        }
    }
}
