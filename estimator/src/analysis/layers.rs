//! Finds the layer of each launch and buffer, without hooks in the model.

use std::collections::HashMap;

use super::lifetimes::Lifetimes;
use crate::Phase;
use crate::record::{BufferId, Event, LayerId, Recording, Role};

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
        let mut parameters: HashMap<BufferId, LayerId> = HashMap::new();
        let mut gradients: HashMap<BufferId, LayerId> = HashMap::new();
        for (buffer, role) in recording.marks.iter().flat_map(|mark| &mark.roles) {
            match role {
                Role::Parameter(layer) | Role::Buffer(layer) => {
                    parameters.insert(*buffer, *layer);
                }
                Role::Gradient(layer) => {
                    gradients.insert(*buffer, *layer);
                }
                Role::Input => {}
            }
        }
        let mut phases = recording.marks.iter().map(|mark| mark.phase);
        let mut phase = phases.next();
        let mut born: HashMap<BufferId, Option<Phase>> = HashMap::new();
        let mut derived: HashMap<BufferId, LayerId> = HashMap::new();
        let mut found = Self {
            launches: HashMap::new(),
            first: HashMap::new(),
            buffers: HashMap::new(),
        };
        for (position, event) in recording.events.iter().enumerate() {
            match event {
                Event::Mark(_) => phase = phases.next(),
                Event::Allocate(buffer) => {
                    born.insert(*buffer, phase);
                }
                Event::Launch(launch) => {
                    let reads = recording.reads(launch);
                    let writes = recording.writes(launch);
                    let operands = || writes.iter().chain(reads);
                    let backward = phase == Some(Phase::Backward);
                    let saved = |buffer: &&BufferId| {
                        !backward || born.get(buffer) == Some(&Some(Phase::Forward))
                    };
                    let youngest = |buffers: &mut dyn Iterator<Item = &BufferId>| {
                        let known = buffers.filter_map(|buffer| {
                            let layer = found.buffers.get(buffer)?;
                            Some((lifetimes.get(*buffer).first_written, *layer))
                        });
                        known
                            .max_by_key(|(written, _)| *written)
                            .map(|(_, layer)| layer)
                    };
                    let layer = operands()
                        .find_map(|buffer| gradients.get(buffer))
                        .or_else(|| operands().find_map(|buffer| parameters.get(buffer)))
                        .or_else(|| operands().find_map(|buffer| derived.get(buffer)))
                        .copied()
                        .or_else(|| youngest(&mut reads.iter().filter(saved)))
                        .or_else(|| youngest(&mut reads.iter()))
                        .or_else(|| youngest(&mut writes.iter()));
                    if let Some(layer) = layer {
                        found.launches.insert(position, layer);
                        if phase != Some(Phase::Init) {
                            found.first.entry(layer).or_insert(position);
                        }
                        let of_parameters = |buffer: &BufferId| {
                            parameters.get(buffer) == Some(&layer) || writes.contains(buffer)
                        };
                        let reads_any = reads.iter().any(|buffer| !writes.contains(buffer));
                        if reads_any && !backward && reads.iter().all(of_parameters) {
                            derived.extend(writes.iter().map(|buffer| (*buffer, layer)));
                        }
                        for buffer in writes {
                            if born.get(buffer) == Some(&phase) {
                                found.buffers.insert(*buffer, layer);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        found.buffers.extend(parameters);
        for (buffer, layer) in gradients {
            found.buffers.entry(buffer).or_insert(layer);
        }
        found
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
