//! How the allocator rounds: the constants of `c10/core/AllocatorConfig.h` and `round_size`, `get_allocation_size`
//! of `c10/cuda/CUDACachingAllocator.cpp` (PyTorch 2.15; the same values since 1.10).

use super::AllocatorConfig;

const MIB: u64 = 1 << 20;

/// Every block has a multiple of these bytes, unless the configuration rounds to divisions of powers of two.
pub(super) const MIN_BLOCK: u64 = 512;
/// The largest block of the small pool. A block of the large pool is split only if more than this is left.
pub(super) const SMALL_SIZE: u64 = MIB;
/// The size of a segment of the small pool.
pub(super) const SMALL_SEGMENT: u64 = 2 * MIB;
/// Blocks of the large pool below this size share segments of one size.
const MIN_LARGE: u64 = 10 * MIB;
/// A segment for one large block is a multiple of this.
const ROUND_LARGE: u64 = 2 * MIB;

/// Blocks up to [`SMALL_SIZE`] and larger ones never share a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    Small,
    Large,
}

impl Pool {
    /// The pool of a block of `size` bytes.
    pub fn of(size: u64) -> Self {
        match size <= SMALL_SIZE {
            true => Self::Small,
            false => Self::Large,
        }
    }
}

impl AllocatorConfig {
    /// The size of the block for a request of `bytes`.
    pub(super) fn block_size(&self, bytes: u64) -> u64 {
        if bytes < MIN_BLOCK {
            return MIN_BLOCK;
        }
        let divisions = self.divisions(bytes);
        match divisions > 1 && bytes > MIN_BLOCK * divisions {
            true => round_to_division(bytes, divisions),
            false => bytes.next_multiple_of(MIN_BLOCK),
        }
    }

    /// The size of a new segment for a block of `size` bytes.
    pub(super) fn segment_size(&self, size: u64) -> u64 {
        if size <= SMALL_SIZE {
            SMALL_SEGMENT
        } else if size < MIN_LARGE {
            self.large_segment_bytes
        } else {
            size.next_multiple_of(ROUND_LARGE)
        }
    }

    /// The size of the pages that an expandable segment maps.
    pub(super) fn page_size(&self, pool: Pool) -> u64 {
        match pool {
            Pool::Small => SMALL_SEGMENT,
            Pool::Large => self.large_segment_bytes,
        }
    }
}

/// The least multiple, not below `bytes`, of a part of the power of two below it: with 4 divisions 1200 becomes 1280.
fn round_to_division(bytes: u64, divisions: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1 << bytes.ilog2();
    match floor >> divisions.ilog2() {
        0 => floor << 1,
        part => bytes.next_multiple_of(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the comment above `roundup_power2_next_division`.
    #[test]
    fn divisions_of_a_power_of_two() {
        assert_eq!(round_to_division(1200, 4), 1280);
        assert_eq!(round_to_division(1024, 4), 1024);
        assert_eq!(round_to_division(1793, 4), 2048);
    }

    /// The head comment of CUDACachingAllocator.cpp.
    #[test]
    fn segments_by_size() {
        let config = AllocatorConfig::default();
        let sizes = [512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB, 11 * MIB]
            .map(|size| config.segment_size(size));
        assert_eq!(sizes, [2, 2, 20, 20, 10, 12].map(|mib| mib * MIB));
    }
}
