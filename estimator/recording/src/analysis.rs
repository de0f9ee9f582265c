//! Computes lifetimes, categories, layers and bytes in use from a recording.

mod category;
mod history;
mod layers;
mod lifetimes;
mod timeline;

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use category::{Breakdown, Categories, Category};
pub use history::{History, Span, UsagePoint};
pub use layers::LayerOf;
pub use lifetimes::{Lifetime, Lifetimes};
pub use timeline::{PeakPosition, PhaseMemory, Timeline};

use crate::bytes::Bytes;
use crate::phase::Phase;
use crate::recording::{LayerId, Recording};

/// Everything that the estimator computes from a recording.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// When each buffer is in use.
    pub lifetimes: Lifetimes,
    /// The category of each buffer.
    pub categories: Categories,
    /// The layer of each launch and each buffer.
    pub layer_of: LayerOf,
    /// The bytes in use, event by event.
    pub timeline: Timeline,
}

/// The operation that a card executes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveOp {
    /// The path of its layer, if known.
    pub layer: Option<String>,
    /// The name of its kernel, if known.
    pub kernel: Option<String>,
}

/// The memory of one layer. Each number is the largest at the end of a phase of the last step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct LayerMemory {
    /// The layer's path in the module tree.
    pub path: String,
    /// The type of the layer.
    pub kind: String,
    /// The layer's parameters.
    pub parameter_bytes: Bytes,
    /// Activations that the layer saves for the backward pass.
    pub activation_bytes: Bytes,
    /// The gradients of its parameters.
    pub gradient_bytes: Bytes,
    /// Optimizer state for the layer's parameters.
    pub optimizer_bytes: Bytes,
}

impl Analysis {
    /// Analyzes `recording`.
    pub fn of(recording: &Recording) -> Self {
        let lifetimes = Lifetimes::of(recording);
        Self {
            categories: Categories::of(recording, &lifetimes),
            layer_of: LayerOf::of(recording, &lifetimes),
            timeline: Timeline::of(recording),
            lifetimes,
        }
    }

    /// The bytes in use right after the event at `position`, by category.
    pub fn breakdown(&self, recording: &Recording, position: usize) -> Breakdown {
        let mut breakdown = Breakdown::default();
        for (buffer, life) in self.lifetimes.iter() {
            if life.covers(position) {
                breakdown[self.categories.get(buffer, position)] += recording.buffer(buffer).bytes;
            }
        }
        breakdown
    }

    /// How the memory in use changed, event by event.
    pub fn history(&self, recording: &Recording) -> History {
        History::of(recording, &self.categories, &self.layer_of)
    }

    /// The operation for which the card allocates at `position`: that of the [next launch](Recording::next_launch).
    pub fn active_op(&self, recording: &Recording, position: usize) -> ActiveOp {
        let Some((position, launch)) = recording.next_launch(position) else {
            return ActiveOp::default();
        };
        ActiveOp {
            layer: self
                .layer_of
                .launch(position)
                .map(|layer| path(recording, layer)),
            kernel: Some(kernel_name(recording.kernel(launch))),
        }
    }

    /// The layers of the last step, in the order in which they are first used.
    pub fn layers(&self, recording: &Recording) -> Vec<LayerMemory> {
        let step = last_step(recording.marks.iter().map(|mark| mark.phase));
        let mut memory: HashMap<LayerId, LayerMemory> = HashMap::new();
        let mut add = |layer: LayerId, category: Category, bytes: Bytes| {
            let described = &recording.layers[layer.0 as usize];
            let entry = memory.entry(layer).or_insert_with(|| LayerMemory {
                path: described.path.clone(),
                kind: described.kind.clone(),
                parameter_bytes: Bytes::ZERO,
                activation_bytes: Bytes::ZERO,
                gradient_bytes: Bytes::ZERO,
                optimizer_bytes: Bytes::ZERO,
            });
            let most = match category {
                Category::Parameters => &mut entry.parameter_bytes,
                Category::Activations => &mut entry.activation_bytes,
                Category::Gradients => &mut entry.gradient_bytes,
                Category::Optimizer => &mut entry.optimizer_bytes,
                _ => return,
            };
            *most = bytes.max(*most);
        };
        let wanted = [
            (Phase::Forward, Category::Activations),
            (Phase::Backward, Category::Gradients),
            (Phase::Optimizer, Category::Optimizer),
            (Phase::Forward, Category::Parameters),
        ];
        // A step with several networks repeats phases, one for each network; a layer is active in some of
        // them.
        for (phase, wanted) in wanted {
            for mark in step
                .clone()
                .filter(|mark| recording.marks[*mark].phase == phase)
            {
                let mut held: HashMap<LayerId, Bytes> = HashMap::new();
                for (buffer, category) in self.categories.buffers_at(mark) {
                    if category == wanted
                        && let Some(layer) = self.layer_of.buffer(buffer)
                    {
                        *held.entry(layer).or_default() += recording.buffer(buffer).bytes;
                    }
                }
                for (layer, bytes) in held {
                    add(layer, wanted, bytes);
                }
            }
        }
        let mut layers: Vec<_> = memory.into_iter().collect();
        layers.sort_by_key(|(layer, _)| (self.layer_of.first_launch(*layer), *layer));
        layers.into_iter().map(|(_, memory)| memory).collect()
    }
}

