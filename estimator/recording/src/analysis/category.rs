//! The category of every buffer: what its bytes are for.

use std::collections::{HashMap, HashSet};
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator;

use super::lifetimes::Lifetimes;
use crate::bytes::Bytes;
use crate::mark::Role;
use crate::phase::Phase;
use crate::recording::{BufferId, Event, Recording};

/// The purpose of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Category {
    /// Weights, trained and frozen.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// Optimizer state, and fp32 copies of 16-bit weights.
    Optimizer,
    /// Activations that the forward pass saves for the backward pass.
    Activations,
    /// Buffers that exist only within a phase, and the runtime's metadata of launches.
    Temporaries,
    /// Memory that libraries keep for their kernels. burn has none; PyTorch's cuBLAS has.
    Workspaces,
    /// The batch.
    Inputs,
    /// Running statistics, and noise that is drawn once.
    Buffers,
}

impl From<Role> for Category {
    fn from(role: Role) -> Self {
        match role {
            Role::Parameter(_) | Role::Kept(_) => Self::Parameters,
            Role::Buffer(_) => Self::Buffers,
            Role::Gradient(_) => Self::Gradients,
            Role::Input => Self::Inputs,
        }
    }
}

/// Bytes by category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Breakdown {
    /// Weights.
    pub parameters: Bytes,
    /// Gradients of parameters.
    pub gradients: Bytes,
    /// Optimizer state.
    pub optimizer: Bytes,
    /// Activations saved for the backward pass.
    pub activations: Bytes,
    /// Buffers that exist only within a phase.
    pub temporaries: Bytes,
    /// Memory that libraries keep for their kernels; absent if there is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub workspaces: Bytes,
    /// The batch.
    pub inputs: Bytes,
    /// Running statistics, and noise that is drawn once.
    pub buffers: Bytes,
}

fn is_zero(bytes: &Bytes) -> bool {
    bytes.0 == 0
}

impl Breakdown {
    /// The sum of all categories.
    pub fn total(&self) -> Bytes {
        Category::iter().map(|category| self[category]).sum()
    }
}

impl Index<Category> for Breakdown {
    type Output = Bytes;

    fn index(&self, category: Category) -> &Bytes {
        match category {
            Category::Parameters => &self.parameters,
            Category::Gradients => &self.gradients,
            Category::Optimizer => &self.optimizer,
            Category::Activations => &self.activations,
            Category::Temporaries => &self.temporaries,
            Category::Workspaces => &self.workspaces,
            Category::Inputs => &self.inputs,
            Category::Buffers => &self.buffers,
        }
    }
}

impl IndexMut<Category> for Breakdown {
    fn index_mut(&mut self, category: Category) -> &mut Bytes {
        match category {
            Category::Parameters => &mut self.parameters,
            Category::Gradients => &mut self.gradients,
            Category::Optimizer => &mut self.optimizer,
            Category::Activations => &mut self.activations,
            Category::Temporaries => &mut self.temporaries,
            Category::Workspaces => &mut self.workspaces,
            Category::Inputs => &mut self.inputs,
            Category::Buffers => &mut self.buffers,
        }
    }
}

/// The category of every buffer in every phase.
///
/// A buffer can change its category: burn computes in place where it can, so the memory of a gradient may
/// become that of a new weight. Between two marks, a buffer has its category at the first of them; a buffer
/// born since has its category at the second; one that exists at neither is a temporary. At a mark, the role
/// that the program reported decides. Without a reported role, the phase of the buffer's birth decides: the
/// forward pass leaves activations, the backward pass gradients, and the optimizer's phase and the
/// initialization leave optimizer state (master weights). A buffer that outlives the whole step, beyond the
/// next batch (the next forward pass, if the program reports no batch) or the end of the program, is optimizer
/// state if it was born in the backward pass (a momentum begins as the gradient itself) or if the optimizer
/// wrote it (a fused kernel puts its result where it found an operand); otherwise it is a running statistic
/// that waits for its next update.
#[derive(Clone, Debug)]
pub struct Categories {
    /// Positions of the marks among the events.
    marks: Vec<usize>,
    /// For each mark, the category of each buffer that exists there.
    at: Vec<HashMap<BufferId, Category>>,
}

