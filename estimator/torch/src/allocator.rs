//! PyTorch's caching allocator.

mod addresses;
mod blocks;
mod caching;
mod config;
mod expandable;
mod out_of_memory;
mod release;
mod sizes;

#[cfg(test)]
mod rules;

pub use blocks::BlockIndex;
pub(crate) use blocks::Layout;
pub use caching::{CachingAllocator, SegmentEvent};
pub use config::{AllocatorConfig, ConfigError};
pub use out_of_memory::{Refusal, format_size};

/// A CUDA stream: 0 is the default stream. A block that is freed serves only the stream that allocated it.
pub type Stream = u32;

/// The memory of a device, through which a program's allocations go.
///
/// A replay drives an implementation with the calls of a recording.
pub trait Allocator {
    /// How the allocator names what it gave away.
    type Block;
    /// Why there is no memory.
    type Refusal;

    /// Allocates `bytes`, as many as the program asked for, on `stream`.
    ///
    /// # Errors
    ///
    /// The device has not enough memory left, whatever the allocator gives back to it first.
    fn allocate(&mut self, bytes: u64, stream: Stream) -> Result<Self::Block, Self::Refusal>;

    /// Frees a block. The allocator may keep its memory.
    fn free(&mut self, block: Self::Block);

    /// Gives all memory that it can back to the device.
    fn empty_cache(&mut self);

    /// The bytes of the blocks that are given away, as the allocator rounds them.
    fn allocated_bytes(&self) -> u64;

    /// The bytes that it has taken from the device.
    fn reserved_bytes(&self) -> u64;
}
