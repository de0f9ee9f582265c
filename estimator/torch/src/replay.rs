//! A trace in an allocator: how much it takes, whether a device has enough, and the least that is enough.

use crate::allocator::{Allocator, AllocatorConfig, BlockIndex, CachingAllocator, Layout, Refusal};
use crate::cycle::Cycle;
use crate::trace::{BlockId, BlockKind, Event, Trace};

/// What a trace took from a device.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The most bytes that were given away at once, as `torch.cuda.max_memory_allocated()` counts them.
    pub max_allocated_bytes: u64,
    /// The most bytes that were taken from the device at once, as `torch.cuda.max_memory_reserved()` counts them.
    pub max_reserved_bytes: u64,
    /// The bytes that were taken from the device at the end.
    pub end_reserved_bytes: u64,
    /// The first event with the most bytes given away.
    pub peak: usize,
    /// How often the allocator gave cached memory back because the device was full.
    pub retries: u64,
    /// The size of each block that the allocator gave away, by [`BlockId`]; 0 for those that it did not come to.
    pub sizes: Vec<u64>,
    /// The allocation that the device had no memory for; the trace ends there.
    pub refused: Option<Refused>,
    /// With any capacity in this range the allocator makes the same calls.
    capacities: std::ops::Range<u64>,
}

/// An allocation that a device had no memory for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The position of the event.
    pub position: usize,
    /// The block.
    pub block: BlockId,
    /// What the allocator had then.
    pub refusal: Refusal,
}

/// A step is made again until all blocks lie where they lay after the time before: then it can be made for ever. Where a device is
/// nearly full they may lie elsewhere each time; after so many times that is enough.
const MOST_STEPS: usize = 8;

/// A trace that is being replayed.
struct Run<'a> {
    trace: &'a Trace,
    allocator: CachingAllocator,
    /// The blocks that the program has, by [`BlockId`].
    living: Vec<Option<BlockIndex>>,
}

