//! The training step of the zoo, on a card of the estimator.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};
use estimator::{CardSpec, Program, Run, Scaling, Simulated, Stopped, simulate};
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

/// A training step at any batch.
#[derive(Clone, Copy, Debug)]
pub struct AnyBatch<'a, M> {
    /// The model.
    pub model: &'a M,
    /// Its training step; the batch is another each time.
    pub job: &'a Job,
}

/// The batches from which others are proposed. One sample is often special: what is wide in
/// the batch can be left out.
const PROPOSING: u64 = 2;

impl<M: Model + Sync> AnyBatch<'_, M> {
    /// How the step grows with the batch on cards like `endless`, if it does so evenly.
    ///
    /// # Errors
    ///
    /// As [`simulate_step`].
    pub fn scaling(&self, endless: &CardSpec) -> Result<Option<Scaling>, estimator::Error> {
        let few = self.simulate(PROPOSING, endless.clone())?;
        let more = self.simulate(PROPOSING + 1, endless.clone())?;
        Ok(Scaling::between(PROPOSING, few.recording, &more.recording))
    }
}

impl<M: Model + Sync> Program for AnyBatch<'_, M> {
    fn simulate(&self, batch: u64, spec: CardSpec) -> Result<Simulated, estimator::Error> {
        let job = Job {
            batch: batch as usize,
            ..self.job.clone()
        };
        simulate_step(self.model, &job, spec)
    }
}
