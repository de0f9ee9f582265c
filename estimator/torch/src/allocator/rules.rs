//! Random programs on the allocator, held against its rules.

use proptest::prelude::*;

use super::blocks::State;
use super::caching::SegmentEvent;
use super::sizes::Pool;
use super::{Allocator, AllocatorConfig, CachingAllocator};

const MIB: u64 = 1 << 20;

/// A call of a program: allocate so many bytes on a stream, free the n-th living block, empty the cache.
#[derive(Clone, Debug)]
enum Call {
    Allocate(u64, u32),
    Free(usize),
    EmptyCache,
}

fn call() -> impl Strategy<Value = Call> {
    let bytes = prop_oneof![1u64..2048, 1u64..3 * MIB, 1u64..40 * MIB];
    prop_oneof![
        6 => (bytes, 0u32..2).prop_map(|(bytes, stream)| Call::Allocate(bytes, stream)),
        5 => (0usize..64).prop_map(Call::Free),
        1 => Just(Call::EmptyCache),
    ]
}

fn config() -> impl Strategy<Value = AllocatorConfig> {
    let texts = [
        "",
        "expandable_segments:True",
        "max_split_size_mb:20",
        "roundup_power2_divisions:4",
        "expandable_segments:True,large_segment_size_mb:30",
        "per_process_memory_fraction:0.9,garbage_collection_threshold:0.5",
        "max_split_size_mb:24,expandable_segments:True",
    ];
    prop::sample::select(texts.to_vec()).prop_map(|text| text.parse().unwrap())
}

/// Every byte of every segment is in exactly one block, no two free neighbours are left, and the counters are the sums.
fn check(allocator: &CachingAllocator, living: &[(super::BlockIndex, u64)]) {
    let mut given: u64 = 0;
    let mut ranges = Vec::new();
    for (block, bytes) in living {
        let block = &allocator.blocks[*block];
        assert_eq!(block.state, State::Allocated);
        assert!(block.size >= *bytes);
        given += block.size;
        ranges.push((block.address, block.size));
    }
    let mut free: u64 = 0;
    for pool in [Pool::Small, Pool::Large] {
        for entry in &allocator.blocks.lists(pool).free {
            let block = &allocator.blocks[entry.block];
            assert_eq!(
                (block.state, block.size, block.address),
                (State::Free, entry.size, entry.address)
            );
            for neighbour in [block.before, block.after].into_iter().flatten() {
                assert_ne!(allocator.blocks[neighbour].state, State::Free);
            }
            free += block.size;
            ranges.push((block.address, block.size));
        }
    }
    ranges.sort_unstable();
    assert!(
        ranges
            .windows(2)
            .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
    );
    assert_eq!(given, allocator.allocated_bytes());
    assert_eq!(given + free, allocator.reserved_bytes());
    let taken: i64 = allocator
        .segments()
        .iter()
        .map(|event| match event {
            SegmentEvent::Taken(bytes) => *bytes as i64,
            SegmentEvent::GivenBack(bytes) => -(*bytes as i64),
        })
        .sum();
    assert_eq!(taken as u64, allocator.reserved_bytes());
}

proptest! {
    #[test]
    fn every_byte_is_in_one_block(
        config in config(),
        capacity in prop_oneof![Just(u64::MAX), (20u64..400).prop_map(|mib| mib * MIB)],
        calls in prop::collection::vec(call(), 1..120),
    ) {
        let mut allocator = CachingAllocator::new(config, capacity);
        let mut living = Vec::new();
        for call in calls {
            match call {
                Call::Allocate(bytes, stream) => match allocator.allocate(bytes, stream) {
                    Ok(block) => {
                        prop_assert_eq!(allocator.blocks[block].stream, stream);
                        living.push((block, bytes));
                    }
                    Err(refusal) => prop_assert!(refusal.reserved_bytes <= capacity),
                },
                Call::Free(index) if !living.is_empty() => {
                    let (block, _) = living.swap_remove(index % living.len());
                    allocator.free(block);
                }
                Call::Free(_) => {}
                Call::EmptyCache => allocator.empty_cache(),
            }
            prop_assert!(allocator.reserved_bytes() <= capacity);
            check(&allocator, &living);
        }
        for (block, _) in living.drain(..) {
            allocator.free(block);
        }
        allocator.empty_cache();
        check(&allocator, &[]);
        prop_assert_eq!(allocator.reserved_bytes(), 0);
    }

    /// What is freed serves as many requests of the same size again without new memory. (Of different sizes it need not:
    /// the best fit can be the rest of another segment.)
    #[test]
    fn a_second_round_takes_nothing_new(size in 1u64..30 * MIB, count in 1usize..30) {
        let sizes = vec![size; count];
        for config in [AllocatorConfig::default(), AllocatorConfig::default().with_expandable_segments()] {
            let mut allocator = CachingAllocator::new(config, u64::MAX);
            for round in 0..2 {
                let blocks: Vec<_> = sizes.iter().map(|size| allocator.allocate(*size, 0).unwrap()).collect();
                blocks.into_iter().for_each(|block| allocator.free(block));
                if round == 0 {
                    allocator.segments.clear();
                }
            }
            prop_assert_eq!(allocator.segments(), []);
        }
    }
}

