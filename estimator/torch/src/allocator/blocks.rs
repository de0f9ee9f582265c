//! The blocks of all segments, linked with their neighbours, and the lists of the free ones.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use super::Stream;
use super::sizes::Pool;

/// A block, as an index into the blocks of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockIndex(u32);

/// What a block is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The program has it.
    Allocated,
    /// The allocator keeps it for the next request.
    Free,
    /// Addresses of an expandable segment without memory.
    Unmapped,
}

/// A range of addresses within a segment.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub address: u64,
    pub size: u64,
    pub stream: Stream,
    pub pool: Pool,
    pub state: State,
    /// The neighbours in the segment.
    pub before: Option<BlockIndex>,
    pub after: Option<BlockIndex>,
    /// The first address of its segment, if that is expandable.
    pub expandable: Option<u64>,
    /// How many requests the pool had served when the block became free.
    pub freed_at: u64,
}

impl Block {
    /// Whether the block is a part of a segment.
    pub fn is_split(&self) -> bool {
        self.before.is_some() || self.after.is_some()
    }
}

/// A free block in the order in which a pool looks for one: best fit, then the lowest address
/// (`BlockComparatorSize`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BySize {
    pub stream: Stream,
    pub size: u64,
    pub address: u64,
    pub block: BlockIndex,
}

/// Addresses without memory in the order in which they are mapped (`BlockComparatorAddress`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ByAddress {
    pub stream: Stream,
    pub address: u64,
    pub block: BlockIndex,
}

/// The lists of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolLists {
    pub free: BTreeSet<BySize>,
    pub unmapped: BTreeSet<ByAddress>,
    /// How many requests it has looked for.
    pub requests: u64,
}

/// Addresses, sizes and states of all blocks, in order of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout(Vec<(u64, u64, State)>);

/// All blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// The indices that no block has any more.
    vacant: Vec<BlockIndex>,
    small: PoolLists,
    large: PoolLists,
}

impl Index<BlockIndex> for Blocks {
    type Output = Block;

    fn index(&self, block: BlockIndex) -> &Block {
        &self.blocks[block.0 as usize]
    }
}

impl IndexMut<BlockIndex> for Blocks {
    fn index_mut(&mut self, block: BlockIndex) -> &mut Block {
        &mut self.blocks[block.0 as usize]
    }
}

impl Blocks {
    /// The lists of `pool`.
    pub fn lists(&self, pool: Pool) -> &PoolLists {
        match pool {
            Pool::Small => &self.small,
            Pool::Large => &self.large,
        }
    }

    pub fn lists_mut(&mut self, pool: Pool) -> &mut PoolLists {
        match pool {
            Pool::Small => &mut self.small,
            Pool::Large => &mut self.large,
        }
    }

    /// Where the blocks are.
    pub fn layout(&self) -> Layout {
        let mut is_vacant = vec![false; self.blocks.len()];
        for index in &self.vacant {
            is_vacant[index.0 as usize] = true;
        }
        let blocks = self.blocks.iter().zip(is_vacant);
        let blocks = blocks.filter(|(_, is_vacant)| !is_vacant);
        let mut layout: Vec<_> = blocks
            .map(|(block, _)| (block.address, block.size, block.state))
            .collect();
        layout.sort_unstable_by_key(|(address, _, _)| *address);
        Layout(layout)
    }

    /// Adds a block, in no list yet.
    pub fn add(&mut self, block: Block) -> BlockIndex {
        match self.vacant.pop() {
            Some(index) => {
                self[index] = block;
                index
            }
            None => {
                self.blocks.push(block);
                BlockIndex(self.blocks.len() as u32 - 1)
            }
        }
    }

    /// Removes a block that is in no list.
    pub fn remove(&mut self, index: BlockIndex) {
        self.vacant.push(index);
    }

    /// Puts a block into the list for its state.
    pub fn list(&mut self, index: BlockIndex) {
        let block = self[index].clone();
        let lists = self.lists_mut(block.pool);
        match block.state {
            State::Free => {
                let requests = lists.requests;
                lists.free.insert(BySize::of(&block, index));
                self[index].freed_at = requests;
            }
            State::Unmapped => {
                lists.unmapped.insert(ByAddress::of(&block, index));
            }
            State::Allocated => {}
        }
    }

    /// Takes a block out of the list for its state.
    pub fn unlist(&mut self, index: BlockIndex) {
        let block = self[index].clone();
        let lists = self.lists_mut(block.pool);
        match block.state {
            State::Free => {
                lists.free.remove(&BySize::of(&block, index));
            }
            State::Unmapped => {
                lists.unmapped.remove(&ByAddress::of(&block, index));
            }
            State::Allocated => {}
        }
    }

    /// Cuts `size` bytes off the begin of a block, which is in no list, and returns them as a block of their own. The
    /// rest keeps the index.
    pub fn split_front(&mut self, index: BlockIndex, size: u64) -> BlockIndex {
        let rest = &mut self[index];
        let front = Block {
            size,
            after: Some(index),
            ..rest.clone()
        };
        rest.address += size;
        rest.size -= size;
        let before = rest.before;
        let front = self.add(front);
        self[index].before = Some(front);
        if let Some(before) = before {
            self[before].after = Some(front);
        }
        front
    }

    /// Joins a block, which is in no list, with each neighbour that is in `state`. The neighbours leave their lists.
    pub fn join_neighbours(&mut self, index: BlockIndex, state: State) {
        if let Some(before) = self[index].before
            && self[before].state == state
        {
            self.unlist(before);
            let joined = self[before].clone();
            let block = &mut self[index];
            block.address = joined.address;
            block.size += joined.size;
            block.before = joined.before;
            if let Some(far) = joined.before {
                self[far].after = Some(index);
            }
            self.remove(before);
        }
        if let Some(after) = self[index].after
            && self[after].state == state
        {
            self.unlist(after);
            let joined = self[after].clone();
            let block = &mut self[index];
            block.size += joined.size;
            block.after = joined.after;
            if let Some(far) = joined.after {
                self[far].before = Some(index);
            }
            self.remove(after);
        }
    }
}

impl BySize {
    pub fn of(block: &Block, index: BlockIndex) -> Self {
        Self {
            stream: block.stream,
            size: block.size,
            address: block.address,
            block: index,
        }
    }

    /// Before all blocks of at least `size` on `stream`.
    pub fn least(stream: Stream, size: u64) -> Self {
        Self {
            stream,
            size,
            address: 0,
            block: BlockIndex(0),
        }
    }
}

impl ByAddress {
    pub fn of(block: &Block, index: BlockIndex) -> Self {
        Self {
            stream: block.stream,
            address: block.address,
            block: index,
        }
    }

    /// Before all addresses of `stream`.
    pub fn least(stream: Stream) -> Self {
        Self {
            stream,
            address: 0,
            block: BlockIndex(0),
        }
    }
}
