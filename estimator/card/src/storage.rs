//! A storage that counts bytes and owns none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cubecl_environment::backtrace::BackTrace;
use cubecl_server::server::IoError;
use cubecl_server::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use serde::{Deserialize, Serialize};

/// The memory budget of one card, in bytes, shared by all that allocate from the card.
#[derive(Debug)]
pub struct MemoryBudget {
    capacity: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
    wanted: AtomicU64,
    refusals: AtomicU64,
    /// The most bytes reserved at once since the last call of [`Self::take_recent_peak`].
    recent_peak: AtomicU64,
    /// Requests that are refused although there is room.
    refused: Option<Refusals>,
    requests: AtomicU64,
    /// Whether the card refuses nothing any more.
    limit_lifted: AtomicBool,
}

/// Requests for memory that a card refuses although it has room, to test what a program makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// The number of the first of them, counted from 1.
    pub first: u64,
    /// How many there are from that one on.
    pub count: u64,
}

impl Refusals {
    fn contains(self, number: u64) -> bool {
        number
            .checked_sub(self.first)
            .is_some_and(|after| after < self.count)
    }
}

impl MemoryBudget {
    /// The budget of a card with `capacity` bytes; unlimited if `None`.
    pub fn new(capacity: Option<u64>) -> Arc<Self> {
        Self::refusing(capacity, None)
    }

    /// The budget of a card with `capacity` bytes that also refuses the requests `refused`.
    pub fn refusing(capacity: Option<u64>, refused: Option<Refusals>) -> Arc<Self> {
        Arc::new(Self {
            capacity: AtomicU64::new(capacity.unwrap_or(u64::MAX)),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            recent_peak: AtomicU64::new(0),
            refused,
            requests: AtomicU64::new(0),
            limit_lifted: AtomicBool::new(false),
        })
    }

    /// The most bytes reserved from the card at once.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The most bytes reserved from the card at once since the last call of this function.
    pub fn take_recent_peak(&self) -> u64 {
        let used = self.used.load(Ordering::Relaxed);
        self.recent_peak.swap(used, Ordering::Relaxed).max(used)
    }

    /// The capacity that the last refused request would have needed.
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The capacity of the card.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Number of requests that the card refused.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Makes the memory of the card unlimited from here on, and refuses nothing any more.
    pub fn lift_limit(&self) {
        self.limit_lifted.store(true, Ordering::Relaxed);
        self.set_capacity(u64::MAX);
    }

    /// Sets the capacity of the card from here on.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    fn take(&self, size: u64) -> Result<(), IoError> {
        let used = self.used.load(Ordering::Relaxed).saturating_add(size);
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let refused = self.refused.is_some_and(|refused| refused.contains(number))
            && !self.limit_lifted.load(Ordering::Relaxed);
        if refused || used > self.capacity() {
            self.wanted.store(used, Ordering::Relaxed);
            self.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(IoError::OutOfMemory {
                size,
                backtrace: BackTrace::capture(),
            });
        }
        self.used.store(used, Ordering::Relaxed);
        self.peak.fetch_max(used, Ordering::Relaxed);
        self.recent_peak.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, size: u64) {
        self.used.fetch_sub(size, Ordering::Relaxed);
    }
}

/// When a page that the pools return goes back to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageRelease {
    /// With the next flush, as in `cubecl-cuda` 0.11.3, `src/compute/storage/gpu.rs`.
    OnFlush,
    /// At once, as in `cubecl-wgpu` 0.11.3, `src/compute/storage.rs`.
    AtOnce,
}

/// A storage whose pages exist only as sizes in a [`MemoryBudget`].
#[derive(Debug)]
pub(crate) struct VirtualStorage {
    budget: Arc<MemoryBudget>,
    sizes: HashMap<StorageId, u64>,
    allocated: u64,
    alignment: u64,
    page_release: PageRelease,
    returned: Vec<StorageId>,
}

impl VirtualStorage {
    pub fn new(budget: Arc<MemoryBudget>, alignment: u64, page_release: PageRelease) -> Self {
        Self {
            budget,
            sizes: HashMap::new(),
            allocated: 0,
            alignment,
            page_release,
            returned: Vec::new(),
        }
    }

    fn release(&mut self, id: StorageId) {
        if let Some(size) = self.sizes.remove(&id) {
            self.allocated -= size;
            self.budget.release(size);
        }
    }
}

impl ComputeStorage for VirtualStorage {
    type Resource = ();

    fn alignment(&self) -> usize {
        self.alignment as usize
    }

    fn get(&mut self, _handle: &StorageHandle) -> Result<(), IoError> {
        Ok(())
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        self.budget.take(size)?;
        let id = StorageId::new();
        self.sizes.insert(id, size);
        self.allocated += size;
        Ok(StorageHandle::new(
            id,
            StorageUtilization { offset: 0, size },
        ))
    }

    fn dealloc(&mut self, id: StorageId) {
        match self.page_release {
            PageRelease::AtOnce => self.release(id),
            PageRelease::OnFlush => self.returned.push(id),
        }
    }

    fn flush(&mut self) {
        for id in std::mem::take(&mut self.returned) {
            self.release(id);
        }
    }

    fn bytes_allocated(&self) -> u64 {
        self.allocated
    }
}

impl Drop for VirtualStorage {
    fn drop(&mut self) {
        self.budget.release(self.allocated);
    }
}
