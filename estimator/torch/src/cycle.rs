//! The last optimizer step of a trace, which a long training makes again and again (`recording::Cycle` for burn).

use std::ops::Range;

use recording::{Life, Phase, heirs};

use crate::trace::{BlockId, Event, Trace};

/// A step that can follow itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cycle {
    /// The positions of its events.
    pub events: Range<usize>,
    /// The blocks of the step before that die in this one, each with the block of this one that lives on in its place.
    pub heirs: Vec<(BlockId, BlockId)>,
}

impl Cycle {
    /// The last step of `trace`. None if it is not complete, if something happens after it, or if what it leaves to the next step
    /// is not what it was left.
    pub fn of(trace: &Trace) -> Option<Self> {
        let events = last_step(trace)?;
        let lives = trace.events[events.clone()].iter();
        let lives = lives.filter_map(|event| match event {
            Event::Allocate(block) => Some(Life::Born(*block)),
            Event::Free(block) => Some(Life::Dies(*block)),
            _ => None,
        });
        let kind = |block| (trace.block(block).bytes, trace.block(block).stream);
        let heirs = heirs(lives, kind)?;
        Some(Self { events, heirs })
    }
}

/// The positions of the last step of `trace`, if it ends there.
fn last_step(trace: &Trace) -> Option<Range<usize>> {
    let mut begins = Vec::new();
    let mut step = 0;
    let mut has_updated = false;
    for (position, event) in trace.events.iter().enumerate() {
        match event {
            Event::Phase(phase) => {
                let phase = trace.phases[*phase as usize];
                if phase.step > step {
                    step = phase.step;
                    begins.push(position);
                    has_updated = false;
                }
                has_updated |= phase.phase == Phase::Optimizer;
            }
            Event::Allocate(_) | Event::Free(_) | Event::EmptyCache | Event::ResetPeaks => {}
        }
    }
    let begin = begins.pop()?;
    if has_updated {
        return Some(begin..trace.events.len());
    }
    // The next step has begun, and has done nothing.
    let is_idle = |event: &Event| matches!(event, Event::Phase(_) | Event::ResetPeaks);
    let before = begins.pop()?;
    trace.events[begin..]
        .iter()
        .all(is_idle)
        .then_some(before..begin)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use recording::PhaseOfStep;

    use super::*;
    use crate::trace::Block;

    /// A trace of steps, of which each has blocks `(bytes, whether it lives until the next step)`.
    fn steps(steps: &[&[(u64, bool)]]) -> Trace {
        let mut trace = Trace::default();
        let mut events = Vec::new();
        let mut phases = Vec::new();
        let mut living: Vec<BlockId> = Vec::new();
        for (step, blocks) in steps.iter().enumerate() {
            let mut begin = |phase, events: &mut Vec<Event>| {
                events.push(Event::Phase(phases.len() as u32));
                phases.push(PhaseOfStep { phase, step });
            };
            begin(Phase::Data, &mut events);
            let old = std::mem::take(&mut living);
            for (bytes, lives_on) in *blocks {
                let id = BlockId(trace.blocks.len() as u32);
                trace.blocks.push(Block::tensor(*bytes));
                events.push(Event::Allocate(id));
                match lives_on {
                    true => living.push(id),
                    false => events.push(Event::Free(id)),
                }
            }
            events.extend(old.into_iter().map(Event::Free));
            begin(Phase::Optimizer, &mut events);
        }
        trace.events = Arc::new(events);
        trace.phases = Arc::new(phases);
        trace
    }

    #[test]
    fn a_step_leaves_to_the_next_what_it_was_left() {
        let step: &[(u64, bool)] = &[(10, true), (20, false), (30, true)];
        let cycle = Cycle::of(&steps(&[step, step])).unwrap();
        assert_eq!(cycle.events.len(), 8);
        let heir = |old, new| (BlockId(old), BlockId(new));
        assert_eq!(cycle.heirs, [heir(0, 3), heir(2, 5)]);
    }

    #[test]
    fn a_step_that_is_unlike_the_one_before_is_none() {
        let step: &[(u64, bool)] = &[(10, true), (20, false)];
        assert_eq!(Cycle::of(&steps(&[step])), None);
        assert_eq!(Cycle::of(&steps(&[step, &[(11, true)]])), None);
        assert_eq!(Cycle::of(&steps(&[step, &[(10, true), (20, true)]])), None);
        assert_eq!(Cycle::of(&Trace::default()), None);
    }
}
