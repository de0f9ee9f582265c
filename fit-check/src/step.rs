//! The training step of the zoo, on a card of the estimator.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};
use estimator::{CardSpec, Run, Simulated, Stopped, simulate};
use model_zoo::{Job, Model, Watcher};

/// Optimizer steps that an estimate runs: the first makes the optimizer's state, so the peak
/// is that of the second.
pub const STEPS: usize = 2;

/// Tells a simulated card what a training step of the zoo tells its watcher.
#[derive(Debug)]
pub struct Watched<'a>(pub &'a mut Run);

impl Watcher for Watched<'_> {
    type Stop = Stopped;

    fn module<M: Module>(&mut self, name: &str, module: &M) {
        self.0.module(name, module);
    }

    fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams) {
        self.0.gradients(module, gradients);
    }

    fn input<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>) {
        self.0.input(tensor);
    }

    fn loss(&mut self, _loss: &Tensor<1>) {}

    fn end(&mut self, phase: model_zoo::Phase) -> Result<(), Stopped> {
        self.0.end(estimator_phase(phase))
    }
}

/// The same phase, by the estimator's name for it.
pub(crate) fn estimator_phase(phase: model_zoo::Phase) -> estimator::Phase {
    match phase {
        model_zoo::Phase::Init => estimator::Phase::Init,
        model_zoo::Phase::Data => estimator::Phase::Data,
        model_zoo::Phase::Forward => estimator::Phase::Forward,
        model_zoo::Phase::Backward => estimator::Phase::Backward,
        model_zoo::Phase::Optimizer => estimator::Phase::Optimizer,
    }
}

/// `device` as `job` wants it: with autodiff, and with checkpointing if it asks for it.
pub fn training_device(device: Device, job: &Job) -> Device {
    let device = device.autodiff();
    match job.checkpointing {
        true => device.gradient_checkpointing(),
        false => device,
    }
}

/// Trains `model` as `job` says on a card like `spec`.
///
/// # Errors
///
/// The step panicked, or the card does not offer the number format.
pub fn simulate_step(
    model: &(impl Model + Sync),
    job: &Job,
    spec: CardSpec,
) -> Result<Simulated, estimator::Error> {
    simulate(spec, job.precision.float_type(), |run| {
        let device = training_device(run.device(), job);
        model.train(job, &device, STEPS, &mut Watched(run))
    })
}
