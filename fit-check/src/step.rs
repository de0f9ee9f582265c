//! The training step of the zoo, on a card of the estimator.

use std::sync::Arc;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};
use estimator::{CardSpec, Forecast, Program, Run, Scaling, Simulated, Stopped, Workbench};
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
    let bench = Workbench::new(job.precision.float_type());
    simulate_step_on(&bench, model, job, spec)
}

/// As [`simulate_step`], with a card of `bench`, which is for this job with any batch.
///
/// # Errors
///
/// As [`simulate_step`].
pub fn simulate_step_on(
    bench: &Workbench,
    model: &(impl Model + Sync),
    job: &Job,
    spec: CardSpec,
) -> Result<Simulated, estimator::Error> {
    bench.simulate(job.batch as u64, spec, |run| {
        let device = training_device(run.device(), job);
        model.train(job, &device, STEPS, &mut Watched(run))
    })
}

/// A training step at any batch. What burn fuses in it is found out once; its kernels are tuned to each
/// batch anew, since a kernel that was chosen with few samples may be another than the one that is
/// chosen with many.
#[derive(Debug)]
pub struct AnyBatch<'a, M> {
    model: &'a M,
    job: &'a Job,
    bench: Workbench,
}

impl<'a, M: Model + Sync> AnyBatch<'a, M> {
    /// That of `model` for `job`, whose own batch does not matter.
    pub fn new(model: &'a M, job: &'a Job) -> Self {
        let bench = Workbench::new(job.precision.float_type()).without_first_runs();
        Self { model, job, bench }
    }
}

/// What is foretold of `program` on cards with the kernels of `card`, if it grows evenly with the batch.
///
/// # Errors
///
/// The step itself failed.
pub fn forecast<'a, P: Program>(
    program: &'a P,
    card: &CardSpec,
) -> Result<Option<Forecast<'a, P>>, estimator::Error> {
    let scaling = Scaling::of(program, card)?.map(Arc::new);
    Ok(scaling.map(|scaling| Forecast::new(program, scaling, card.without_limit())))
}

impl<M> AnyBatch<'_, M> {
    fn job(&self, batch: u64) -> Job {
        Job {
            batch: batch as usize,
            ..self.job.clone()
        }
    }
}

impl<M: Model + Sync> Program for AnyBatch<'_, M> {
    fn simulate(&self, batch: u64, spec: CardSpec) -> Result<Simulated, estimator::Error> {
        simulate_step_on(&self.bench, self.model, &self.job(batch), spec)
    }

    fn accepts(&self, batch: u64) -> bool {
        self.model.check(&self.job(batch)).is_ok()
    }
}
