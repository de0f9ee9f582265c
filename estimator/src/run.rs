//! A program on a simulated card, and what it reports about itself while it runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::{Module, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};
use recording::{Bytes, Layer, Mark, Phase, Role};

use crate::Error;
use crate::card::{CardState, SimulatedCard, Trials, configure_cubecl};
use crate::device::pools_of;
use crate::modules::{Kind, visit_gradients, visit_tensors};
use crate::simulated::{Continued, Parameters, Simulated};
use crate::tensor::buffer_of;

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
    /// The layer of each parameter, for its gradient.
    layers: HashMap<ParamId, Layer>,
    /// The tensors of the modules, by the module's name: a copy of a module has the same parameter ids.
    parameters: HashMap<(String, ParamId), (Kind, u64, Bytes)>,
    failed: Option<Progress>,
}

/// How far a run had come at the end of the phase in which the card refused an allocation.
#[derive(Debug)]
struct Progress {
    /// The number of events until then.
    events: usize,
    reserved: Bytes,
    parameters: Parameters,
}

impl Run {
    /// The device to train on, with autodiff.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// Reports `module` as it is now; `name` is empty if the program trains only one module. Parameters that
    /// do not exist yet are not created. Each module needs a name of its own, copies of a module too, such as a teacher
    /// or a moving average.
    pub fn module<M: Module>(&mut self, name: &str, module: &M) {
        let mut roles = Vec::new();
        visit_tensors(name, module, &mut |tensor| {
            let known = (tensor.kind, tensor.elements, tensor.bytes);
            self.parameters.insert((name.to_string(), tensor.id), known);
            if let Some(buffer) = tensor.handle.map(|handle| handle.buffer()) {
                let layer = self.shared.recorder().layer(tensor.layer.clone());
                let role = match tensor.kind {
                    Kind::Statistic => Role::Buffer(layer),
                    Kind::Trainable | Kind::Frozen => Role::Parameter(layer),
                };
                roles.push((buffer.id, role));
            }
            // A copy without gradients must not take the layer from the module that is trained.
            match tensor.kind {
                Kind::Trainable => {
                    self.layers.insert(tensor.id, tensor.layer);
                }
                Kind::Frozen | Kind::Statistic => {
                    self.layers.entry(tensor.id).or_insert(tensor.layer);
                }
            }
        });
        self.modules.insert(name.to_string(), roles);
    }

    /// Reports `module`, a copy of the module called `name` that the program keeps and does not train: its parameters are not
    /// counted again.
    pub fn kept<M: Module>(&mut self, name: &str, module: &M) {
        let mut roles = Vec::new();
        visit_tensors(name, module, &mut |tensor| {
            if let Some(buffer) = tensor.handle.map(|handle| handle.buffer()) {
                let layer = self.shared.recorder().layer(tensor.layer.clone());
                roles.push((buffer.id, Role::Kept(layer)));
            }
        });
        self.modules.insert(format!("{name} (kept)"), roles);
    }

    /// Reports the gradients of `module`, which must have been reported before.
    pub fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams) {
        visit_gradients(module, gradients, &mut |id, handle| {
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
    /// A step begins with its [`Phase::Data`] and ends with its last [`Phase::Optimizer`]. If the program never reports
    /// the end of a `Data` phase, a step begins after the `Optimizer` phase before, so it has only one of these, and a
    /// buffer that is still there after the next [`Phase::Forward`] counts as one that outlives its step.
    ///
    /// If the card refused an allocation in this phase, the recording ends here. The program goes on, on a card
    /// that has no limit any more, else burn would have to plan the fusion of an incomplete step.
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
                events: recording.events.len(),
                reserved: Bytes(self.shared.budget.peak()),
                parameters: self.parameters(),
            });
        }
    }

    /// Whether the last two steps, of three or more, allocated the same: [`estimate`](crate::estimate) and the searches go on with
    /// such a step, so the program need not make another.
    pub fn repeats(&self) -> bool {
        self.shared.recorder().recording.repeats()
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
    let simulated = take_run(card, parameters, failed);
    sweep()?;
    Ok(simulated)
}

/// The run that `card` has just recorded, whose modules hold `parameters`; `failed` is how far it had come when the card
/// refused an allocation.
fn take_run(card: &SimulatedCard, parameters: Parameters, failed: Option<Progress>) -> Simulated {
    let recording = card.take_recording();
    let state = card.shared();
    let run = Simulated {
        parameters,
        reserved: Bytes(state.budget.peak()),
        choices: state.choices(),
        trials: state.trial_sizes(),
        ..Simulated::of(state.spec.clone(), recording)
    };
    match failed {
        None => run,
        Some(failed) => Simulated {
            recording: run.recording.up_to(failed.events),
            parameters: failed.parameters,
            reserved: failed.reserved,
            continued: Some(Continued {
                recording: run.recording,
                parameters,
            }),
            ..run
        },
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::LinearConfig;
    use burn::tensor::FloatDType;

    use super::*;
    use crate::{DeviceSpec, Runtime, Tuning, simulate};

    /// A layer of 3 x 5 weights and 5 biases, and a copy of it that is not trained.
    #[test]
    fn a_copy_of_a_module_is_counted_beside_it() {
        let device = DeviceSpec::unlimited(Runtime::Cuda);
        let device = device.with_tuning(Tuning::Cold).unfused();
        let simulated = simulate(device, FloatDType::F32, |run| {
            let student = LinearConfig::new(3, 5).init(&run.device());
            let input = Tensor::<2>::ones([2, 3], &run.device());
            let loss = student.forward(input).mean();
            // Before the forward pass the layer had no parameters yet, which a copy would have shared.
            let teacher = student.clone().no_grad();
            run.module("student", &student);
            run.module("teacher", &teacher);
            run.end(Phase::Forward);
            let gradients = GradientsParams::from_grads(loss.backward(), &student);
            run.gradients(&student, &gradients);
            run.end(Phase::Backward);
        });
        let Simulated {
            parameters,
            recording,
            ..
        } = simulated.unwrap();
        assert_eq!((parameters.trainable, parameters.tensors), (20, 2));
        assert_eq!(parameters.frozen, 20);
        assert_eq!(parameters.bytes, Bytes(2 * 20 * 4));
        let roles = recording.marks.iter().flat_map(|mark| &mark.roles);
        let of_gradients: Vec<_> = roles
            .filter_map(|(_, role)| match role {
                Role::Gradient(layer) => Some(recording.layers[layer.0 as usize].path.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(of_gradients, ["student", "student"]);
    }
}
