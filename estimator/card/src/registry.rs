//! The cards of this process, by the index under which burn knows them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cubecl_common::device::{DeviceId, ServiceId};
use cubecl_server::server::Server;

use crate::server::{CardServer, Shared};

#[derive(Default)]
struct Registry {
    cards: BTreeMap<u16, Arc<Shared>>,
    next: u16,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    cards: BTreeMap::new(),
    next: 0,
});

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives `card` an index, or `None` if there are no more: CubeCL counts devices in 16 bits,
/// and what burn keeps for an index (its float type) cannot be taken back.
pub fn insert(card: Arc<Shared>) -> Option<u16> {
    let mut registry = registry();
    let index = registry.next;
    registry.next = index.checked_add(1)?;
    registry.cards.insert(index, card);
    Some(index)
}

/// Takes the card at `index` out of the process.
pub fn remove(index: u16) {
    registry().cards.remove(&index);
}

/// The indices of the cards that there are.
pub fn present() -> Vec<u16> {
    registry().cards.keys().copied().collect()
}

/// The server of the card at `device`.
///
/// # Panics
///
/// There is no such card: burn asks only for devices that it was given.
pub(crate) fn server(device: DeviceId, service: ServiceId) -> CardServer {
    let card = registry().cards.get(&device.index_id).cloned();
    let card = card.expect("a simulated card is there for as long as its device is used");
    CardServer::new(card, service)
}

/// The server of the card at `device`, as the shim asks for it.
///
/// # Panics
///
/// There is no such card: burn asks only for devices that it was given.
pub fn serve(device: DeviceId, service: ServiceId) -> Box<dyn Server> {
    Box::new(server(device, service))
}
