//! A program on a simulated card, and what it says about itself as it goes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, FloatDType, Tensor};
use serde::{Deserialize, Serialize};

use crate::card::{CardSpec, Shared, SimulatedCard};
use crate::modules::{Kind, visit_tensors};
use crate::phase::Phase;
use crate::record::{Event, Layer, Mark, Pools, Recording, Role};
use crate::recorder::Suspects;
use crate::tensor::buffer_of;
use crate::{Bytes, Error};

/// The card refused an allocation, so the program is to stop here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// What the modules of a program hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// Elements that receive a gradient.
    pub trainable: u64,
    /// Elements of weights that receive none.
    pub frozen: u64,
    /// Elements of running statistics.
    pub buffers: u64,
    /// Tensors among which the trainable elements are divided.
    pub tensors: u64,
    /// Bytes of the trainable and the frozen elements, without padding.
    pub bytes: Bytes,
}

/// A program on a simulated card: it reports its modules, gradients and inputs, and where
/// its phases end.
#[derive(Debug)]
pub struct Run {
    device: Device,
    shared: Arc<Shared>,
    step: usize,
    /// Of each module by name, as it was last reported: what is said of it holds at every
    /// mark until it is reported anew.
    modules: BTreeMap<String, Vec<(usize, Role)>>,
    /// Of gradients and inputs, for the next mark.
    roles: Vec<(usize, Role)>,
    layers: HashMap<ParamId, Layer>,
    parameters: HashMap<ParamId, (Kind, u64, Bytes)>,
}

impl Run {
    /// The device to train on, with autodiff.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// `module`, as it is now; `name` is empty if the program trains only one. Parameters
    /// that do not exist yet are left alone.
    pub fn module<M: Module>(&mut self, name: &str, module: &M) {
        let mut roles = Vec::new();
        visit_tensors(name, module, |tensor| {
            let known = (tensor.kind, tensor.elements, tensor.bytes);
            self.parameters.insert(tensor.id, known);
            if let Some(buffer) = tensor.buffer {
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

    /// The gradients that belong to `module`, which was reported before.
    pub fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams) {
        module.visit(&mut GradientWalk {
            run: self,
            gradients,
        });
    }

    /// A tensor of the batch.
    pub fn input<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>) {
        if let Some(buffer) = buffer_of(tensor) {
            self.roles.push((buffer.id, Role::Input));
        }
    }

    /// `phase` ends here.
    ///
    /// # Errors
    ///
    /// The card has refused an allocation: return at once.
    pub fn end(&mut self, phase: Phase) -> Result<(), Stopped> {
        // A simulated device has no work of its own that could fail.
        let _ = self.device.sync();
        let pools = self
            .device
            .memory_pool_usage()
            .map_or_else(Pools::default, |usage| Pools {
                allocations: usage.number_allocs,
                in_use: Bytes(usage.bytes_in_use),
                reserved: Bytes(usage.bytes_reserved),
            });
        let mut recorder = self.shared.recorder();
        recorder.note_freed(&Suspects::All);
        let said = self.modules.values().flatten().copied();
        let roles = said
            .chain(std::mem::take(&mut self.roles))
            .filter_map(|(id, role)| Some((recorder.buffer(id)?, role)))
            .collect();
        let recording = &mut recorder.recording;
        recording.events.push(Event::Mark(recording.marks.len()));
        recording.marks.push(Mark {
            phase,
            step: self.step,
            roles,
            pools,
        });
        if phase == Phase::Optimizer {
            self.step += 1;
        }
        match recording.failure {
            Some(_) => Err(Stopped),
            None => Ok(()),
        }
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

struct GradientWalk<'a> {
    run: &'a mut Run,
    gradients: &'a GradientsParams,
}

impl ModuleVisitor for GradientWalk<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else {
            return;
        };
        let Some(layer) = self.run.layers.get(&param.id) else {
            return;
        };
        if let Some(buffer) = buffer_of(&gradient) {
            let layer = self.run.shared.recorder().layer(layer.clone());
            self.run.roles.push((buffer.id, Role::Gradient(layer)));
        }
    }
}

/// What a program did to a card.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Event by event.
    pub recording: Recording,
    /// What its modules hold.
    pub parameters: Parameters,
    /// The most that the pools held of the card at once.
    pub reserved: Bytes,
}

/// Runs `program` on a new card like `spec`; the floats that it creates are of the type
/// `float`.
///
/// A recording whose [`failure`](Recording::failure) is set ends in the phase in which the
/// card refused an allocation.
///
/// # Errors
///
/// The program panicked, or the card does not offer the type.
///
/// # Examples
///
/// ```
/// use burn::module::Module;
/// use burn::nn::LinearConfig;
/// use burn::tensor::{FloatDType, Tensor};
/// use estimator::{CardSpec, Phase, Runtime, simulate};
///
/// let card = CardSpec::endless(Runtime::Cuda);
/// let simulated = simulate(card, FloatDType::F32, |run| {
///     let device = run.device();
///     let layer = LinearConfig::new(1024, 1024).init(&device);
///     run.module("", &layer);
///     run.end(Phase::Init)?;
///     let output = layer.forward(Tensor::<2>::zeros([64, 1024], &device));
///     run.module("", &layer);
///     run.end(Phase::Forward)?;
///     drop(output);
///     Ok(())
/// })?;
/// assert_eq!(simulated.parameters.trainable, 1024 * 1024 + 1024);
/// # Ok::<(), estimator::Error>(())
/// ```
pub fn simulate(
    spec: CardSpec,
    float: FloatDType,
    program: impl FnOnce(&mut Run) -> Result<(), Stopped> + Send,
) -> Result<Simulated, Error> {
    let card = SimulatedCard::new(spec)?;
    let device = card.configured(float)?;
    let device = device.autodiff();
    let mut run = Run {
        device: device.clone(),
        shared: card.shared().clone(),
        step: 0,
        modules: BTreeMap::new(),
        roles: Vec::new(),
        layers: HashMap::new(),
        parameters: HashMap::new(),
    };
    let parameters = card.run(move || {
        // That it stopped is in the recording.
        let _ = program(&mut run);
        run.parameters()
    })?;
    let simulated = Simulated {
        recording: card.take_recording(),
        parameters,
        reserved: Bytes(card.shared().ledger.peak()),
    };
    // A program that stopped before its backward pass leaves a graph behind, whose tensors
    // would keep the card's thread waiting; burn drops such graphs with the next one.
    card.run(move || drop(Tensor::<1>::zeros([1], &device).require_grad().backward()))?;
    Ok(simulated)
}
