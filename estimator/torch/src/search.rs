//! The largest batch.

use std::ops::Range;

use crate::allocator::AllocatorConfig;
use crate::replay::Replay;
use crate::scaling::Scaling;

/// The largest batch of a range that fits on a device with `capacity_bytes` for the allocator, such that one more sample
/// does not; none if the first does not fit. If the whole range fits, its last batch.
///
/// What a program asks for grows with the batch, so a batch that asks for more than there is bounds the search. Below that a
/// larger batch can fit where a smaller one does not, since other segments are reused: the search halves the range,
/// and finds a batch that fits beside one that does not.
pub fn largest_batch(
    scaling: &Scaling,
    config: &AllocatorConfig,
    capacity_bytes: u64,
    batches: Range<u64>,
) -> Option<u64> {
    let fits = |batch: u64| Replay::fits(&scaling.at(batch), config, capacity_bytes);
    let may_fit = |batch: u64| scaling.at(batch).max_requested_bytes() <= capacity_bytes;
    let last = batches
        .end
        .checked_sub(1)
        .filter(|last| *last >= batches.start)?;
    if !fits(batches.start) {
        return None;
    }
    let bound = match may_fit(last) {
        true if fits(last) => return Some(last),
        true => last,
        // The least batch that asks for more than there is.
        false => halve(batches.start, last, may_fit) + 1,
    };
    // Most of a device's memory is used at the answer, so it is near the bound: the steps down from there double.
    let mut step = ((bound - batches.start) / 64).max(1);
    let mut refused = bound;
    loop {
        let next = refused.saturating_sub(step).max(batches.start);
        if fits(next) {
            return Some(halve(next, refused, fits));
        }
        refused = next;
        step *= 2;
    }
}

/// A number from `yes` on, below `no`, for which `holds` while it does not for the next; it holds for `yes`, and not
/// for `no`.
fn halve(mut yes: u64, mut no: u64, holds: impl Fn(u64) -> bool) -> u64 {
    while yes + 1 < no {
        let middle = yes + (no - yes) / 2;
        match holds(middle) {
            true => yes = middle,
            false => no = middle,
        }
    }
    yes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::scaling::Mismatch;
    use crate::trace::{Block, BlockId, Event, Trace};

    const MIB: u64 = 1 << 20;

    /// A program that keeps every block of `(fixed, per sample)` bytes until its end.
    fn program(blocks: &[(u64, u64)], batch: u64) -> Trace {
        keeping(blocks.iter().map(|(fixed, slope)| fixed + slope * batch))
    }

    /// A program that keeps blocks of these bytes until its end.
    fn keeping(sizes: impl IntoIterator<Item = u64>) -> Trace {
        let blocks: Vec<_> = sizes.into_iter().map(Block::tensor).collect();
        let ids = 0..blocks.len() as u32;
        let born = ids.clone().map(|id| Event::Allocate(BlockId(id)));
        let dies = ids.map(|id| Event::Free(BlockId(id)));
        Trace {
            blocks,
            events: Arc::new(born.chain(dies).collect()),
            ..Trace::default()
        }
    }

    proptest! {
        /// A border, by trying its two sides; there can be several, since other batches fill segments otherwise.
        #[test]
        fn the_largest_batch_fits_and_one_more_does_not(
            blocks in prop::collection::vec((1u64..10 * MIB, 1u64..MIB), 1..12),
            capacity in (1u64..300).prop_map(|mib| mib * MIB),
        ) {
            let scaling = Scaling::new(2, program(&blocks, 2), 3, &program(&blocks, 3)).unwrap();
            let config = AllocatorConfig::default();
            let fits = |batch: u64| Replay::fits(&program(&blocks, batch), &config, capacity);
            match largest_batch(&scaling, &config, capacity, 1..200) {
                Some(199) => prop_assert!(fits(199)),
                Some(found) => prop_assert!(fits(found) && !fits(found + 1)),
                None => prop_assert!(!fits(1)),
            }
        }
    }

    #[test]
    fn two_batches_tell_every_other() {
        let blocks = [(100, 7), (5, 0)];
        let scaling = Scaling::new(2, program(&blocks, 2), 3, &program(&blocks, 3)).unwrap();
        assert_eq!(scaling.at(64), program(&blocks, 64));
        assert_eq!(scaling.differs(64, &program(&blocks, 64)), None);
        let other = scaling
            .differs(64, &program(&[(100, 7), (6, 0)], 64))
            .unwrap();
        assert!(other.contains("6 bytes in place of 5"), "{other}");
    }

    /// Kernels that keep partial results take more up to a limit.
    #[test]
    fn sizes_that_bend_once_between_two_pairs_are_exact() {
        let at = |batch: u64| keeping([(7 * batch).min(100), (3 * batch).max(50), 10 + 2 * batch]);
        let pair = |batch| Scaling::new(batch, at(batch), batch + 1, &at(batch + 1)).unwrap();
        let mut scaling = pair(2);
        scaling.add(pair(64));
        for batch in 1..200 {
            assert_eq!(scaling.at(batch), at(batch));
        }
    }

    #[test]
    fn other_programs_are_told_apart() {
        let one = program(&[(100, 7)], 2);
        let two = program(&[(100, 7), (1, 0)], 3);
        let error = Scaling::new(2, one.clone(), 3, &two).unwrap_err();
        assert!(matches!(error, Mismatch::OtherCalls { .. }), "{error}");
        let error = Scaling::new(2, one.clone(), 4, &program(&[(101, 7)], 4)).unwrap_err();
        assert!(matches!(error, Mismatch::NotAffine { .. }), "{error}");
        assert!(Scaling::new(2, one.clone(), 2, &one).is_err());
    }
}
