//! Random numbers, the same in every run.

/// The number after `state`. Knuth's generator (The Art of Computer Programming, volume 2, section 3.3.4, table 1).
pub(crate) fn next(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}
