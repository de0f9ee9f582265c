//! The least memory with which runs complete.

use recording::{Buffer, BufferId, Bytes, Event, Recording};

use crate::card::DeviceSpec;
use crate::parallel::parallel_map;
use crate::replay::{replay, replay_growing};
use crate::simulated::Simulated;

const MIB: u64 = 1 << 20;

/// The least memory, in whole MiB, with which every one of `recordings` completes on a card like `spec`, of those with more than
/// `short`, with which one does not complete, or which is less than what one has in use at once. `reserved` is the most bytes
/// that one of the recordings reserved on a card with unlimited memory.
///
/// If a buffer is larger than a shader can bind, no memory is enough; the result then ignores that limit.
pub(crate) fn least_memory(
    spec: &DeviceSpec,
    recordings: &[&Recording],
    short: Bytes,
    reserved: Bytes,
) -> Bytes {
    let mut spec = spec.clone();
    let buffers = recordings.iter().flat_map(|recording| &*recording.buffers);
    let largest = buffers.map(|buffer| buffer.bytes).max();
    let binding = &mut spec.card.largest_binding;
    *binding = largest.unwrap_or_default().max(*binding);
    let card = |mib: u64| spec.clone().with_memory(Bytes::mib(mib), Bytes::ZERO);
    let short = short.0 / MIB;
    let (guess, unproved) = guess(recordings, short + 1, card, mib(reserved));
    let wanted = |recording: &&Recording, memory: u64| {
        let bytes = |buffer: BufferId| recording.buffer(buffer).bytes;
        replay(&card(memory), recording, bytes).wanted.map(mib)
    };
    let enough = least(short, guess, |memory| {
        let tried = match memory == guess {
            true => &recordings[..unproved],
            false => recordings,
        };
        // What needed the most so far is first to need more again.
        let mut tried = tried.iter().rev();
        tried.find_map(|recording| wanted(recording, memory))
    });
    Bytes::mib(enough)
}

/// A number of MiB, `start` or more, that is probably enough for all of `recordings`, and how many of them are to be tried with it:
/// the others completed. A replay on a card that grows usually ends with the answer, so each begins where the one before ended.
fn guess(
    recordings: &[&Recording],
    start: u64,
    card: impl Fn(u64) -> DeviceSpec,
    reserved: u64,
) -> (u64, usize) {
    let mut guess = start;
    let mut unproved = 0;
    for (index, recording) in recordings.iter().enumerate() {
        let bytes = |buffer: BufferId| recording.buffer(buffer).bytes;
        // No single allocation is too large for the roomy card, and the tuner tries what it can try on the other.
        let mut roomy = card(reserved.max(guess));
        roomy.simulation.largest_trial = Some(card(guess).largest_trial());
        let grown = mib(replay_growing(&roomy, recording, bytes, Bytes::mib(guess)));
        if grown > guess {
            (guess, unproved) = (grown, index + 1);
        }
    }
    (guess, unproved)
}

impl Simulated {
    /// The least memory, in whole MiB, with which the program completes in this run on such a card.
    pub fn required(&self) -> Bytes {
        let short = below(most_needed(&self.recording));
        least_memory(&self.spec, &[&self.recording], short, self.reserved)
    }
}

/// The most bytes in use at once that the program cannot go on without: no card with less completes the run.
pub(crate) fn most_needed(recording: &Recording) -> Bytes {
    let mut needed = Bytes::ZERO;
    let mut most = Bytes::ZERO;
    for event in &recording.events {
        let (Event::Allocate(buffer) | Event::Free(buffer)) = event else {
            continue;
        };
        let Buffer {
            bytes, optional, ..
        } = *recording.buffer(*buffer);
        match event {
            _ if optional => {}
            Event::Allocate(_) => needed += bytes,
            _ => needed -= bytes,
        }
        most = most.max(needed);
    }
    most
}

/// Less memory than a run needs that has `in_use` in use at once.
pub(crate) fn below(in_use: Bytes) -> Bytes {
    in_use.saturating_sub(Bytes(1))
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
