//! What the memory of a trace is for, phase by phase and module by module.

use std::collections::HashMap;
use std::ops::Range;

use recording::analysis::{Span, UsagePoint};
use recording::{Breakdown, Bytes, Category, LayerMemory, Phase, PhaseMemory, PhaseOfStep};

use crate::replay::Replay;
use crate::trace::{BlockId, BlockKind, Event, ModuleId, Role, Trace};

/// A phase of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseOfTrace {
    /// The phase, and its events.
    pub span: Span<PhaseOfStep>,
    /// Its memory.
    pub memory: PhaseMemory,
}

/// What the memory of a trace is for.
#[derive(Clone, Debug)]
pub struct Analysis<'a> {
    trace: &'a Trace,
    replay: &'a Replay,
    /// By [`BlockId`].
    categories: Vec<Category>,
    /// The range of events in which each block is there, by [`BlockId`].
    lives: Vec<Range<usize>>,
    phases: Vec<PhaseOfTrace>,
}

impl<'a> Analysis<'a> {
    /// Analyzes `trace`, whose blocks have the sizes that `replay` found. That replay should not have been refused anything.
    pub fn new(trace: &'a Trace, replay: &'a Replay) -> Self {
        let lives = lives(trace);
        let phases = phases(trace, replay);
        let categories = (0..trace.blocks.len())
            .map(|block| category(trace, BlockId(block as u32), &lives[block], &phases));
        Self {
            categories: categories.collect(),
            trace,
            replay,
            lives,
            phases,
        }
    }

    /// The category of a block.
    pub fn category(&self, block: BlockId) -> Category {
        self.categories[block.0 as usize]
    }

    /// What is given away right after the event at `position`, by category.
    pub fn at(&self, position: usize) -> Breakdown {
        let mut breakdown = Breakdown::default();
        for (block, life) in self.lives.iter().enumerate() {
            if life.contains(&position) {
                breakdown[self.categories[block]] += Bytes(self.replay.sizes[block]);
            }
        }
        breakdown
    }

    /// What is given away at the peak, by category: together [`Replay::max_allocated_bytes`].
    pub fn at_peak(&self) -> Breakdown {
        self.at(self.replay.peak)
    }

    /// The phases in order.
    pub fn phases(&self) -> &[PhaseOfTrace] {
        &self.phases
    }

    /// The phases of the last whole step: up to the last update, from the update before.
    pub fn last_step(&self) -> &[PhaseOfTrace] {
        let updates = |phase: &PhaseOfTrace| phase.memory.phase == Phase::Optimizer;
        let Some(end) = self.phases.iter().rposition(updates) else {
            return &self.phases;
        };
        let before = &self.phases[..end];
        let start = before
            .iter()
            .rposition(|phase| updates(phase) || phase.memory.phase == Phase::Init);
        &self.phases[start.map_or(0, |start| start + 1)..=end]
    }

    /// The modules that hold memory, in the order in which they first allocate.
    pub fn modules(&self) -> Vec<LayerMemory> {
        let mut found: Vec<LayerMemory> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        let classes: HashMap<&str, &str> = self
            .trace
            .modules
            .iter()
            .map(|module| (module.path.as_str(), module.class.as_str()))
            .collect();
        let end = self.trace.events.len().saturating_sub(1);
        let ends = |phase: Phase| {
            let last = self
                .last_step()
                .iter()
                .rev()
                .find(|of_trace| of_trace.memory.phase == phase);
            last.map_or(end, |of_trace| of_trace.span.events.end - 1)
        };
        let (forward, backward, optimizer) = (
            ends(Phase::Forward),
            ends(Phase::Backward),
            ends(Phase::Optimizer),
        );
        for (block, life) in self.lives.iter().enumerate() {
            let Some(path) = self.trace.module_path(BlockId(block as u32)) else {
                continue;
            };
            let category = self.categories[block];
            let counted = match category {
                Category::Parameters | Category::Buffers | Category::Activations => {
                    life.contains(&forward)
                }
                Category::Gradients => life.contains(&backward),
                Category::Optimizer => life.contains(&optimizer),
                _ => false,
            };
            if !counted {
                continue;
            }
            let at = *index.entry(path).or_insert_with(|| {
                found.push(LayerMemory {
                    path: path.into(),
                    kind: classes.get(path).copied().unwrap_or_default().into(),
                    ..LayerMemory::default()
                });
                found.len() - 1
            });
            let bytes = Bytes(self.replay.sizes[block]);
            let module = &mut found[at];
            *match category {
                Category::Activations => &mut module.activation_bytes,
                Category::Gradients => &mut module.gradient_bytes,
                Category::Optimizer => &mut module.optimizer_bytes,
                _ => &mut module.parameter_bytes,
            } += bytes;
        }
        found
    }

