//! Segments that grow: addresses for the whole device, of which pages get memory when they are needed.

use super::CachingAllocator;
use super::blocks::{Block, BlockIndex, ByAddress, State};
use super::caching::{ADDRESS_SPACE, Request};

impl CachingAllocator {
    /// A block at the lowest address where free and new pages make enough (`try_allocate_expandable_block`), in no
    /// list; none if the device has not enough pages left. The pages that were mapped until then stay.
    pub(super) fn take_expandable(&mut self, request: Request) -> Option<BlockIndex> {
        let mut block = self.find_expandable(request);
        if self.blocks[block].state == State::Unmapped {
            let size = self.blocks[block].size.min(request.size);
            block = self.map(block, size)?;
        }
        while self.blocks[block].size < request.size {
            let missing = request.size - self.blocks[block].size;
            let after = self.blocks[block].after?;
            let size = self.blocks[after].size.min(missing);
            block = self.map(after, size)?;
        }
        self.blocks.unlist(block);
        Some(block)
    }

    /// Where the next pages are mapped (`find_expandable_block`): the lowest addresses without memory, with the free
    /// block before them, if there is room; else a new segment.
    fn find_expandable(&mut self, request: Request) -> BlockIndex {
        let unmapped = self
            .blocks
            .lists(request.pool)
            .unmapped
            .range(ByAddress::least(request.stream)..);
        let unmapped = unmapped.take_while(|unmapped| unmapped.stream == request.stream);
        for candidate in unmapped {
            let before = self.blocks[candidate.block].before;
            let before = before.filter(|before| self.blocks[*before].state != State::Allocated);
            let first = before.unwrap_or(candidate.block);
            if self.has_room(first, request.size) {
                return first;
            }
        }
        let page = self.config.page_size(request.pool);
        let size = ADDRESS_SPACE / page * page;
        let address = self.addresses.take(size);
        let segment = Block {
            address,
            size,
            stream: request.stream,
            pool: request.pool,
            state: State::Unmapped,
            before: None,
            after: None,
            expandable: Some(address),
            freed_at: 0,
        };
        let segment = self.blocks.add(segment);
        self.blocks.list(segment);
        segment
    }

    fn has_room(&self, first: BlockIndex, wanted: u64) -> bool {
        let mut room = 0;
        let mut next = Some(first);
        while let Some(block) = next.map(|next| &self.blocks[next])
            && room < wanted
            && block.state != State::Allocated
        {
            room += block.size;
            next = block.after;
        }
        room >= wanted
    }

    /// Gives memory to the first `size` bytes of addresses, in whole pages, and joins them with free neighbours
    /// (`map_block`). Returns the free block that they become.
    fn map(&mut self, unmapped: BlockIndex, size: u64) -> Option<BlockIndex> {
        let page = self.config.page_size(self.blocks[unmapped].pool);
        let size = size.next_multiple_of(page);
        self.take_from_device(size)?;
        self.blocks.unlist(unmapped);
        let mut block = unmapped;
        if size < self.blocks[unmapped].size {
            block = self.blocks.split_front(unmapped, size);
            self.blocks.list(unmapped);
        }
        self.blocks[block].state = State::Free;
        self.blocks.join_neighbours(block, State::Free);
        self.blocks.list(block);
        Some(block)
    }
}
