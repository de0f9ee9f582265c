//! Searches among numbers of samples.

use std::cmp::Reverse;

/// The largest batch that is tried: with more samples, the indices of a step's tensors would not fit into the
/// 32 bits with which most kernels count.
pub(super) const MAX_BATCH: u64 = 1 << 31;

/// Searches for a number that `fits` while the next one does not, from `start` outwards, first by `reach`.
/// Returns both; the first is 0 if no number fits. The search tries only numbers below `high` that `accepts`
/// allows, and assumes that `high` does not fit.
pub(super) fn gallop<E>(
    start: u64,
    mut reach: u64,
    high: u64,
    accepts: impl Fn(u64) -> bool,
    mut fits: impl FnMut(u64) -> Result<bool, E>,
) -> Result<(u64, u64), E> {
    let mut most = 0;
    let mut least = high;
    let mut wanted = start;
    while let Some(candidate) = nearest(wanted, most, least, &accepts) {
        match fits(candidate)? {
            true => most = candidate,
            false => least = candidate,
        }
        wanted = match (most > 0, least < high) {
            (true, false) => most.saturating_add(reach),
            (false, true) => least.saturating_sub(reach),
            _ => most + (least - most) / 2,
        };
        reach = reach.saturating_mul(2);
    }
    Ok((most, least))
}

/// The number nearest to `wanted` that `accepts` allows, strictly between `low` and `high`: the nearest from
/// below, or else from above.
fn nearest(wanted: u64, low: u64, high: u64, accepts: impl Fn(u64) -> bool) -> Option<u64> {
    if high - low < 2 {
        return None;
    }
    let wanted = wanted.clamp(low + 1, high - 1);
    let mut below = (low + 1..=wanted).rev();
    let mut above = wanted + 1..high;
    below
        .find(|batch| accepts(*batch))
        .or_else(|| above.find(|batch| accepts(*batch)))
}

/// The distances of the numbers above `low` and up to `high` at which the predictor tries whether a larger batch fits than `low`;
/// the buffers alone of `high` samples fit. The batches that fit there are few and have no order, so the distances are
/// chosen. With the first, 536 samples of Transformer-big are found to fit on a Quadro RTX 6000 (mixed precision, without fusion),
/// where 522 do not; with the second, 442 samples of ELMo on an RTX A4500, where 400 do not.
pub(super) fn probe_distances(low: u64, high: u64) -> [u64; 2] {
    let above = high.saturating_sub(low);
    [above.div_ceil(8).max(1), high.div_ceil(32).max(1)]
}

/// The numbers above `low` and up to `high` at such distances from `high`, the largest first.
pub(super) fn probes(low: u64, high: u64) -> Vec<u64> {
    let strided = |distance| (low + 1..=high).rev().step_by(distance as usize);
    let distances = probe_distances(low, high).into_iter();
    let mut probes: Vec<_> = distances.flat_map(strided).collect();
    probes.sort_unstable_by_key(|probe| Reverse(*probe));
    probes.dedup();
    probes
}

/// The largest number from `low` on and below `high` that `fits`, if all smaller ones fit too; `low` is
/// assumed to fit.
pub(super) fn between(low: u64, high: u64, fits: impl Fn(u64) -> bool) -> u64 {
    // Double first: most answers are small, and refusing a large batch is not cheaper.
    let mut most = low;
    let mut least = (low + 1).min(high);
    while least < high && fits(least) {
        most = least;
        least = least.saturating_mul(2).min(high);
    }
    while least - most > 1 {
        let middle = most + (least - most) / 2;
        match fits(middle) {
            true => most = middle,
            false => least = middle,
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Against trying every number: the largest that fits, from every start, where every third number is
    /// accepted and where all are.
    #[test]
    fn a_gallop_finds_what_trying_every_number_finds() {
        for step in [1, 3] {
            let accepts = |number: u64| number.is_multiple_of(step);
            for limit in 0..40 {
                let fits = |number: u64| number <= limit;
                let expected = (1..50).filter(|n| accepts(*n) && fits(*n)).max();
                let next = (1..50).find(|n| accepts(*n) && !fits(*n));
                for start in [0, 1, 7, limit, limit + 1, 49] {
                    let Ok(found) = gallop(start, 1, 50, accepts, |n| Ok::<_, Infallible>(fits(n)));
                    assert_eq!(
                        found,
                        (expected.unwrap_or(0), next.unwrap_or(50)),
                        "from {start}"
                    );
                }
            }
        }
    }

    #[test]
    fn probes_are_counted_from_the_top() {
        assert_eq!(probes(20, 36), [36, 34, 32, 30, 28, 26, 24, 22]);
        assert_eq!(probes(56, 64), [64, 63, 62, 61, 60, 59, 58, 57]);
        assert_eq!(probes(320, 640)[..4], [640, 620, 600, 580]);
        assert_eq!(probes(640, 960)[..5], [960, 930, 920, 900, 880]);
        assert!(probes(7, 7).is_empty() && probes(8, 7).is_empty());
    }
}
