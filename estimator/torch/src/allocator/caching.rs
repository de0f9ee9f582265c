//! The allocator: requests, frees, and what it takes from the device.
//!
//! Written from the rules of `DeviceCachingAllocator` in `c10/cuda/CUDACachingAllocator.cpp`, which are the same in
//! PyTorch 2.5 to 2.15 but for the names of options. Private pools of CUDA graphs, and blocks that a second stream
//! still uses (`record_stream`), are not modelled.

use super::addresses::Addresses;
use super::blocks::{Block, BlockIndex, Blocks, BySize, Layout, State};
use super::sizes::{MIN_BLOCK, Pool, SMALL_SIZE};
use super::{Allocator, AllocatorConfig, Refusal, Stream};

/// The addresses of an expandable segment; more than any device has.
pub(super) const ADDRESS_SPACE: u64 = 1 << 50;

/// What the allocator did with the device, for tests that follow a real allocator segment by segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentEvent {
    /// It took a segment, or mapped pages, of so many bytes.
    Taken(u64),
    /// It gave so many back.
    GivenBack(u64),
}

/// PyTorch's caching allocator on a device with a limit.
#[derive(Clone, Debug)]
pub struct CachingAllocator {
    pub(super) config: AllocatorConfig,
    /// What the device has for the allocator.
    pub(super) capacity: u64,
    pub(super) blocks: Blocks,
    pub(super) reserved: u64,
    pub(super) segments: Vec<SegmentEvent>,
    allocated: u64,
    max_allocated: u64,
    max_reserved: u64,
    retries: u64,
    pub(super) addresses: Addresses,
    /// The least capacity that would have given it one of the segments that it did not get.
    least_refused: u64,
}

/// A request, as the pool sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub size: u64,
    pub stream: Stream,
    pub pool: Pool,
}

impl CachingAllocator {
    /// An allocator that takes at most `capacity_bytes` from the device; `u64::MAX` is no limit.
    pub fn new(config: AllocatorConfig, capacity_bytes: u64) -> Self {
        Self {
            config,
            capacity: capacity_bytes,
            blocks: Blocks::default(),
            reserved: 0,
            segments: Vec::new(),
            allocated: 0,
            max_allocated: 0,
            max_reserved: 0,
            retries: 0,
            addresses: Addresses::default(),
            least_refused: u64::MAX,
        }
    }

    /// The size of a block that it gave away: at least what was asked for.
    pub fn size(&self, block: BlockIndex) -> u64 {
        self.blocks[block].size
    }

    /// The address of a block that it gave away.
    pub(crate) fn address(&self, block: BlockIndex) -> u64 {
        self.blocks[block].address
    }

    /// Where all blocks are, and which of them are free: what it does next depends on nothing else, but for
    /// `garbage_collection_threshold`.
    pub(crate) fn layout(&self) -> Layout {
        self.blocks.layout()
    }

    /// The most bytes that were given away at once: `torch.cuda.max_memory_allocated()`.
    pub fn max_allocated_bytes(&self) -> u64 {
        self.max_allocated
    }

    /// The most bytes that were taken from the device at once: `torch.cuda.max_memory_reserved()`.
    pub fn max_reserved_bytes(&self) -> u64 {
        self.max_reserved
    }

    /// How often it gave cached memory back because the device was full: `num_alloc_retries` of
    /// `torch.cuda.memory_stats()`.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// What it took and gave back, in order.
    pub fn segments(&self) -> &[SegmentEvent] {
        &self.segments
    }

    /// The capacities, this one among them, with which it would have done the same until now.
    pub fn same_calls(&self) -> std::ops::Range<u64> {
        match self.config.memory_fraction {
            None => self.max_reserved..self.least_refused,
            // It compares with a share of the capacity.
            Some(_) => self.capacity..self.capacity.saturating_add(1),
        }
    }

    /// The memory that the process may take: less than the device has if a share of it is set.
    pub(super) fn allowed(&self) -> Option<u64> {
        let share = self.config.memory_fraction?;
        Some((self.capacity as f64 * share) as u64)
    }

    fn max_split(&self) -> u64 {
        self.config.max_split_bytes.unwrap_or(u64::MAX)
    }

