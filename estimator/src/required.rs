//! The least memory with which a program completes.

use crate::Bytes;
use crate::card::CardSpec;
use crate::record::BufferId;
use crate::replay::{replay, stretch};
use crate::run::Simulated;

const MIB: u64 = 1 << 20;

/// The least memory, in whole MiB, with which the program completes on a card like `spec`;
/// `live` is the most that it has in use at once.
///
/// Where a buffer is larger than a shader can bind, no memory is enough; what it would take
/// without that limit is said then.
pub(crate) fn required(simulated: &Simulated, spec: &CardSpec, live: Bytes) -> Bytes {
    let recording = &simulated.recording;
    let bytes = |buffer: BufferId| recording.buffer(buffer).bytes;
    let largest = recording.buffers.iter().map(|buffer| buffer.bytes).max();
    let spec = CardSpec {
        largest_binding: spec.largest_binding.max(largest.unwrap_or_default()),
        ..spec.clone()
    };
    let card = |mib: u64| spec.clone().with_memory(Bytes::mib(mib), Bytes::ZERO);
    // A card that grows as it has to usually ends with the answer, so begin there.
    let roomy = card(mib(simulated.reserved).max(1));
    let guess = mib(stretch(&roomy, recording, live));
    // Fewer bytes than are in use cannot do.
    let enough = least(live.0 / MIB, guess, |mib| {
        replay(&card(mib), recording, bytes).wanted.map(self::mib)
    });
    Bytes::mib(enough)
}

/// As many MiB as hold so much.
fn mib(bytes: Bytes) -> u64 {
    bytes.0.div_ceil(MIB)
}

/// The least number above `short` that lacks nothing, looked for around `guess` in steps that
/// double; the number below it was tried, and lacks something. What a number lacks is said as
/// what would have done instead, which is a hint and no bound: with less room the pools tidy
/// up earlier, and may do with less.
fn least(mut short: u64, guess: u64, lacking: impl Fn(u64) -> Option<u64>) -> u64 {
    let mut step = 1;
    let mut enough = guess.max(short + 1);
    while let Some(wanted) = lacking(enough) {
        short = enough;
        enough = wanted.max(short + step);
        step *= 2;
    }
    let mut step = 1;
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        let below = enough.saturating_sub(step).max(middle);
        match lacking(below) {
            None => {
                enough = below;
                step = step.saturating_mul(2);
            }
            // From here on, halve what is left.
            Some(_) => {
                short = below;
                step = u64::MAX;
            }
        }
    }
    enough
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

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
        let tries = Cell::new(0);
        let found = least(3, 20, |n| {
            tries.set(tries.get() + 1);
            (n < 20).then_some(n + 1)
        });
        assert_eq!((found, tries.get()), (20, 2));
    }
}