impl Categories {
    /// Computes the categories of `recording`.
    pub fn of(recording: &Recording, lifetimes: &Lifetimes) -> Self {
        let positions = recording.events.iter().enumerate();
        let marks: Vec<usize> = positions
            .filter_map(|(position, event)| matches!(event, Event::Mark(_)).then_some(position))
            .collect();
        let mut at: Vec<HashMap<BufferId, Category>> = vec![HashMap::new(); marks.len()];
        let updated = written_by_optimizer(recording);
        let first_phase = recording.first_phase();
        for (buffer, life) in lifetimes.iter() {
            // The phase of its birth ends at the first mark after its birth.
            let first = marks.partition_point(|mark| *mark < life.born);
            let after = marks.partition_point(|mark| *mark < life.dies);
            if first == after {
                continue;
            }
            let category = match recording.buffer(buffer).metadata {
                true => Category::Temporaries,
                false => {
                    let stays = life.dies == recording.events.len();
                    let updated = updated.contains(&buffer);
                    infer_category(recording, first_phase, first, after, stays, updated)
                }
            };
            for there in &mut at[first..after] {
                there.insert(buffer, category);
            }
        }
        for (mark, said) in recording.marks.iter().zip(&mut at) {
            for (buffer, role) in &mark.roles {
                // A parameter stays one, whatever else the program reports the same buffer as.
                match said.get_mut(buffer) {
                    Some(Category::Parameters) | None => {}
                    Some(known) => *known = Category::from(*role),
                }
            }
        }
        // An input stays an input for its whole life.
        for mark in 1..at.len() {
            let (before, from) = at.split_at_mut(mark);
            for (buffer, category) in &mut from[0] {
                if before[mark - 1].get(buffer) == Some(&Category::Inputs) {
                    *category = Category::Inputs;
                }
            }
        }
        Self { marks, at }
    }

    /// The category of `buffer` right after the event at `position`.
    pub fn get(&self, buffer: BufferId, position: usize) -> Category {
        let next = self.marks.partition_point(|mark| *mark <= position);
        let before = next
            .checked_sub(1)
            .and_then(|mark| self.at[mark].get(&buffer));
        let known = before.or_else(|| self.at.get(next).and_then(|mark| mark.get(&buffer)));
        known.copied().unwrap_or(Category::Temporaries)
    }

    /// Every buffer that exists at the mark with number `mark`, with its category.
    pub fn buffers_at(&self, mark: usize) -> impl Iterator<Item = (BufferId, Category)> + '_ {
        self.at[mark]
            .iter()
            .map(|(buffer, category)| (*buffer, *category))
    }
}

/// The buffers that a kernel wrote in an optimizer's phase.
fn written_by_optimizer(recording: &Recording) -> HashSet<BufferId> {
    let mut written = HashSet::new();
    let mut marks = recording.marks.iter();
    let mut phase = marks.next().map(|mark| mark.phase);
    for event in &recording.events {
        match event {
            Event::Mark(_) => phase = marks.next().map(|mark| mark.phase),
            Event::Launch(launch) if phase == Some(Phase::Optimizer) => {
                written.extend(recording.writes(*launch));
            }
            _ => {}
        }
    }
    written
}

/// The category of a buffer at its marks if the program reports no role. The buffer was born before the mark
/// `first` and is gone by the mark `after`, or `stays` to the end; `updated` means that an optimizer wrote
/// it. Steps begin with `first_phase`.
fn infer_category(
    recording: &Recording,
    first_phase: Phase,
    first: usize,
    after: usize,
    stays: bool,
    updated: bool,
) -> Category {
    let phase = |mark: usize| recording.marks[mark].phase;
    let update = (first..after).find(|mark| phase(*mark) == Phase::Optimizer);
    // Another network's update alone does not end the step.
    let next_step = |mark: usize| phase(mark) == first_phase;
    let outlives = update.is_some_and(|mark| stays || (mark..after).any(next_step));
    match phase(first) {
        Phase::Init | Phase::Optimizer => Category::Optimizer,
        Phase::Backward if outlives => Category::Optimizer,
        _ if outlives && updated => Category::Optimizer,
        _ if outlives => Category::Buffers,
        Phase::Data => Category::Inputs,
        Phase::Forward => Category::Activations,
        Phase::Backward => Category::Gradients,
    }
}
