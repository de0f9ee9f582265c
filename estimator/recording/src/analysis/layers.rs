//! Finds the layer of each launch and buffer, without hooks in the model.

use std::collections::HashMap;

use super::lifetimes::Lifetimes;
use crate::mark::Role;
use crate::phase::Phase;
use crate::recording::{BufferId, Event, LaunchId, LayerId, Recording};

/// The layer of every launch and every buffer.
///
/// The module tree names the layer of each parameter, statistic and gradient. A launch that writes the
/// gradient of a layer, or reads one of its parameters, belongs to that layer; a buffer that was computed
/// from parameters alone (a copy in another shape, a cast) counts as a parameter. Any other launch belongs to
/// the layer whose output it reads, or in the backward pass to the layer whose activation it reads; if there
/// are several, to the layer of the youngest. A buffer belongs to the layer of the last launch that writes it
/// in the phase of its birth, since a normalisation ends by working in place.
#[derive(Clone, Debug)]
pub struct LayerOf {
    launches: HashMap<usize, LayerId>,
    /// The first launch of each layer.
    first: HashMap<LayerId, usize>,
    buffers: HashMap<BufferId, LayerId>,
}

impl LayerOf {
    /// Computes the layers of `recording`.
    pub fn of(recording: &Recording, lifetimes: &Lifetimes) -> Self {
        let mut phases = recording.marks.iter().map(|mark| mark.phase);
        let mut search = Search::new(recording, lifetimes, phases.next());
        for (position, event) in recording.events.iter().enumerate() {
            match event {
                Event::Mark(_) => search.phase = phases.next(),
                Event::Allocate(buffer) => {
                    search.born.insert(*buffer, search.phase);
                }
                Event::Launch(launch) => search.launched(position, *launch),
                _ => {}
            }
        }
        search.into_layers()
    }

    /// The layer of the launch at `position`.
    pub fn launch(&self, position: usize) -> Option<LayerId> {
        self.launches.get(&position).copied()
    }

    /// The position of the first launch of `layer`; `usize::MAX` if it has none.
    pub fn first_launch(&self, layer: LayerId) -> usize {
        self.first.get(&layer).copied().unwrap_or(usize::MAX)
    }

    /// The layer of `buffer`.
    pub fn buffer(&self, buffer: BufferId) -> Option<LayerId> {
        self.buffers.get(&buffer).copied()
    }
}

/// The search for layers, launch by launch.
struct Search<'a> {
    recording: &'a Recording,
    lifetimes: &'a Lifetimes,
    /// The phase of the current launch.
    phase: Option<Phase>,
    /// The phase in which each buffer was allocated.
    born: HashMap<BufferId, Option<Phase>>,
    /// The buffers of the parameters and statistics that the program named.
    parameters: HashMap<BufferId, LayerId>,
    /// The buffers of the gradients that the program named.
    gradients: HashMap<BufferId, LayerId>,
    /// The buffers that were computed from the parameters of a layer alone.
    derived: HashMap<BufferId, LayerId>,
    found: LayerOf,
}

impl<'a> Search<'a> {
    fn new(recording: &'a Recording, lifetimes: &'a Lifetimes, phase: Option<Phase>) -> Self {
        let mut parameters = HashMap::new();
        let mut gradients = HashMap::new();
        for (buffer, role) in recording.marks.iter().flat_map(|mark| &mark.roles) {
            match role {
                Role::Parameter(layer) | Role::Buffer(layer) | Role::Kept(layer) => {
                    parameters.insert(*buffer, *layer);
                }
                Role::Gradient(layer) => {
                    gradients.insert(*buffer, *layer);
                }
                Role::Input => {}
            }
        }
        Self {
            recording,
            lifetimes,
            phase,
            born: HashMap::new(),
            parameters,
            gradients,
            derived: HashMap::new(),
            found: LayerOf {
                launches: HashMap::new(),
                first: HashMap::new(),
                buffers: HashMap::new(),
            },
        }
    }

    /// Notes the layer of the launch at `position`, if it is known, and of what the launch writes.
    fn launched(&mut self, position: usize, launch: LaunchId) {
        let reads = self.recording.reads(launch);
        let writes = self.recording.writes(launch);
        let Some(layer) = self.layer(reads, writes) else {
            return;
        };
        self.found.launches.insert(position, layer);
        if self.phase != Some(Phase::Init) {
            self.found.first.entry(layer).or_insert(position);
        }
        let of_parameters = |buffer: &BufferId| {
            self.parameters.get(buffer) == Some(&layer) || writes.contains(buffer)
        };
        let reads_any = reads.iter().any(|buffer| !writes.contains(buffer));
        if reads_any && !self.is_backward() && reads.iter().all(of_parameters) {
            let written = writes.iter().map(|buffer| (*buffer, layer));
            self.derived.extend(written);
        }
        for buffer in writes {
            if self.born.get(buffer) == Some(&self.phase) {
                self.found.buffers.insert(*buffer, layer);
            }
        }
    }

    /// The layer of a launch that has these operands; see [`LayerOf`].
    fn layer(&self, reads: &[BufferId], writes: &[BufferId]) -> Option<LayerId> {
        let operands = || writes.iter().chain(reads);
        let saved = |buffer: &&BufferId| {
            !self.is_backward() || self.born.get(buffer) == Some(&Some(Phase::Forward))
        };
        operands()
            .find_map(|buffer| self.gradients.get(buffer))
            .or_else(|| operands().find_map(|buffer| self.parameters.get(buffer)))
            .or_else(|| operands().find_map(|buffer| self.derived.get(buffer)))
            .copied()
            .or_else(|| self.layer_of_youngest(reads.iter().filter(saved)))
            .or_else(|| self.layer_of_youngest(reads.iter()))
            .or_else(|| self.layer_of_youngest(writes.iter()))
    }

    /// The layer of the youngest of `buffers`, of those whose layer is known.
    fn layer_of_youngest<'b>(
        &self,
        buffers: impl Iterator<Item = &'b BufferId>,
    ) -> Option<LayerId> {
        let known = buffers.filter_map(|buffer| {
            let layer = self.found.buffers.get(buffer)?;
            Some((self.lifetimes.get(*buffer).first_written, *layer))
        });
        let youngest = known.max_by_key(|(written, _)| *written);
        youngest.map(|(_, layer)| layer)
    }

    fn is_backward(&self) -> bool {
        self.phase == Some(Phase::Backward)
    }

    fn into_layers(self) -> LayerOf {
        let mut found = self.found;
        found.buffers.extend(self.parameters);
        for (buffer, layer) in self.gradients {
            found.buffers.entry(buffer).or_insert(layer);
        }
        found
    }
}