    /// Consecutive allocations of one module within a phase, in order.
    pub fn module_spans(&self) -> Vec<Span<ModuleId>> {
        let mut spans: Vec<Span<ModuleId>> = Vec::new();
        // Whether the last span can continue.
        let mut open = false;
        for (position, event) in self.trace.events.iter().enumerate() {
            let block = match event {
                Event::Allocate(block) => self.trace.block(*block),
                Event::Phase(_) => {
                    open = false;
                    continue;
                }
                _ => continue,
            };
            match (block.module, spans.last_mut()) {
                (Some(module), Some(last)) if open && last.what == module => {
                    last.events.end = position + 1
                }
                (Some(module), _) => spans.push(Span {
                    what: module,
                    events: position..position + 1,
                }),
                (None, _) => {}
            }
            open = block.module.is_some();
        }
        spans
    }

    /// What is given away after each event that changes it.
    pub fn history(&self) -> Vec<UsagePoint> {
        let mut now = Breakdown::default();
        let mut points = Vec::new();
        for (position, event) in self.trace.events.iter().enumerate() {
            let (Event::Allocate(block) | Event::Free(block)) = event else {
                continue;
            };
            let bytes = Bytes(self.replay.sizes[block.0 as usize]);
            let category = self.category(*block);
            match event {
                Event::Allocate(_) => now[category] += bytes,
                _ => now[category] -= bytes,
            }
            points.push(UsagePoint {
                position,
                in_use: now,
            });
        }
        points
    }
}

fn lives(trace: &Trace) -> Vec<Range<usize>> {
    let mut lives = vec![0..0; trace.blocks.len()];
    for (position, event) in trace.events.iter().enumerate() {
        match event {
            Event::Allocate(block) => lives[block.0 as usize] = position..trace.events.len(),
            Event::Free(block) => lives[block.0 as usize].end = position,
            _ => {}
        }
    }
    lives
}

fn phases(trace: &Trace, replay: &Replay) -> Vec<PhaseOfTrace> {
    let mut phases: Vec<PhaseOfTrace> = Vec::new();
    let mut bytes = Bytes::ZERO;
    for (position, event) in trace.events.iter().enumerate() {
        match event {
            Event::Allocate(block) => bytes += Bytes(replay.sizes[block.0 as usize]),
            Event::Free(block) => bytes -= Bytes(replay.sizes[block.0 as usize]),
            Event::Phase(phase) => {
                let what = trace.phases[*phase as usize];
                phases.push(PhaseOfTrace {
                    span: Span {
                        what,
                        events: position..position,
                    },
                    memory: PhaseMemory {
                        phase: what.phase,
                        live_bytes: bytes,
                        peak_live_bytes: bytes,
                    },
                });
            }
            _ => {}
        }
        if let Some(PhaseOfTrace { span, memory }) = phases.last_mut() {
            span.events.end = position + 1;
            memory.live_bytes = bytes;
            memory.peak_live_bytes = memory.peak_live_bytes.max(bytes);
        }
    }
    phases
}