impl Run<'_> {
    /// Makes the call of an event.
    fn make(&mut self, event: Event) -> Result<(), Refusal> {
        match event {
            Event::Allocate(id) => {
                let block = self.trace.block(id);
                // PyTorch gives an empty tensor no memory.
                if block.bytes == 0 {
                    return Ok(());
                }
                match self.allocator.allocate(block.bytes, block.stream) {
                    Ok(index) => self.living[id.0 as usize] = Some(index),
                    // The program goes on without it.
                    Err(_) if block.kind == BlockKind::Optional => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            Event::Free(id) => {
                if let Some(index) = self.living[id.0 as usize].take() {
                    self.allocator.free(index);
                }
            }
            Event::EmptyCache => self.allocator.empty_cache(),
            Event::ResetPeaks | Event::Phase(_) => {}
        }
        Ok(())
    }

    /// The size of a block that the program has.
    fn size(&self, block: BlockId) -> Option<u64> {
        let index = self.living[block.0 as usize]?;
        Some(self.allocator.size(index))
    }

    /// Makes the last step again, as often as it makes a difference; the first allocation that is refused.
    fn go_on(&mut self) -> Option<Refused> {
        let cycle = Cycle::of(self.trace)?;
        let heirs = &cycle.heirs;
        let mut before = self.state(heirs);
        for _ in 0..MOST_STEPS {
            // What the step leaves takes the place of what it was left.
            for (old, new) in heirs {
                self.living[old.0 as usize] = self.living[new.0 as usize].take();
            }
            for position in cycle.events.clone() {
                if let Err(refusal) = self.make(self.trace.events[position]) {
                    return Refused::at(position, self.trace, refusal);
                }
            }
            let after = self.state(heirs);
            if after == before {
                break;
            }
            before = after;
        }
        None
    }

    /// All that what comes next depends on: where the blocks are, and which of them the next step frees.
    fn state(&self, heirs: &[(BlockId, BlockId)]) -> (Layout, Vec<Option<u64>>) {
        let address = |(_, new): &(BlockId, BlockId)| {
            let index = self.living[new.0 as usize]?;
            Some(self.allocator.address(index))
        };
        (self.allocator.layout(), heirs.iter().map(address).collect())
    }
}

impl Refused {
    /// The refusal of the allocation at `position`; none if there is none.
    fn at(position: usize, trace: &Trace, refusal: Refusal) -> Option<Self> {
        match trace.events[position] {
            Event::Allocate(block) => Some(Self {
                position,
                block,
                refusal,
            }),
            _ => None,
        }
    }
}

impl Replay {
    /// Replays `trace` on a device that has `capacity_bytes` for the allocator; `u64::MAX` is no limit. It goes on with the last
    /// optimizer step, as a long training does, for as long as that makes a difference.
    pub fn of(trace: &Trace, config: &AllocatorConfig, capacity_bytes: u64) -> Self {
        Self::observed(trace, config, capacity_bytes, |_, _| {})
    }

    /// The same; `observe` gets the position of each event of the trace, and the allocator after it.
    pub fn observed(
        trace: &Trace,
        config: &AllocatorConfig,
        capacity_bytes: u64,
        mut observe: impl FnMut(usize, &CachingAllocator),
    ) -> Self {
        let mut run = Run {
            trace,
            allocator: CachingAllocator::new(config.clone(), capacity_bytes),
            living: vec![None; trace.blocks.len()],
        };
        let mut max_allocated_bytes = 0;
        let mut peak = 0;
        let mut sizes = vec![0; trace.blocks.len()];
        let mut refused = None;
        for (position, event) in trace.events.iter().enumerate() {
            if let Err(refusal) = run.make(*event) {
                refused = Refused::at(position, trace, refusal);
                break;
            }
            if let Event::Allocate(block) = event {
                sizes[block.0 as usize] = run.size(*block).unwrap_or(0);
                if run.allocator.allocated_bytes() > max_allocated_bytes {
                    max_allocated_bytes = run.allocator.allocated_bytes();
                    peak = position;
                }
            }
            observe(position, &run.allocator);
        }
        let refused = refused.or_else(|| run.go_on());
        let allocator = run.allocator;
        Self {
            max_allocated_bytes,
            max_reserved_bytes: allocator.max_reserved_bytes(),
            end_reserved_bytes: allocator.reserved_bytes(),
            peak,
            retries: allocator.retries(),
            sizes,
            refused,
            capacities: allocator.same_calls(),
        }
    }

    /// Whether the trace completes on a device that has `capacity_bytes` for the allocator.
    pub fn fits(trace: &Trace, config: &AllocatorConfig, capacity_bytes: u64) -> bool {
        Self::of(trace, config, capacity_bytes).refused.is_none()
    }
}

/// The least capacity with which `trace` completes: with one byte less it does not.
///
/// A full device gets cached memory back, so the least capacity can be far below what is reserved without a limit. And
/// a trace that completes with some capacity need not complete with a little more, since the allocator gives other
/// segments back there. So this is a capacity at which fitting begins, found by halving the range between
/// what the program asks for and what is reserved without a limit; whether the trace fits on a card is never read off it, but
/// replayed with the card's own memory. Each replay knows the range of capacities with the same calls, so the answer is
/// exact after few of them.
pub fn least_capacity(trace: &Trace, config: &AllocatorConfig) -> u64 {
    let mut fits = Replay::of(trace, config, u64::MAX).capacities.start;
    let mut too_small = trace.max_requested_bytes().min(fits);
    while too_small < fits {
        let middle = too_small + (fits - too_small) / 2;
        let replay = Replay::of(trace, config, middle);
        match replay.refused {
            None => fits = replay.capacities.start.max(too_small),
            Some(_) => too_small = replay.capacities.end.min(fits),
        }
    }
    fits
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::trace::Block;

    const MIB: u64 = 1 << 20;

    /// A program that allocates blocks of `sizes` and frees each so many allocations later. Blocks of odd sizes are optional.
    pub(crate) fn trace(blocks: &[(u64, usize)]) -> Trace {
        let mut events = Vec::new();
        for (born, (_, _)) in blocks.iter().enumerate() {
            events.push(Event::Allocate(BlockId(born as u32)));
            for (other, (_, life)) in blocks[..=born].iter().enumerate() {
                if other + life == born {
                    events.push(Event::Free(BlockId(other as u32)));
                }
            }
        }
        let block = |(bytes, _): &(u64, usize)| Block {
            kind: match bytes % 2 {
                0 => BlockKind::Tensor,
                _ => BlockKind::Optional,
            },
            ..Block::tensor(*bytes)
        };
        Trace {
            blocks: blocks.iter().map(block).collect(),
            events: Arc::new(events),
            ..Trace::default()
        }
    }

    fn config() -> impl Strategy<Value = AllocatorConfig> {
        let texts = [
            "",
            "expandable_segments:True",
            "max_split_size_mb:20",
            "per_process_memory_fraction:0.7",
            "per_process_memory_fraction:0.7,garbage_collection_threshold:0.3",
        ];
        prop::sample::select(texts.to_vec()).prop_map(|text| text.parse().unwrap())
    }

    proptest! {
        /// By brute force: all capacities in the range behave alike, and the least capacity is a border.
        #[test]
        fn the_least_capacity_is_a_border(
            blocks in prop::collection::vec((1u64..40 * MIB, 0usize..6), 1..25),
            config in config(),
        ) {
            let trace = trace(&blocks);
            let least = least_capacity(&trace, &config);
            prop_assert!(Replay::fits(&trace, &config, least));
            // A program of optional blocks alone needs nothing.
            prop_assert!(least == 0 || !Replay::fits(&trace, &config, least - 1));
        }

        #[test]
        fn capacities_of_a_range_behave_alike(
            blocks in prop::collection::vec((1u64..40 * MIB, 0usize..6), 1..25),
            capacity in (10u64..300).prop_map(|mib| mib * MIB),
            config in config(),
        ) {
            let trace = trace(&blocks);
            let replay = Replay::of(&trace, &config, capacity);
            prop_assert!(replay.capacities.contains(&capacity));
            let ends = [replay.capacities.start, replay.capacities.end - 1];
            for other in ends.map(|end| Replay::of(&trace, &config, end)) {
                prop_assert_eq!(other.max_reserved_bytes, replay.max_reserved_bytes);
                prop_assert_eq!(other.retries, replay.retries);
                prop_assert_eq!(
                    other.refused.as_ref().map(|refused| refused.position),
                    replay.refused.as_ref().map(|refused| refused.position)
                );
            }
        }
    }

    /// As cuDNN, which takes another kernel if there is no room for a workspace of 100 MiB.
    #[test]
    fn an_optional_block_is_not_needed() {
        let trace = trace(&[(30 * MIB, 2), (100 * MIB + 1, 0), (32 * MIB, 0)]);
        let config = AllocatorConfig::default();
        let replay = Replay::of(&trace, &config, u64::MAX);
        assert_eq!(replay.max_reserved_bytes, 132 * MIB);
        assert_eq!(least_capacity(&trace, &config), 62 * MIB);
        let refused = Replay::of(&trace, &config, 61 * MIB).refused.unwrap();
        assert_eq!(refused.block, BlockId(2));
    }

    /// Three segments are reserved without a limit; with two, the first is given back for the third.
    #[test]
    fn less_than_reserved_can_be_enough() {
        let trace = trace(&[(30 * MIB, 0), (32 * MIB, 0), (34 * MIB, 0)]);
        let config = AllocatorConfig::default();
        let replay = Replay::of(&trace, &config, u64::MAX);
        assert_eq!(
            (replay.max_allocated_bytes, replay.max_reserved_bytes),
            (34 * MIB, 96 * MIB)
        );
        assert_eq!(least_capacity(&trace, &config), 34 * MIB);
    }
}
