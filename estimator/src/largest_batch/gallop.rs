//! Searches among numbers of samples.

/// The largest batch that is tried: with more samples, the indices of a step's tensors would not fit into the
/// 32 bits with which most kernels count.
pub(super) const MAX_BATCH: u64 = 1 << 31;

/// What a search found out about a number of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// It fits.
    Fits,
    /// It does not fit, and is too large by about so many samples.
    TooLarge(u64),
}

impl From<bool> for Tried {
    fn from(fits: bool) -> Self {
        match fits {
            true => Self::Fits,
            false => Self::TooLarge(1),
        }
    }
}

/// Searches for a number that fits while the next one does not, from `start` outwards.
/// Returns both; the first is 0 if no number fits. The search tries only numbers below `high` that `accepts`
/// allows, and assumes that `high` does not fit.
pub(super) fn gallop<E>(
    start: u64,
    high: u64,
    accepts: impl Fn(u64) -> bool,
    mut tried: impl FnMut(u64) -> Result<Tried, E>,
) -> Result<(u64, u64), E> {
    let mut most = 0;
    let mut least = high;
    let mut wanted = start;
    let mut reach = 1;
    while let Some(candidate) = nearest(wanted, most, least, &accepts) {
        let middle = |most: u64, least: u64| most + (least - most) / 2;
        match tried(candidate)? {
            Tried::Fits => {
                most = candidate;
                wanted = match least < high {
                    // The next step up is more likely the last than the middle, where the way down was told.
                    true => most.saturating_add(reach).min(middle(most, least)),
                    false => most.saturating_add(reach),
                };
                reach = reach.saturating_mul(2);
            }
            Tried::TooLarge(by) => {
                least = candidate;
                wanted = match most > 0 {
                    true => middle(most, least),
                    false if by > reach => least.saturating_sub(by),
                    false => least.saturating_sub(reach),
                };
                reach = match by > reach || most > 0 {
                    true => 1,
                    false => reach.saturating_mul(2),
                };
            }
        }
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
                    // Whatever it is told about the way down.
                    for by in [1, 2, 30] {
                        let tried = |n| match fits(n) {
                            true => Ok::<_, Infallible>(Tried::Fits),
                            false => Ok(Tried::TooLarge(by)),
                        };
                        let Ok(found) = gallop(start, 50, accepts, tried);
                        assert_eq!(
                            found,
                            (expected.unwrap_or(0), next.unwrap_or(50)),
                            "from {start}, {by}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_way_down_that_is_told_is_taken_at_once() {
        let mut numbers = Vec::new();
        let tried = |number: u64| {
            numbers.push(number);
            Ok::<_, Infallible>(match number <= 179 {
                true => Tried::Fits,
                false => Tried::TooLarge(number - 179),
            })
        };
        let Ok(found) = gallop(190, 1 << 31, |_| true, tried);
        assert_eq!(found, (179, 180));
        assert_eq!(numbers, [190, 179, 180]);
    }
}
