//! A step that can follow itself: what it leaves to the next step is what it was left.
//!
//! A recording has few steps, and a training makes many. Where an allocator puts buffers changes for some more steps, until each
//! step finds free what the one before it found. So who asks whether a training fits makes the last step again.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::analysis::steps;
use crate::bytes::Bytes;
use crate::phase::Phase;
use crate::recording::{AllocationMode, BufferId, Event, Recording};

/// What happens to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life<Id> {
    /// It is allocated.
    Born(Id),
    /// It is freed.
    Dies(Id),
}

/// The buffers of earlier steps that die in a step, each with the buffer of this step that lives on in its place: of those of one
/// `kind`, in the order of birth, in which buffers are numbered. None if they are not as many of each kind.
pub fn heirs<Id: Copy + Ord, Kind: Ord>(
    lives: impl IntoIterator<Item = Life<Id>>,
    kind: impl Fn(Id) -> Kind,
) -> Option<Vec<(Id, Id)>> {
    let mut born = BTreeSet::new();
    let mut inherited = BTreeSet::new();
    for life in lives {
        match life {
            Life::Born(buffer) => {
                born.insert(buffer);
            }
            Life::Dies(buffer) => {
                if !born.remove(&buffer) {
                    inherited.insert(buffer);
                }
            }
        }
    }
    let by_kind = |buffers: BTreeSet<Id>| {
        let mut buffers: Vec<_> = buffers.into_iter().collect();
        buffers.sort_by_key(|buffer| kind(*buffer));
        buffers
    };
    let as_many = inherited.len() == born.len();
    let pairs: Vec<_> = by_kind(inherited).into_iter().zip(by_kind(born)).collect();
    let are_alike = pairs.iter().all(|(old, new)| kind(*old) == kind(*new));
    (as_many && are_alike).then_some(pairs)
}

/// The last step of a recording, if it can follow itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The positions of its events.
    pub events: Range<usize>,
    /// The buffers that it is left, each with the one that it leaves in its place.
    pub heirs: Vec<(BufferId, BufferId)>,
}

impl Recording {
    /// The last step, if it can follow itself; none if it is not like the step before, or if burn's tuner tries kernels in it.
    pub fn cycle(&self) -> Option<Cycle> {
        let [_, events] = self.last_steps()?;
        let tunes = |event: &Event| match event {
            Event::Allocate(buffer) => self.buffer(*buffer).optional,
            Event::Mode(mode) => *mode == AllocationMode::Dedicated,
            _ => false,
        };
        if self.events[events.clone()].iter().any(tunes) {
            return None;
        }
        // The runtime allocates the metadata of launches by itself.
        let lives = self.events[events.clone()]
            .iter()
            .filter_map(|event| match event {
                Event::Allocate(buffer) | Event::Free(buffer) if self.buffer(*buffer).metadata => {
                    None
                }
                Event::Allocate(buffer) => Some(Life::Born(*buffer)),
                Event::Free(buffer) => Some(Life::Dies(*buffer)),
                _ => None,
            });
        let heirs = heirs(lives, |buffer| self.buffer(buffer).bytes)?;
        Some(Cycle { events, heirs })
    }

    /// Whether the last two steps allocate the same, so that another does as well.
    pub fn repeats(&self) -> bool {
        let allocated = |events: &Range<usize>| -> Vec<Bytes> {
            let events = self.events[events.clone()].iter();
            let buffers = events.filter_map(|event| match event {
                Event::Allocate(buffer) => Some(self.buffer(*buffer)),
                _ => None,
            });
            let buffers = buffers.filter(|buffer| !buffer.metadata);
            buffers.map(|buffer| buffer.bytes).collect()
        };
        self.last_steps()
            .is_some_and(|[before, last]| allocated(&before) == allocated(&last))
    }

    /// The positions of the last two of three steps or more, if they are complete and have the same phases.
    fn last_steps(&self) -> Option<[Range<usize>; 2]> {
        let phases: Vec<_> = self.marks.iter().map(|mark| mark.phase).collect();
        let steps = steps(&phases);
        // The first step makes what the others are left.
        let [_, .., before, last] = steps.as_slice() else {
            return None;
        };
        let of = |step: &Range<usize>| &phases[step.clone()];
        if of(before) != of(last) || !of(last).contains(&Phase::Optimizer) {
            return None;
        }
        let ends = self.events.iter().enumerate();
        let ends: Vec<_> = ends
            .filter(|(_, event)| matches!(event, Event::Mark(_)))
            .map(|(position, _)| position + 1)
            .collect();
        let begin = |step: &Range<usize>| ends.get(step.start.checked_sub(1)?).copied();
        let (first, middle) = (begin(before)?, begin(last)?);
        let end = *ends.get(last.end - 1)?;
        let is_idle = |event: &Event| !matches!(event, Event::Allocate(_) | Event::Launch(_));
        let is_last = self.events[end..].iter().all(is_idle);
        is_last.then_some([first..middle, middle..end])
    }
}

#[cfg(test)]
mod tests {
    use super::Life::{Born, Dies};
    use super::heirs;

    #[test]
    fn what_a_step_leaves_takes_the_place_of_what_it_was_left() {
        // A weight of 10 bytes and a batch of 30 are left; the step makes them anew in another order, and something of its own.
        let bytes = |buffer: u32| [10, 30, 30, 20, 10][buffer as usize];
        let step = [Born(2), Born(3), Dies(1), Dies(3), Born(4), Dies(0)];
        assert_eq!(heirs(step, bytes), Some(vec![(0, 4), (1, 2)]));
        // Without the new weight, the next step would find none.
        let step = [Born(2), Dies(1), Dies(0)];
        assert_eq!(heirs(step, bytes), None);
        let step = [Born(2), Dies(0)];
        assert_eq!(heirs(step, bytes), None);
    }
}
