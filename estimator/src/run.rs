//! A program on a simulated card, and what it reports about itself while it runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::{Module, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::Choice;
use crate::Phase;
use crate::analysis::Timeline;
use crate::card::{CardState, DeviceSpec, SimulatedCard, Trials, configure_cubecl};
use crate::device::pools_of;
use crate::modules::{Kind, visit_gradients, visit_tensors};
use crate::record::{Layer, Mark, Recording, Role};
use crate::tensor::buffer_of;
use crate::{Bytes, Error};

/// The tensors that the modules of a program hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Parameters {
    /// Elements that receive a gradient.
    pub trainable: u64,
    /// Elements of weights that receive no gradient.
    pub frozen: u64,
    /// Elements of buffers: running statistics, and noise that is drawn once.
    pub buffers: u64,
    /// Number of tensors with trainable elements.
    pub tensors: u64,
    /// Bytes of the trainable and the frozen elements, without padding.
    pub bytes: Bytes,
}

/// The handle through which a program on a simulated card reports its modules, gradients and inputs, and the
/// ends of its phases.
#[derive(Debug)]
pub struct Run {
    device: Device,
    shared: Arc<CardState>,
    step: usize,
    /// The roles of each module's tensors, by the module's name. They apply to every mark until the program
    /// reports the module again.
    modules: BTreeMap<String, Vec<(usize, Role)>>,
    /// The roles of gradients and inputs, for the next mark.
    roles: Vec<(usize, Role)>,
    layers: HashMap<ParamId, Layer>,
    parameters: HashMap<ParamId, (Kind, u64, Bytes)>,
    failed: Option<Progress>,
}

/// What a run has recorded so far.
#[derive(Debug)]
struct Progress {
    recording: Recording,
    reserved: Bytes,
    parameters: Parameters,
}

impl Run {
    /// The device to train on, with autodiff.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// Reports `module` as it is now; `name` is empty if the program trains only one module. Parameters that
    /// do not exist yet are not created.
    pub fn module<M: Module>(&mut self, name: &str, module: &M) {
        let mut roles = Vec::new();
        visit_tensors(name, module, |tensor| {
            let known = (tensor.kind, tensor.elements, tensor.bytes);
            self.parameters.insert(tensor.id, known);
            if let Some(buffer) = tensor.handle.map(|handle| handle.buffer()) {
                let layer = self.shared.recorder().layer(tensor.layer.clone());
                let role = match tensor.kind {
                    Kind::Statistic => Role::Buffer(layer),
                    Kind::Trainable | Kind::Frozen => Role::Parameter(layer),
                };
                roles.push((buffer.id, role));
            }
            self.layers.insert(tensor.id, tensor.layer);
        });
        self.modules.insert(name.to_string(), roles);
    }

    /// Reports the gradients of `module`, which must have been reported before.
    pub fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams) {
        visit_gradients(module, gradients, |id, handle| {
            if let Some(layer) = self.layers.get(&id)
                && let Some(buffer) = handle().map(|handle| handle.buffer())
            {
                let layer = self.shared.recorder().layer(layer.clone());
                self.roles.push((buffer.id, Role::Gradient(layer)));
            }
        });
    }

    /// Reports a tensor of the batch.
    pub fn input<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>) {
        if let Some(buffer) = buffer_of(tensor) {
            self.roles.push((buffer.id, Role::Input));
        }
    }

    /// Reports the end of `phase`.
    ///
    /// If the card refused an allocation in this phase, the recording ends here. The program goes on, on a card
    /// that has no limit any more: of half a step burn would have to find out anew what it can fuse.
    pub fn end(&mut self, phase: Phase) {
        self.shared.end_phase();
        // A simulated device has no work of its own that could fail.
        let _ = self.device.sync();
        let pools = pools_of(&self.device);
        let mut recorder = self.shared.recorder();
        recorder.note_dropped();
        let said = self.modules.values().flatten().copied();
        let roles = said
            .chain(std::mem::take(&mut self.roles))
            .filter_map(|(id, role)| Some((recorder.buffer(id)?, role)))
            .collect();
        let recording = &mut recorder.recording;
        recording.add_mark(Mark {
            phase,
            step: self.step,
            roles,
            pools,
            peak_reserved: Bytes(self.shared.budget.take_recent_peak()),
        });
        if phase == Phase::Optimizer {
            self.step += 1;
        }
        if recording.failure.is_some() && self.failed.is_none() {
            self.failed = Some(Progress {
                recording: recording.clone(),
                reserved: Bytes(self.shared.budget.peak()),
                parameters: self.parameters(),
            });
        }
    }

    /// Executes what the program left in the queue after its last phase. Returns the tensors of its modules, and what was
    /// recorded up to the phase in which the card refused an allocation.
    fn finish(self) -> (Parameters, Option<Progress>) {
        // A simulated device has no work of its own that could fail.
        let _ = self.device.sync();
        (self.parameters(), self.failed)
    }

    fn parameters(&self) -> Parameters {
        let mut sum = Parameters::default();
        for (kind, elements, bytes) in self.parameters.values() {
            match kind {
                Kind::Trainable => {
                    sum.trainable += elements;
                    sum.tensors += 1;
                    sum.bytes += *bytes;
                }
                Kind::Frozen => {
                    sum.frozen += elements;
                    sum.bytes += *bytes;
                }
                Kind::Statistic => sum.buffers += elements,
            }
        }
        sum
    }
}

