//! Where the driver puts segments.
//!
//! PyTorch takes the block with the lowest address among equals, so the order of addresses decides which block is reused. NVIDIA
//! documents none. On an H200 (37 jobs, `data/h200.jsonl.z`) `cudaMalloc` behaves like this: it reserves
//! addresses in multiples of 32 MiB, each range below the one before, and puts an allocation at the begin of its range;
//! what is left of a range serves later allocations, the lowest that is large enough first.

use std::collections::BTreeMap;

/// The unit in which the driver reserves addresses.
const RANGE: u64 = 32 << 20;

/// Above all addresses.
const TOP: u64 = 1 << 62;

/// The addresses of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    /// Free addresses within reserved ranges: begin and size.
    holes: BTreeMap<u64, u64>,
    /// The reserved ranges: begin and size.
    ranges: BTreeMap<u64, u64>,
}

impl Addresses {
    /// Addresses for a segment of `size` bytes.
    pub fn take(&mut self, size: u64) -> u64 {
        let mut holes = self.holes.iter();
        let (start, room) = match holes.find(|(_, room)| **room >= size) {
            Some((start, room)) => (*start, *room),
            None => {
                let range = size.next_multiple_of(RANGE);
                let lowest = self.ranges.keys().next().copied().unwrap_or(TOP);
                self.ranges.insert(lowest - range, range);
                (lowest - range, range)
            }
        };
        self.holes.remove(&start);
        if room > size {
            self.holes.insert(start + size, room - size);
        }
        start
    }

    /// Gives the addresses of a segment back. Holes of different ranges stay apart.
    pub fn give_back(&mut self, mut start: u64, mut size: u64) {
        let range = self.ranges.range(..=start).next_back();
        let (begin, end) = range.map_or((start, start + size), |(begin, size)| {
            (*begin, begin + size)
        });
        if start + size < end
            && let Some(after) = self.holes.remove(&(start + size))
        {
            size += after;
        }
        let before = self.holes.range(begin..start).next_back();
        if let Some((before, room)) = before.map(|(before, room)| (*before, *room))
            && before + room == start
        {
            self.holes.remove(&before);
            start = before;
            size += room;
        }
        self.holes.insert(start, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses of ResNet-50 on the H200, from its 26th segment on, in MiB.
    #[test]
    fn addresses_are_those_of_a_real_driver() {
        const MIB: u64 = 1 << 20;
        let mut addresses = Addresses::default();
        let sizes = [
            98, 98, 26, 98, 98, 26, 26, 26, 98, 98, 50, 50, 62, 50, 50, 100, 50, 14, 14, 14, 26, 50,
        ];
        let real = [
            -2030, -2158, -2060, -2286, -2414, -2316, -2188, -1932, -2542, -2670, -2734, -2798,
            -2862, -2926, -2990, -3118, -3182, -3132, -3018, -3004, -2572, -3246,
        ];
        let taken = sizes.map(|size| addresses.take(size * MIB));
        let relative = taken.map(|address| (address as i64 - taken[0] as i64) / MIB as i64 - 2030);
        assert_eq!(relative, real);
        addresses.give_back(taken[0], 98 * MIB);
        addresses.give_back(taken[7], 26 * MIB);
        assert_eq!(addresses.take(128 * MIB), taken[0]);
    }
}
