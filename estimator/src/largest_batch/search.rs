//! Searches among numbers of samples.

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

/// The largest share of the largest batch whose buffers alone fit that lies between batches which the predictor tries above the
/// one that it found. Chosen; in this way it finds that 442 samples of ELMo fit on an RTX A4500, where 400 do not.
const PARTS: u64 = 32;

/// How many such batches there are at least, if there are as many numbers above. Chosen.
const PROBES: u64 = 8;

/// The distance of such batches above `low`, if no more than `high` samples fit. It is even unless it is 1, so that the batches are
/// even too: of the batches of InferSent from 883 to 898, only the even ones fit on an RTX 3090 (wgpu, without fusion).
pub(super) fn probe_distance(low: u64, high: u64) -> u64 {
    let gap = high.saturating_sub(low);
    match gap.div_ceil(PROBES).min(high.div_ceil(PARTS)) {
        0 | 1 => 1,
        distance => distance.next_multiple_of(2),
    }
}

/// The multiples of `distance` above `low` and up to `high`, the largest first.
pub(super) fn multiples(low: u64, high: u64, distance: u64) -> impl Iterator<Item = u64> {
    let multiples = (low / distance + 1..=high / distance).rev();
    multiples.map(move |multiple| multiple * distance)
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
    fn probes_are_few_and_mostly_even() {
        let probes = |low, high| {
            let distance = probe_distance(low, high);
            multiples(low, high, distance).collect::<Vec<_>>()
        };
        assert_eq!(probes(881, 963), [960, 948, 936, 924, 912, 900, 888]);
        assert_eq!(probes(60, 70), [70, 68, 66, 64, 62]);
        assert_eq!(probes(71, 76), [76, 75, 74, 73, 72]);
        assert!(probes(7, 7).is_empty() && probes(8, 7).is_empty());
        assert!((0..2000).all(|high| probes(0, high).len() as u64 <= PARTS));
    }
}
