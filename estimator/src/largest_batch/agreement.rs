//! Whether the steps of two batches make the same calls.

use std::collections::BTreeSet;

use recording::{Buffer, BufferId, Event, Recording};
use serde::{Deserialize, Serialize};

/// How far the calls of two batches agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Agreement {
    /// The same calls in the same order.
    Exact,
    /// The same calls, but some buffers are freed earlier or later, since one kernel in place of another holds its
    /// inputs for longer: seen of NASNet. That is enough to propose a batch, but predicts no other batch exactly.
    ButForFrees,
}

impl Agreement {
    /// How far two recordings have the same calls of the program, whatever the sizes; `None` if they have other
    /// calls. Buffers that a runtime keeps for itself do not count, since it drops them on a full card and allocates
    /// them again.
    pub(super) fn between(a: &Recording, b: &Recording) -> Option<Self> {
        let (number_a, number_b) = (numbers(a), numbers(b));
        let same_buffer =
            |x: &BufferId, y: &BufferId| number_a[x.0 as usize] == number_b[y.0 as usize];
        let same_buffers = |x: &[BufferId], y: &[BufferId]| {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same_buffer(x, y))
        };
        let same = |x: &Event, y: &Event| match (x, y) {
            (Event::Launch(x), Event::Launch(y)) => {
                same_buffers(a.writes(*x), b.writes(*y))
                    && same_buffers(a.reads(*x), b.reads(*y))
                    && a.launch(*x).is_empty == b.launch(*y).is_empty
            }
            (Event::Allocate(x), Event::Allocate(y)) | (Event::Free(x), Event::Free(y)) => {
                same_buffer(x, y)
            }
            (Event::Stream(_), Event::Stream(_)) | (Event::Read(_), Event::Read(_)) => true,
            (x, y) => x == y,
        };
        if pairwise(calls(a), calls(b), same) {
            return Some(Self::Exact);
        }
        let others = |recording| calls(recording).filter(|event| !matches!(event, Event::Free(_)));
        let freed = |recording, numbers: &[Option<usize>]| -> BTreeSet<_> {
            let freed = calls(recording).filter_map(|event| match event {
                Event::Free(buffer) => Some(numbers[buffer.0 as usize]),
                _ => None,
            });
            freed.collect()
        };
        let but_for_frees =
            pairwise(others(a), others(b), same) && freed(a, &number_a) == freed(b, &number_b);
        but_for_frees.then_some(Self::ButForFrees)
    }
}

/// Whether two sequences of events have the same length and each pair is the `same`.
fn pairwise<'a>(
    mut a: impl Iterator<Item = &'a Event>,
    mut b: impl Iterator<Item = &'a Event>,
    same: impl Fn(&Event, &Event) -> bool,
) -> bool {
    a.all(|x| b.next().is_some_and(|y| same(x, y))) && b.next().is_none()
}

/// The events of the program, without those of the runtime's own buffers.
fn calls(recording: &Recording) -> impl Iterator<Item = &Event> {
    recording.events.iter().filter(|event| match event {
        Event::Allocate(buffer) | Event::Free(buffer) => !recording.buffer(*buffer).metadata,
        _ => true,
    })
}

/// The buffers of the program, in the order of birth.
pub(super) fn own_buffers(recording: &Recording) -> impl Iterator<Item = (BufferId, &Buffer)> {
    let buffers = recording.buffers.iter().enumerate();
    let buffers = buffers.map(|(id, buffer)| (BufferId(id as u32), buffer));
    buffers.filter(|(_, buffer)| !buffer.metadata)
}

/// By [`BufferId`]: the index among the program's buffers; `None` for a buffer of the runtime.
fn numbers(recording: &Recording) -> Vec<Option<usize>> {
    let mut numbers = vec![None; recording.buffers.len()];
    for (number, (buffer, _)) in own_buffers(recording).enumerate() {
        numbers[buffer.0 as usize] = Some(number);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use recording::Bytes;

    /// Two buffers, and these events.
    fn recording(events: [Event; 4]) -> Recording {
        let buffer = Buffer {
            bytes: Bytes(512),
            layout: None,
            metadata: false,
            optional: false,
        };
        let mut recording = Recording::default();
        recording.events.extend(events);
        recording.buffers = Arc::new(vec![buffer, buffer]);
        recording
    }

    const FIRST: BufferId = BufferId(0);
    const SECOND: BufferId = BufferId(1);

    fn early() -> Recording {
        recording([
            Event::Allocate(FIRST),
            Event::Free(FIRST),
            Event::Allocate(SECOND),
            Event::Flush,
        ])
    }

    #[test]
    fn a_buffer_that_is_freed_later_is_no_exact_agreement() {
        let late = recording([
            Event::Allocate(FIRST),
            Event::Allocate(SECOND),
            Event::Free(FIRST),
            Event::Flush,
        ]);
        let between = Agreement::between(&early(), &late);
        assert_eq!(between, Some(Agreement::ButForFrees));
        let between = Agreement::between(&early(), &early());
        assert_eq!(between, Some(Agreement::Exact));
    }

    #[test]
    fn other_calls_do_not_agree() {
        let other_call = recording([
            Event::Allocate(FIRST),
            Event::Free(FIRST),
            Event::Allocate(SECOND),
            Event::Write,
        ]);
        assert_eq!(Agreement::between(&early(), &other_call), None);
        let other_buffer = recording([
            Event::Allocate(FIRST),
            Event::Allocate(SECOND),
            Event::Free(SECOND),
            Event::Flush,
        ]);
        assert_eq!(Agreement::between(&early(), &other_buffer), None);
    }
}