/// The cases in the head comment of CUDACachingAllocator.cpp, one after the other on one device.
#[test]
fn small_and_large_requests_have_segments_of_their_own() {
    let mut allocator = CachingAllocator::new(AllocatorConfig::default(), u64::MAX);
    let small = allocator.allocate(1, 0).unwrap();
    assert_eq!(
        (allocator.allocated_bytes(), allocator.reserved_bytes()),
        (512, 2 * MIB)
    );
    allocator.allocate(3 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved_bytes(), 22 * MIB);
    // From the rest of the 20 MiB.
    allocator.allocate(9 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved_bytes(), 22 * MIB);
    allocator.allocate(11 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved_bytes(), 34 * MIB);
    // Another stream has nothing of all this.
    allocator.allocate(1, 1).unwrap();
    assert_eq!(allocator.reserved_bytes(), 36 * MIB);
    allocator.free(small);
    allocator.empty_cache();
    assert_eq!(allocator.reserved_bytes(), 34 * MIB);
}

#[test]
fn a_full_device_gets_its_free_segments_back_first() {
    let mut allocator = CachingAllocator::new(AllocatorConfig::default(), 40 * MIB);
    let first = allocator.allocate(30 * MIB, 0).unwrap();
    allocator.free(first);
    // It does not fit into the 30 MiB, which are given back.
    let block = allocator.allocate(32 * MIB, 0).unwrap();
    assert_eq!(
        (allocator.retries(), allocator.reserved_bytes()),
        (1, 32 * MIB)
    );
    let refusal = allocator.allocate(10 * MIB, 0).unwrap_err();
    assert_eq!(
        (refusal.segment_bytes, refusal.reserved_bytes),
        (10 * MIB, 32 * MIB)
    );
    allocator.free(block);
}

/// `should_split`: up to 1 MiB stays with a large block, and counts as allocated.
#[test]
fn the_rest_of_a_large_block_up_to_1_mib_is_given_away_with_it() {
    let mut allocator = CachingAllocator::new(AllocatorConfig::default(), u64::MAX);
    allocator.allocate(11 * MIB + 512, 0).unwrap();
    assert_eq!(
        (allocator.allocated_bytes(), allocator.reserved_bytes()),
        (12 * MIB, 12 * MIB)
    );
}

#[test]
fn an_expandable_segment_grows_by_pages() {
    let mut allocator = CachingAllocator::new(
        AllocatorConfig::default().with_expandable_segments(),
        100 * MIB,
    );
    let first = allocator.allocate(30 * MIB, 0).unwrap();
    assert_eq!(
        (allocator.allocated_bytes(), allocator.reserved_bytes()),
        (30 * MIB, 40 * MIB)
    );
    // 10 MiB of it are in the second page.
    let second = allocator.allocate(30 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved_bytes(), 60 * MIB);
    // The first page, and a half of the second, are free; the segment grows at its end all the same.
    allocator.free(first);
    allocator.allocate(35 * MIB, 0).unwrap();
    assert_eq!(allocator.reserved_bytes(), 100 * MIB);
    // Full: the free page at the begin is unmapped, and mapped at the end.
    allocator
        .allocate(8 * MIB, 1)
        .unwrap_or_else(|refusal| panic!("{refusal:?}"));
    assert_eq!(
        (allocator.retries(), allocator.reserved_bytes()),
        (1, 100 * MIB)
    );
    allocator.free(second);
}
