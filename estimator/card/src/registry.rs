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

/// Registers `card` and returns its index, or `None` if no index is left: CubeCL counts devices in 16 bits,
/// and an index cannot be used again, because burn keeps settings for it (its float type).
pub fn insert(card: Arc<Shared>) -> Option<u16> {
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

/// The server of the card at `device`.
///
/// # Panics
///
/// Panics if there is no such card; burn only asks for devices that it was given.
pub(crate) fn server(device: DeviceId, service: ServiceId) -> CardServer {
    let card = registry().cards.get(&device.index_id).cloned();
    let card = card.expect("a simulated card is there for as long as its device is used");
    CardServer::new(card, service)
}

/// The server of the card at `device`, as the shim asks for it.
///
/// # Panics
///
/// Panics if there is no such card; burn only asks for devices that it was given.
pub fn serve(device: DeviceId, service: ServiceId) -> Box<dyn Server> {
    Box::new(server(device, service))
}
