//! The history of the memory in use, by category, with the phases and layers that were active.

use std::collections::HashMap;
use std::ops::Range;

use strum::IntoEnumIterator;

use super::category::{Breakdown, Categories, Category};
use super::layers::LayerOf;
use crate::phase::{Phase, PhaseOfStep};
use crate::recording::{BufferId, Event, LayerId, Recording};

/// The bytes in use from one event on, until the next point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsagePoint {
    /// The position of the event in [`Recording::events`].
    pub position: usize,
    /// The bytes in use, by category.
    pub in_use: Breakdown,
}

/// A range of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span<T> {
    /// The phase or layer that is active in it.
    pub what: T,
    /// Its positions in [`Recording::events`].
    pub events: Range<usize>,
}

/// The history of the memory in use, with the phases and layers that were active.
///
/// A history has no times: it knows the order of the events, and not how long each took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// One point for each change.
    pub points: Vec<UsagePoint>,
    /// The phases.
    pub phases: Vec<Span<PhaseOfStep>>,
    /// The active layers: consecutive launches of one layer within a phase, with the allocations made for
    /// them.
    pub layers: Vec<Span<LayerId>>,
    /// The number of events.
    pub end: usize,
    /// The phase with which a step begins.
    first_phase: Phase,
}

impl History {
    /// Computes the history of `recording`.
    pub fn of(recording: &Recording, categories: &Categories, layer_of: &LayerOf) -> Self {
        Self {
            points: points(recording, categories),
            phases: phases(recording),
            layers: layers(recording, layer_of),
            end: recording.events.len(),
            first_phase: recording.first_phase(),
        }
    }

    /// A history of `end` events that another program than burn made.
    pub fn new(
        points: Vec<UsagePoint>,
        phases: Vec<Span<PhaseOfStep>>,
        layers: Vec<Span<LayerId>>,
        end: usize,
    ) -> Self {
        let any_data = phases.iter().any(|span| span.what.phase == Phase::Data);
        Self {
            points,
            phases,
            layers,
            end,
            first_phase: match any_data {
                true => Phase::Data,
                false => Phase::Forward,
            },
        }
    }

    /// The events of the step that contains the event at `position`, from its first batch to its last update;
    /// before the first batch, all events up to that. Forward passes stand for batches if there are none.
    pub fn step_around(&self, position: usize) -> Range<usize> {
        let mut start = 0;
        let mut updated = true;
        for span in &self.phases {
            let begins = updated && span.what.phase == self.first_phase;
            if begins && span.events.start > position {
                return start..span.events.start;
            }
            if begins {
                start = span.events.start;
            }
            updated = matches!(span.what.phase, Phase::Init | Phase::Optimizer);
        }
        start..self.end
    }

    /// The points of `events`, after one with the bytes in use at their beginning. If there are more than
    /// `parts`, this divides `events` into `parts` equal ranges and keeps only a few points of each: those
    /// with the fewest and the most bytes in use, with the most bytes of each category, and the last. So no
    /// peak is lost, and each range begins with the right values.
    pub fn downsample(&self, events: Range<usize>, parts: usize) -> Vec<UsagePoint> {
        let after = |position: usize| {
            let points = &self.points;
            points.partition_point(|point| point.position <= position)
        };
        let before = match after(events.start) {
            0 => Breakdown::default(),
            next => self.points[next - 1].in_use,
        };
        let mut kept = vec![UsagePoint {
            position: events.start,
            in_use: before,
        }];
        let mut within = &self.points[after(events.start)..];
        within = &within[..within.partition_point(|point| point.position < events.end)];
        if within.len() <= parts {
            kept.extend(within);
            return kept;
        }
        for part in 1..=parts {
            let end = events.start + events.len() * part / parts;
            let (now, later) =
                within.split_at(within.partition_point(|point| point.position < end));
            kept.extend(extremes(now).into_iter().map(|index| now[index]));
            within = later;
        }
        kept
    }
}

/// The indices of those `points` that are extremes or the last, in order; of equal points, the first.
fn extremes(points: &[UsagePoint]) -> Vec<usize> {
    let all = || points.iter().enumerate().rev();
    let least = all().min_by_key(|(index, point)| (point.in_use.total(), *index));
    let most = all().max_by_key(|(_, point)| point.in_use.total());
    let of_each =
        Category::iter().map(|category| all().max_by_key(|(_, point)| point.in_use[category]));
    let found = [least, most, all().next()].into_iter().chain(of_each);
    let mut indices: Vec<_> = found.flatten().map(|(index, _)| index).collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

fn points(recording: &Recording, categories: &Categories) -> Vec<UsagePoint> {
    let mut live: HashMap<BufferId, Category> = HashMap::new();
    let mut in_use = Breakdown::default();
    let mut points = Vec::new();
    for (position, event) in recording.events.iter().enumerate() {
        let before = in_use;
        match event {
            Event::Allocate(buffer) => {
                let category = categories.get(*buffer, position);
                in_use[category] += recording.buffer(*buffer).bytes;
                live.insert(*buffer, category);
            }
            Event::Free(buffer) => {
                if let Some(category) = live.remove(buffer) {
                    in_use[category] -= recording.buffer(*buffer).bytes;
                }
            }
            // A buffer changes its category only at a mark.
            Event::Mark(_) => {
                for (buffer, category) in &mut live {
                    let bytes = recording.buffer(*buffer).bytes;
                    in_use[*category] -= bytes;
                    *category = categories.get(*buffer, position);
                    in_use[*category] += bytes;
                }
            }
            _ => {}
        }
        if in_use != before {
            points.push(UsagePoint { position, in_use });
        }
    }
    points
}

fn phases(recording: &Recording) -> Vec<Span<PhaseOfStep>> {
    let mut start = 0;
    let mut spans = Vec::with_capacity(recording.marks.len());
    for (position, event) in recording.events.iter().enumerate() {
        if let Event::Mark(mark) = event {
            let mark = &recording.marks[*mark as usize];
            spans.push(Span {
                what: PhaseOfStep {
                    phase: mark.phase,
                    step: mark.step,
                },
                events: start..position,
            });
            start = position;
        }
    }
    spans
}

fn layers(recording: &Recording, layer_of: &LayerOf) -> Vec<Span<LayerId>> {
    let mut spans: Vec<Span<LayerId>> = Vec::new();
    let mut start = 0;
    // Whether the last span can continue.
    let mut open = false;
    for (position, event) in recording.events.iter().enumerate() {
        match event {
            Event::Launch(_) => {
                let layer = layer_of.launch(position);
                match (layer, spans.last_mut()) {
                    (Some(layer), Some(last)) if open && last.what == layer => {
                        last.events.end = position + 1;
                    }
                    (Some(layer), _) => spans.push(Span {
                        what: layer,
                        events: start..position + 1,
                    }),
                    (None, _) => {}
                }
                open = layer.is_some();
                start = position + 1;
            }
            Event::Mark(_) => {
                open = false;
                start = position;
            }
            _ => {}
        }
    }
    spans
}
