//! How the allocator gives memory back to the device.

use super::CachingAllocator;
use super::blocks::{Block, BlockIndex, Blocks, BySize, State};
use super::caching::Request;
use super::sizes::Pool;

impl CachingAllocator {
    /// Gives back every free segment and every free page (`release_cached_blocks`).
    pub(super) fn release_cached(&mut self) {
        for pool in [Pool::Large, Pool::Small] {
            let free = self.blocks.lists(pool).free.iter();
            let free: Vec<BlockIndex> = free.map(|free| free.block).collect();
            let (expandable, whole): (Vec<_>, Vec<_>) = free
                .into_iter()
                .partition(|block| self.blocks[*block].expandable.is_some());
            for block in whole {
                if !self.blocks[block].is_split() {
                    self.release(block);
                }
            }
            for block in expandable {
                self.unmap(block);
            }
        }
    }

    /// Gives back a free segment.
    fn release(&mut self, block: BlockIndex) {
        self.blocks.unlist(block);
        let Block { address, size, .. } = self.blocks[block];
        self.addresses.give_back(address, size);
        self.blocks.remove(block);
        self.give_back(size);
    }

    /// With a largest block that may be split: gives back free blocks above that size, as few as serve the request
    /// (`release_available_cached_blocks`). Returns whether they are enough.
    pub(super) fn release_oversize(&mut self, request: Request) -> bool {
        let Some(max_split) = self.config.max_split_bytes else {
            return false;
        };
        let wanted = request.size.max(max_split);
        let lists = self.blocks.lists(request.pool);
        let least = BySize::least(request.stream, wanted);
        let enough = lists.free.range(least..).next().copied();
        let releasable = |blocks: &Blocks, free: &BySize| {
            free.stream == request.stream && blocks[free.block].expandable.is_none()
        };
        if let Some(free) = enough.filter(|free| releasable(&self.blocks, free)) {
            self.release(free.block);
            return true;
        }
        let smaller = lists.free.range(..least).rev();
        let smaller =
            smaller.take_while(|free| free.size >= max_split && free.stream == request.stream);
        let smaller: Vec<BySize> = smaller.copied().collect();
        let mut released = 0;
        for free in smaller {
            if released >= wanted {
                break;
            }
            if releasable(&self.blocks, &free) {
                released += free.size;
                self.release(free.block);
            }
        }
        released >= wanted
    }

    /// Gives back free segments that are older than the average, if the program takes more than the threshold
    /// (`garbage_collect_cached_blocks`).
    pub(super) fn collect_garbage(&mut self) {
        let (Some(threshold), Some(allowed)) =
            (self.config.garbage_collection_threshold, self.allowed())
        else {
            return;
        };
        let threshold = (threshold * allowed as f64) as u64;
        if threshold == 0 || self.reserved <= threshold {
            return;
        }
        let wanted = self.reserved - threshold;
        let lists = self.blocks.lists(Pool::Large);
        let age = |blocks: &Blocks, block: BlockIndex| lists.requests - blocks[block].freed_at;
        let free = lists.free.iter().map(|free| free.block);
        let unsplit = free.filter(|block| !self.blocks[*block].is_split());
        let mut left: Vec<(BlockIndex, u64)> = unsplit
            .map(|block| (block, age(&self.blocks, block)))
            .collect();
        let mut released = 0;
        while released < wanted && !left.is_empty() {
            let ages: u64 = left.iter().map(|(_, age)| age).sum();
            let average = ages as f64 / left.len() as f64;
            let is_old = |(block, age): &(BlockIndex, u64)| {
                *age as f64 >= average && self.blocks[*block].expandable.is_none()
            };
            let (old, young): (Vec<_>, Vec<_>) = left.into_iter().partition(is_old);
            if old.is_empty() {
                return;
            }
            for (block, _) in old {
                released += self.blocks[block].size;
                self.release(block);
            }
            left = young;
        }
    }

    /// Gives back the whole pages of a free block of an expandable segment (`unmap_block`).
    fn unmap(&mut self, block: BlockIndex) {
        let page = self.config.page_size(self.blocks[block].pool);
        let (start, size) = (self.blocks[block].address, self.blocks[block].size);
        let Some(base) = self.blocks[block].expandable else {
            return;
        };
        // Pages are counted from the begin of the segment.
        let from = base + (start - base).next_multiple_of(page);
        let to = base + (start + size - base) / page * page;
        if from >= to {
            return;
        }
        self.blocks.unlist(block);
        if from > start {
            let front = self.blocks.split_front(block, from - start);
            self.blocks.list(front);
        }
        let mut unmapped = block;
        if start + size > to {
            unmapped = self.blocks.split_front(block, to - from);
            self.blocks.list(block);
        }
        self.blocks[unmapped].state = State::Unmapped;
        self.give_back(to - from);
        self.blocks.join_neighbours(unmapped, State::Unmapped);
        match self.blocks[unmapped].is_split() {
            true => self.blocks.list(unmapped),
            // The whole segment is empty.
            false => {
                let Block { address, size, .. } = self.blocks[unmapped];
                self.addresses.give_back(address, size);
                self.blocks.remove(unmapped);
            }
        }
    }
}
