//! The memory of one card: its allocations, and the room that is left.

use std::collections::BTreeMap;

use crate::config::CardConfig;

/// The distance between the addresses of two cards: more than any card has, and more than
/// any process allocates in its life.
const CARD_SPAN: u64 = 1 << 50;

/// Addresses are multiples of this. `cuMemAlloc` returns memory that is aligned for any type ("suitably
/// aligned for any kind of variable"), on CUDA's devices to 256 bytes; the programming guide gives 256 as the
/// least. A larger alignment does no harm.
const ALIGNMENT: u64 = 512;

/// The memory of a card, of which only sizes are kept.
#[derive(Debug)]
pub(crate) struct CardMemory {
    total: u64,
    overhead: u64,
    /// The address of the next allocation. No address is used twice, so that an access after a free is
    /// noticed.
    next: u64,
    /// Address and bytes of each allocation, as they were asked for: the interface's documentation states no rounding
    /// for `cuMemAlloc`.
    allocations: BTreeMap<u64, u64>,
    used: u64,
}

/// The card has no room for an allocation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

impl CardMemory {
    /// The memory of the card with this index.
    pub fn new(index: usize, config: &CardConfig) -> Self {
        Self {
            total: config.total_bytes,
            overhead: config.overhead_bytes,
            next: (index as u64 + 1) * CARD_SPAN,
            allocations: BTreeMap::new(),
            used: 0,
        }
    }

    /// Allocates `bytes`, which must not be zero, and returns the address. If the card is
    /// full, `extra` says for how many bytes beyond its memory it has room.
    pub fn allocate(&mut self, bytes: u64, extra: impl Fn() -> u64) -> Result<u64, OutOfMemory> {
        if bytes > self.free() && bytes > self.room(extra()) {
            return Err(OutOfMemory);
        }
        let address = self.next;
        self.next += bytes.next_multiple_of(ALIGNMENT);
        self.allocations.insert(address, bytes);
        self.used += bytes;
        Ok(address)
    }

    /// Frees the allocation at `address` and returns its bytes; `None` if there is none.
    pub fn release(&mut self, address: u64) -> Option<u64> {
        let bytes = self.allocations.remove(&address)?;
        self.used -= bytes;
        Some(bytes)
    }

    /// Bytes that this process has allocated.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that can still be allocated.
    pub fn free(&self) -> u64 {
        self.room(0)
    }

    /// Bytes that can still be allocated on a card with so much `extra` memory.
    fn room(&self, extra: u64) -> u64 {
        self.total
            .saturating_sub(self.overhead)
            .saturating_add(extra)
            .min(CARD_SPAN - 1)
            .saturating_sub(self.used)
    }

    /// Total memory of the card in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The index of the card to which `address` belongs.
    pub fn card_of(address: u64) -> Option<usize> {
        ((address / CARD_SPAN) as usize).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> CardMemory {
        let config = CardConfig {
            total_bytes: 1000,
            overhead_bytes: 100,
            ..CardConfig::default()
        };
        CardMemory::new(1, &config)
    }

    #[test]
    fn a_full_card_refuses_and_a_freed_one_does_not() {
        let mut memory = memory();
        let first = memory.allocate(900, || 0).unwrap();
        assert_eq!(CardMemory::card_of(first), Some(1));
        assert_eq!((memory.used(), memory.free()), (900, 0));
        assert_eq!(memory.allocate(1, || 0), Err(OutOfMemory));
        assert_eq!(memory.release(first), Some(900));
        assert_eq!(memory.release(first), None);
        let second = memory.allocate(900, || 0).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn a_card_has_extra_room() {
        let mut memory = memory();
        memory.allocate(5000, || u64::MAX).unwrap();
        assert_eq!((memory.used(), memory.free()), (5000, 0));
        assert_eq!(memory.allocate(101, || 4200), Err(OutOfMemory));
        memory.allocate(100, || 4200).unwrap();
        assert_eq!(memory.allocate(u64::MAX, || u64::MAX), Err(OutOfMemory));
    }

    #[test]
    fn allocations_are_not_rounded_and_their_addresses_are_aligned() {
        let mut memory = memory();
        let first = memory.allocate(1, || 0).unwrap();
        let second = memory.allocate(1, || 0).unwrap();
        assert_eq!(memory.used(), 2);
        assert_eq!(second - first, ALIGNMENT);
        assert_eq!(memory.allocate(u64::MAX, || 0), Err(OutOfMemory));
    }
}
