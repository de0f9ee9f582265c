//! The card of the current thread. CubeCL and burn ask a runtime some questions without naming a device; the
//! card of the thread that asks answers them.

use std::cell::RefCell;
use std::sync::Arc;

use cubecl_zspace::{Shape, Strides};

use crate::card_state::CardState;
use crate::runtime::Runtime;

thread_local! {
    /// The card whose thread this is.
    static CARD: RefCell<Option<Arc<CardState>>> = const { RefCell::new(None) };
}

/// Makes `card` the card of this thread.
pub fn set_current_card(card: Arc<CardState>) {
    CARD.set(Some(card));
}

/// Calls `task` with the card of this thread, if the thread has one.
pub(crate) fn with_current_card<R>(task: impl FnOnce(&CardState) -> R) -> Option<R> {
    CARD.with_borrow(|card| card.as_deref().map(task))
}

/// Whether kernels read a tensor with this shape and these strides without a copy, under the runtime of this
/// thread's card, or under CUDA if the thread has no card.
pub fn can_read_on_current(shape: &Shape, strides: &Strides) -> bool {
    let runtime = with_current_card(|card| card.spec.runtime).unwrap_or(Runtime::Cuda);
    runtime.rules().can_read(shape, strides)
}