/// The category of a block for all of its life. The recorder knows what parameters, gradients, state and inputs are. Of
/// another tensor, the phase of its birth decides: what outlives the forward pass is an activation, what outlives an
/// update is the optimizer's, what exists before the first batch and stays is a buffer. All else is temporary.
fn category(
    trace: &Trace,
    block: BlockId,
    life: &Range<usize>,
    phases: &[PhaseOfTrace],
) -> Category {
    let described = trace.block(block);
    match (described.kind, described.role) {
        (BlockKind::Workspace | BlockKind::Optional, _) => return Category::Workspaces,
        (BlockKind::KernelTemporary, _) => return Category::Temporaries,
        (_, Some(role)) => return of_role(role),
        (BlockKind::Tensor, None) => {}
    }
    let born = phases
        .partition_point(|phase| phase.span.events.start <= life.start)
        .checked_sub(1);
    let Some(phase) = born.map(|born| &phases[born]) else {
        return Category::Buffers;
    };
    if life.end < phase.span.events.end {
        return Category::Temporaries;
    }
    match phase.memory.phase {
        Phase::Init => Category::Buffers,
        Phase::Data => Category::Inputs,
        Phase::Forward => Category::Activations,
        Phase::Backward => Category::Temporaries,
        Phase::Optimizer => Category::Optimizer,
    }
}

/// The category of what has this role.
fn of_role(role: Role) -> Category {
    match role {
        Role::Parameter => Category::Parameters,
        Role::Buffer => Category::Buffers,
        Role::Gradient => Category::Gradients,
        Role::Optimizer => Category::Optimizer,
        Role::Input => Category::Inputs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::AllocatorConfig;
    use crate::stream;

    /// Two steps of a linear layer with SGD and momentum: the bytes are those of its tensors, rounded to 512.
    const STREAM: &str = include_str!("../data/linear.jsonl");

    #[test]
    fn every_byte_at_the_peak_has_a_category() {
        let trace = stream::read(STREAM.as_bytes()).unwrap().trace;
        let replay = Replay::of(&trace, &AllocatorConfig::default(), u64::MAX);
        let analysis = Analysis::new(&trace, &replay);
        let at_peak = analysis.at_peak();
        assert_eq!(at_peak.total(), Bytes(replay.max_allocated_bytes));
        // A weight of 1000 floats, its gradient, and its momentum: 4000 bytes are 4096 here.
        let of = |category| at_peak[category].0;
        assert_eq!(of(Category::Parameters), 4096);
        assert_eq!(of(Category::Gradients), 4096);
        assert_eq!(of(Category::Optimizer), 4096);
        assert_eq!(of(Category::Inputs), 1024);
        assert_eq!(of(Category::Workspaces), 8_519_680);
        let all = analysis.history();
        assert_eq!(
            all.iter().map(|point| point.in_use.total()).max(),
            Some(Bytes(replay.max_allocated_bytes))
        );
    }

    #[test]
    fn the_last_step_and_its_modules() {
        let trace = stream::read(STREAM.as_bytes()).unwrap().trace;
        let replay = Replay::of(&trace, &AllocatorConfig::default(), u64::MAX);
        let analysis = Analysis::new(&trace, &replay);
        let step: Vec<_> = analysis
            .last_step()
            .iter()
            .map(|of_trace| (of_trace.span.what.phase, of_trace.span.what.step))
            .collect();
        assert_eq!(
            step,
            [
                (Phase::Data, 1),
                (Phase::Forward, 1),
                (Phase::Backward, 1),
                (Phase::Optimizer, 1)
            ]
        );
        let modules = analysis.modules();
        assert_eq!(modules.len(), 1);
        let fc = &modules[0];
        assert_eq!((fc.path.as_str(), fc.kind.as_str()), ("fc", "Linear"));
        assert_eq!(
            (
                fc.parameter_bytes,
                fc.gradient_bytes,
                fc.optimizer_bytes,
                fc.activation_bytes
            ),
            (Bytes(4096), Bytes(4096), Bytes(4096), Bytes(1024))
        );
    }
}