fn path(recording: &Recording, layer: LayerId) -> String {
    recording.layers[layer.0 as usize].path.clone()
}

/// The short name of a kernel: the module that contains its type, without the path and type arguments.
pub fn kernel_name(name: &str) -> String {
    let plain = name.split('<').next().unwrap_or(name);
    let mut parts: Vec<_> = plain.split("::").collect();
    let last = parts.pop().unwrap_or(plain);
    match parts.pop() {
        // The type of a kernel is in a module with the kernel's name.
        Some(module) => module.to_string(),
        None => last.to_string(),
    }
}

/// The indices of `phases` that belong to the last step; all of them if no step was completed.
///
/// A step that updates several networks has several optimizer phases, so a step begins with its batch. If there is no
/// phase of a batch at all, it begins after the update before, or after the initialization.
pub fn last_step(phases: impl Iterator<Item = Phase>) -> Range<usize> {
    let phases: Vec<_> = phases.collect();
    let last = |phases: &[Phase], wanted: &[Phase]| {
        let mut phases = phases.iter();
        phases.rposition(|phase| wanted.contains(phase))
    };
    let Some(update) = last(&phases, &[Phase::Optimizer]) else {
        return 0..phases.len();
    };
    let start = match last(&phases, &[Phase::Data]) {
        Some(batch) => batch,
        None => {
            let before = last(&phases[..update], &[Phase::Init, Phase::Optimizer]);
            before.map_or(0, |before| before + 1)
        }
    };
    match start <= update {
        true => start..update + 1,
        false => 0..phases.len(),
    }
}

/// The indices of `phases` that belong to each step. A step begins with the first batch after an update; if there is no
/// phase of a batch at all, right after an update. So a step has several batches if it accumulates their gradients, and
/// several updates if it trains several networks.
pub fn steps(phases: &[Phase]) -> Vec<Range<usize>> {
    let has_batches = phases.contains(&Phase::Data);
    let mut steps: Vec<Range<usize>> = Vec::new();
    // Whether the step has had an update, so that the next batch is of another step.
    let mut updated = true;
    for (index, phase) in phases.iter().enumerate() {
        if *phase == Phase::Init {
            continue;
        }
        if updated && (*phase == Phase::Data || !has_batches) {
            steps.push(index..index);
            updated = false;
        }
        if let Some(step) = steps.last_mut() {
            step.end = index + 1;
        }
        updated |= *phase == Phase::Optimizer;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::{last_step, steps};
    use crate::phase::Phase::{Backward, Data, Forward, Init, Optimizer};

    #[test]
    fn a_step_has_all_its_batches_and_all_its_updates() {
        let accumulated = [Data, Forward, Backward, Data, Forward, Backward, Optimizer];
        let phases = [&[Init][..], &accumulated, &accumulated].concat();
        assert_eq!(steps(&phases), [1..8, 8..15]);
        let adversarial = [Data, Forward, Backward, Optimizer, Backward, Optimizer];
        let phases = [&[Init][..], &adversarial, &adversarial].concat();
        assert_eq!(steps(&phases), [1..7, 7..13]);
    }

    #[test]
    fn without_batches_a_step_ends_with_its_update() {
        let step = [Forward, Backward, Optimizer];
        let phases = [&[Init][..], &step, &step, &[Forward]].concat();
        assert_eq!(steps(&phases), [1..4, 4..7, 7..8]);
        assert!(steps(&[Init]).is_empty() && steps(&[]).is_empty());
    }

    /// Two steps of two networks, with one batch for both.
    #[test]
    fn the_last_step_begins_with_its_batch() {
        let step = [Data, Forward, Backward, Optimizer, Backward, Optimizer];
        let phases = [Init].into_iter().chain(step).chain(step);
        assert_eq!(last_step(phases), 7..13);
    }

    #[test]
    fn without_batches_the_last_step_begins_after_the_update_before_it() {
        let step = [Forward, Backward, Optimizer];
        let one = [Init].into_iter().chain(step);
        assert_eq!(last_step(one.clone()), 1..4);
        let two = one.chain(step);
        assert_eq!(last_step(two.clone()), 4..7);
        // The last forward pass is of no whole step.
        assert_eq!(last_step(two.chain([Forward])), 4..7);
    }

    #[test]
    fn without_an_update_every_phase_counts() {
        assert_eq!(last_step([Init, Data, Forward].into_iter()), 0..3);
        assert_eq!(last_step([Init, Forward, Backward].into_iter()), 0..3);
        assert_eq!(last_step(std::iter::empty()), 0..0);
    }
}
