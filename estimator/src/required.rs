//! The least memory with which a program completes.

use crate::Bytes;
use crate::parallel::parallel_map;
use crate::record::BufferId;
use crate::replay::{replay, replay_growing};
use crate::simulated::Simulated;

const MIB: u64 = 1 << 20;

/// The least memory, in whole MiB, with which the program completes on a card like the one of `simulated`;
/// `live` is the most bytes that the program has in use at once.
///
/// If a buffer is larger than a shader can bind, no memory is enough; the result then ignores that limit.
pub(crate) fn required(simulated: &Simulated, live: Bytes) -> Bytes {
    let recording = &simulated.recording;
    let bytes = |buffer: BufferId| recording.buffer(buffer).bytes;
    let largest = recording.buffers.iter().map(|buffer| buffer.bytes).max();
    let mut spec = simulated.spec.clone();
    let binding = &mut spec.card.largest_binding;
    *binding = largest.unwrap_or_default().max(*binding);
    let card = |mib: u64| spec.clone().with_memory(Bytes::mib(mib), Bytes::ZERO);
    // A replay on a growing card usually ends with the answer, so the search begins there.
    let roomy = card(mib(simulated.reserved).max(1));
    let guess = mib(replay_growing(&roomy, recording, bytes, live));
    // The answer is never below the bytes in use.
    let short = live.0.saturating_sub(1) / MIB;
    let enough = least(short, guess, |mib| {
        replay(&card(mib), recording, bytes).wanted.map(self::mib)
    });
    Bytes::mib(enough)
}

impl Simulated {
    /// The least memory, in whole MiB, with which the program completes on such a card.
    pub fn required(&self) -> Bytes {
        required(self, self.most_in_use())
    }
}

/// `bytes` in MiB, rounded up.
fn mib(bytes: Bytes) -> u64 {
    bytes.0.div_ceil(MIB)
}

/// Finds a number above `short` that lacks nothing, while the number below it lacks something; both have been
/// tried, unless the number below is `short`, which is known to lack something. The search begins at `guess`.
///
/// `lacking` returns the number that would have been enough instead, or `None` if nothing is lacking. That
/// number is nearly always the answer, but no bound: with less memory the pools clean up earlier and may need
/// less.
fn least(mut short: u64, guess: u64, lacking: impl Fn(u64) -> Option<u64> + Sync) -> u64 {
    let mut enough = guess.max(short + 1);
    let (at, below) = with_the_next_below(enough, short, &lacking);
    let mut hint = None;
    match (at, below) {
        (Some(wanted), _) => {
            short = enough;
            enough = double_until(short, wanted, &lacking);
            hint = Some((enough - 1, false));
        }
        (None, Some(_)) => return enough,
        (None, None) => enough -= 1,
    }
    while enough - short > 1 {
        let within = |(tried, _): &(u64, bool)| short < *tried && *tried < enough;
        let middle = (short + (enough - short) / 2, false);
        let (tried, promised) = hint.take().filter(within).unwrap_or(middle);
        match lacking(tried) {
            None => {
                enough = tried;
                hint = promised.then_some((tried - 1, false));
            }
            Some(wanted) => {
                short = tried;
                hint = Some((wanted, true));
            }
        }
    }
    enough
}

/// What `number` and the number below it lack, tried in parallel. `short` is known to lack something and is
/// not tried again.
fn with_the_next_below(
    number: u64,
    short: u64,
    lacking: &(impl Fn(u64) -> Option<u64> + Sync),
) -> (Option<u64>, Option<u64>) {
    if number - 1 <= short {
        return (lacking(number), Some(number));
    }
    let lack = parallel_map([number, number - 1], lacking);
    (lack[0], lack[1])
}

/// A number above `short` that lacks nothing: `wanted`, or the first one found from there in doubling steps.
fn double_until(mut short: u64, wanted: u64, lacking: &impl Fn(u64) -> Option<u64>) -> u64 {
    let mut step = 1;
    let mut enough = wanted.max(short + 1);
    while let Some(wanted) = lacking(enough) {
        short = enough;
        enough = wanted.max(short + step);
        step *= 2;
    }
    enough
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_least_is_found_from_every_guess() {
        for least_that_does in 1..40 {
            for guess in 0..50 {
                let found = least(0, guess, |n| (n < least_that_does).then_some(n + 1));
                assert_eq!(found, least_that_does, "from {guess}");
            }
        }
    }

    #[test]
    fn a_right_guess_is_tried_and_what_is_one_less() {
        let tries = AtomicU32::new(0);
        let found = least(3, 20, |n| {
            tries.fetch_add(1, Ordering::Relaxed);
            (n < 20).then_some(n + 1)
        });
        assert_eq!((found, tries.into_inner()), (20, 2));
    }
}