    /// The free block that serves a request best (`get_free_block`).
    fn find_free(&mut self, request: Request) -> Option<BlockIndex> {
        self.blocks.lists_mut(request.pool).requests += 1;
        let lists = self.blocks.lists(request.pool);
        let mut candidates = lists
            .free
            .range(BySize::least(request.stream, request.size)..);
        let mut best = *candidates
            .next()
            .filter(|best| best.stream == request.stream)?;
        // At the end of an expandable segment, a block counts as large as it can grow.
        while self.blocks[best.block].expandable.is_some() {
            match candidates.next() {
                Some(next)
                    if next.stream == request.stream
                        && self.growable(next) < self.growable(&best) =>
                {
                    best = *next;
                }
                _ => break,
            }
        }
        let max_split = self.max_split();
        let refused = match request.size < max_split {
            true => best.size >= max_split,
            false => best.size >= request.size + self.config.max_non_split_rounding_bytes,
        };
        if refused {
            return None;
        }
        self.blocks.unlist(best.block);
        Some(best.block)
    }

    fn growable(&self, candidate: &BySize) -> u64 {
        let after = self.blocks[candidate.block].after;
        let unmapped = after.map(|after| &self.blocks[after]);
        let unmapped = unmapped.filter(|after| after.state == State::Unmapped);
        candidate.size + unmapped.map_or(0, |after| after.size)
    }

    /// A block of new memory (`alloc_block`); none if the device has not enough left.
    fn take(&mut self, request: Request) -> Option<BlockIndex> {
        let segment = self.config.segment_size(request.size);
        if self
            .allowed()
            .is_some_and(|allowed| self.reserved + segment > allowed)
        {
            return None;
        }
        if self.config.expandable_segments {
            return self.take_expandable(request);
        }
        self.take_from_device(segment)?;
        let block = Block {
            address: self.addresses.take(segment),
            size: segment,
            stream: request.stream,
            pool: request.pool,
            state: State::Free,
            before: None,
            after: None,
            expandable: None,
            freed_at: 0,
        };
        Some(self.blocks.add(block))
    }

    /// Takes `bytes` from the device, if they are there.
    pub(super) fn take_from_device(&mut self, bytes: u64) -> Option<()> {
        if self.reserved + bytes > self.capacity {
            self.least_refused = self.least_refused.min(self.reserved + bytes);
            return None;
        }
        self.reserved += bytes;
        self.max_reserved = self.max_reserved.max(self.reserved);
        self.segments.push(SegmentEvent::Taken(bytes));
        Some(())
    }

    /// Gives `bytes` back to the device.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.reserved -= bytes;
        self.segments.push(SegmentEvent::GivenBack(bytes));
    }

    /// Memory for a request, from the cache or from the device, whatever has to be given back for it.
    fn obtain(&mut self, request: Request) -> Option<BlockIndex> {
        if let Some(block) = self.find_free(request) {
            return Some(block);
        }
        self.collect_garbage();
        if let Some(block) = self.take(request) {
            return Some(block);
        }
        if self.release_oversize(request)
            && let Some(block) = self.take(request)
        {
            return Some(block);
        }
        self.release_cached();
        self.retries += 1;
        self.take(request)
    }

    /// Whether what is left of a block becomes a block of its own (`should_split`).
    fn is_split_for(&self, block: BlockIndex, request: Request) -> bool {
        let left = self.blocks[block].size - request.size;
        match request.pool {
            Pool::Large if !self.config.expandable_segments => {
                request.size < self.max_split() && left > SMALL_SIZE
            }
            _ => left >= MIN_BLOCK,
        }
    }

    fn refusal(&self, request: Request) -> Refusal {
        Refusal {
            segment_bytes: self.config.segment_size(request.size),
            capacity_bytes: self.capacity,
            reserved_bytes: self.reserved,
            allocated_bytes: self.allocated,
        }
    }
}

impl Allocator for CachingAllocator {
    type Block = BlockIndex;
    type Refusal = Refusal;

    fn allocate(&mut self, bytes: u64, stream: Stream) -> Result<BlockIndex, Refusal> {
        let size = self.config.block_size(bytes);
        let request = Request {
            size,
            stream,
            pool: Pool::of(size),
        };
        let mut block = self.obtain(request).ok_or_else(|| self.refusal(request))?;
        if self.is_split_for(block, request) {
            let rest = block;
            block = self.blocks.split_front(rest, size);
            self.blocks[rest].state = State::Free;
            self.blocks.list(rest);
        }
        self.blocks[block].state = State::Allocated;
        self.allocated += self.blocks[block].size;
        self.max_allocated = self.max_allocated.max(self.allocated);
        Ok(block)
    }

    fn free(&mut self, block: BlockIndex) {
        self.allocated -= self.blocks[block].size;
        self.blocks[block].state = State::Free;
        self.blocks.join_neighbours(block, State::Free);
        self.blocks.list(block);
    }

    fn empty_cache(&mut self) {
        self.release_cached();
    }

    fn allocated_bytes(&self) -> u64 {
        self.allocated
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved
    }
}
