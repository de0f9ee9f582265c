//! A storage that counts bytes and owns none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cubecl_environment::backtrace::BackTrace;
use cubecl_server::server::IoError;
use cubecl_server::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};

/// The memory budget of one card, in bytes, shared by all that allocate from the card.
#[derive(Debug)]
pub struct MemoryBudget {
    capacity: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
    wanted: AtomicU64,
    refusals: AtomicU64,
}

impl MemoryBudget {
    /// The budget of a card with `capacity` bytes; unlimited if `None`.
    pub fn new(capacity: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            capacity: AtomicU64::new(capacity.unwrap_or(u64::MAX)),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        })
    }

    /// The most bytes reserved from the card at once.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
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

    /// Makes the memory of the card unlimited from here on.
    pub fn open(&self) {
        self.extend(u64::MAX);
    }

    /// Sets the capacity of the card from here on.
    pub fn extend(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    fn take(&self, size: u64) -> Result<(), IoError> {
        let used = self.used.load(Ordering::Relaxed).saturating_add(size);
        if used > self.capacity() {
            self.wanted.store(used, Ordering::Relaxed);
            self.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(IoError::OutOfMemory {
                size,
                backtrace: BackTrace::capture(),
            });
        }
        self.used.store(used, Ordering::Relaxed);
        self.peak.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }

    fn give(&self, size: u64) {
        self.used.fetch_sub(size, Ordering::Relaxed);
    }
}

/// When a page that the pools return goes back to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Return {
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
    returns: Return,
    returned: Vec<StorageId>,
}

impl VirtualStorage {
    pub fn new(budget: Arc<MemoryBudget>, alignment: u64, returns: Return) -> Self {
        Self {
            budget,
            sizes: HashMap::new(),
            allocated: 0,
            alignment,
            returns,
            returned: Vec::new(),
        }
    }

    fn release(&mut self, id: StorageId) {
        if let Some(size) = self.sizes.remove(&id) {
            self.allocated -= size;
            self.budget.give(size);
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
        match self.returns {
            Return::AtOnce => self.release(id),
            Return::OnFlush => self.returned.push(id),
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
        self.budget.give(self.allocated);
    }
}
