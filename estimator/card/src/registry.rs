//! The cards of this process, by the index under which burn knows them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::card_state::CardState;

#[derive(Default)]
struct Registry {
    cards: BTreeMap<u16, Arc<CardState>>,
    next: u16,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    cards: BTreeMap::new(),
    next: 0,
});

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers `card` and returns its index, or `None` if no index is left: CubeCL counts devices in 16 bits,
/// and an index cannot be used again, because burn keeps settings for it (its float type).
pub fn insert(card: Arc<CardState>) -> Option<u16> {
    let mut registry = registry();
    let index = registry.next;
    registry.next = index.checked_add(1)?;
    registry.cards.insert(index, card);
    Some(index)
}

/// Removes the card at `index` from the process.
pub fn remove(index: u16) {
    registry().cards.remove(&index);
}

/// The indices of the existing cards.
pub fn present() -> Vec<u16> {
    registry().cards.keys().copied().collect()
}

/// The card at `index`, if there is one.
pub(crate) fn card(index: u16) -> Option<Arc<CardState>> {
    registry().cards.get(&index).cloned()
}