/// The run of a program on a simulated device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Simulated {
    /// The simulated device.
    pub spec: DeviceSpec,
    /// The recording, event by event.
    pub recording: Recording,
    /// The tensors that the program's modules hold.
    pub parameters: Parameters,
    /// The most bytes that the pools reserved on the card at once.
    pub reserved: Bytes,
    /// The run in which burn tuned the kernels, if that was a separate one.
    pub first_run: Option<FirstRun>,
    /// The decisions of burn's tuner, if the process [listens](crate::listen) to them.
    pub choices: Vec<Choice>,
    /// The sizes of the buffers with which burn's tuner tried kernels.
    pub trials: TrialSizes,
}

impl Simulated {
    /// The most bytes in use at once.
    pub fn most_in_use(&self) -> Bytes {
        Timeline::of(&self.recording).most()
    }
}

/// The sizes of the buffers with which burn's tuner tried kernels: on a card that cannot hold them it chooses among the
/// others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialSizes {
    /// The largest buffer that a kernel could have.
    pub limit: Bytes,
    /// The largest buffer that the tuner requested.
    pub largest: Bytes,
}

impl TrialSizes {
    /// Whether the tuner chooses the same on a card on which a kernel may have a buffer of `limit` bytes.
    pub fn hold_for(&self, limit: Bytes) -> bool {
        self.limit == limit || self.largest <= self.limit.min(limit)
    }
}

/// A run in which burn tuned kernels, on a card with room for every candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct FirstRun {
    /// The most bytes in use at once.
    pub live_bytes: Bytes,
    /// The most bytes that the pools reserved on the card at once.
    pub reserved_bytes: Bytes,
}

/// Locked while a program runs with fusion: burn's autodiff drops the graphs of all devices together, and
/// dropping a fused tensor calls its device's thread. Two active cards that drop each other's tensors would
/// deadlock.
static FUSED: Mutex<()> = Mutex::new(());

/// Runs `program` on `card`, which burn knows as `device`.
pub(crate) fn run(
    card: &SimulatedCard,
    device: Device,
    program: &(impl Fn(&mut Run) + Sync),
    trials: Trials,
) -> Result<Simulated, Error> {
    let _alone =
        cfg!(feature = "fusion").then(|| FUSED.lock().unwrap_or_else(PoisonError::into_inner));
    if cfg!(feature = "fusion") {
        // The lock keeps other runs from reading the configuration meanwhile.
        configure_cubecl(trials);
    }
    let device = device.autodiff();
    let mut run = Run {
        device: device.clone(),
        shared: card.shared().clone(),
        step: 0,
        modules: BTreeMap::new(),
        roles: Vec::new(),
        layers: HashMap::new(),
        parameters: HashMap::new(),
        failed: None,
    };
    // A program without a backward pass, or one that panicked, leaves a graph behind, whose tensors would keep
    // the card's thread waiting; burn drops such graphs with the next backward pass.
    let sweep = || card.run(|| drop(Tensor::<1>::zeros([1], &device).require_grad().backward()));
    let outcome = card.run(move || {
        program(&mut run);
        run.finish()
    });
    let (parameters, failed) = match outcome {
        Ok(outcome) => outcome,
        Err(panicked) => {
            let _ = sweep();
            return Err(panicked);
        }
    };
    let recorded = failed.unwrap_or_else(|| Progress {
        recording: card.take_recording(),
        reserved: Bytes(card.shared().budget.peak()),
        parameters,
    });
    let simulated = Simulated {
        spec: card.shared().spec.clone(),
        recording: recorded.recording,
        parameters: recorded.parameters,
        reserved: recorded.reserved,
        first_run: None,
        choices: card.shared().choices(),
        trials: TrialSizes {
            limit: card.shared().spec.largest_trial(),
            largest: card.shared().largest_trial(),
        },
    };
    sweep()?;
    Ok(simulated)
}
