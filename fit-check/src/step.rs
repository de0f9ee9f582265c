//! Runs training steps of the zoo on cards of the estimator.

use std::sync::OnceLock;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, FloatDType, Tensor};
use estimator::{DeviceSpec, Program, Run, Runtime, Simulated, TrainingJob, Tuning, simulate};
use model_zoo::{Input, Job, Model, Observer};

/// The optimizer steps that a device trains for a comparison with an estimate. The first creates the optimizer state, so the
/// second has the peak.
pub const STEPS: usize = 2;

/// The most optimizer steps of an answer. It ends with two that allocate the same, as a rule the second and the third; a replay goes
/// on with the last one as a training does. Chosen.
const MOST_STEPS: usize = 5;

/// The most batches of an optimizer step that are simulated. From the second on each does what the one before did, and leaves
/// nothing behind; two more leave room for what the pools do by chance. Chosen.
const SIMULATED_BATCHES: usize = 4;

/// The observer of a training that passes everything on to a simulated run, and ends it with a step that repeats the one before.
#[derive(Debug)]
pub struct SimulatedObserver<'a> {
    run: &'a mut Run,
    steps: usize,
}

impl<'a> SimulatedObserver<'a> {
    /// An observer for `run`.
    pub fn new(run: &'a mut Run) -> Self {
        Self { run, steps: 0 }
    }
}

/// Another step would be like the last.
#[derive(Clone, Copy, Debug)]
pub struct Repeated;

impl Observer for SimulatedObserver<'_> {
    type Stop = Repeated;

    fn module<M: Module>(&mut self, name: &str, module: &M) {
        self.run.module(name, module);
    }

    fn kept<M: Module>(&mut self, name: &str, module: &M) {
        self.run.kept(name, module);
    }

    fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams) {
        self.run.gradients(module, gradients);
    }

    fn input<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>) {
        self.run.input(tensor);
    }

    fn loss(&mut self, _loss: &Tensor<1>) {}

    fn end(&mut self, phase: model_zoo::Phase) -> Result<(), Repeated> {
        self.run.end(estimator_phase(phase));
        Ok(())
    }

    fn step_ends(&mut self) -> Result<(), Repeated> {
        self.steps += 1;
        match self.steps > STEPS && self.run.repeats() {
            true => Err(Repeated),
            false => Ok(()),
        }
    }
}

/// The estimator's name for the same phase.
pub(crate) fn estimator_phase(phase: model_zoo::Phase) -> estimator::Phase {
    match phase {
        model_zoo::Phase::Init => estimator::Phase::Init,
        model_zoo::Phase::Data => estimator::Phase::Data,
        model_zoo::Phase::Forward => estimator::Phase::Forward,
        model_zoo::Phase::Backward => estimator::Phase::Backward,
        model_zoo::Phase::Optimizer => estimator::Phase::Optimizer,
    }
}

/// `device` with autodiff, and with checkpointing if `job` asks for it.
pub fn training_device(device: Device, job: &Job) -> Device {
    let device = device.autodiff();
    match job.checkpointing {
        true => device.gradient_checkpointing(),
        false => device,
    }
}

/// A training of `model` for `job` at any batch; the batch of `job` is ignored. From now on this process
/// [listens](estimator::listen) to burn's tuner: the step then runs less often.
pub fn training_job<'a, M: Model + Sync>(model: &'a M, job: &'a Job) -> TrainingJob<'a> {
    job_at_any_batch(model, job, MOST_STEPS)
}

/// The [`STEPS`] that a device trains, at any batch; as [`training_job`] otherwise.
pub fn measured_job<'a, M: Model + Sync>(model: &'a M, job: &'a Job) -> TrainingJob<'a> {
    job_at_any_batch(model, job, STEPS)
}

/// So many steps of `model` for `job` at any batch.
fn job_at_any_batch<'a, M: Model + Sync>(
    model: &'a M,
    job: &'a Job,
    steps: usize,
) -> TrainingJob<'a> {
    job_at_any(model, job, steps, move |batch| Job {
        batch: batch as usize,
        ..job.clone()
    })
}

/// The sequence lengths that a search for the longest looks at are multiples of so many tokens, as people train with. Chosen.
pub const LENGTH_STEP: u64 = 64;

/// The training step of `model` for `job` at any sequence length: a number `n` in the place of a batch means
/// `n * LENGTH_STEP` tokens, on both sides of a translation. As [`training_job`] otherwise.
pub(crate) fn training_job_at_any_length<'a, M: Model + Sync>(
    model: &'a M,
    job: &'a Job,
) -> TrainingJob<'a> {
    job_at_any(model, job, MOST_STEPS, move |number| {
        let tokens = (number * LENGTH_STEP) as usize;
        Job {
            input: Input {
                seq: Some(tokens),
                src_seq: job.input.src_seq.map(|_| tokens),
                ..job.input
            },
            ..job.clone()
        }
    })
}

/// So many steps of `model` for the job that `at` makes of `job` for any number.
fn job_at_any<'a, M: Model + Sync>(
    model: &'a M,
    job: &Job,
    steps: usize,
    at: impl Fn(u64) -> Job + Copy + Sync + 'a,
) -> TrainingJob<'a> {
    let at = move |number| {
        let job = at(number);
        Job {
            accumulate: job.accumulate.min(SIMULATED_BATCHES),
            ..job
        }
    };
    let train = move |number, run: &mut Run| {
        let job = at(number);
        let device = training_device(run.device(), &job);
        let _ = model.train(&job, &device, steps, &mut SimulatedObserver::new(run));
    };
    estimator::listen();
    TrainingJob::new(job.precision.float_type(), train)
        .accepting(move |number| model.check(&at(number)).is_ok())
}

/// What `look` finds in a network that it builds on a simulated device, in fp32, and does not train.
///
/// # Errors
///
/// `look` panicked.
pub(crate) fn untrained<T: Send + Sync>(
    look: impl Fn(&Device) -> T + Sync,
) -> Result<T, estimator::Error> {
    // Nothing is trained, so there is nothing to tune.
    let card = DeviceSpec::unlimited(Runtime::Cuda).with_tuning(Tuning::Cold);
    let found = OnceLock::new();
    simulate(card, FloatDType::F32, |run| {
        found.get_or_init(|| look(&run.device()));
    })?;
    Ok(found.into_inner().expect("the simulation has looked"))
}

/// Trains [`STEPS`] of `model` as `job` says, on a simulated device like `device`.
///
/// # Errors
///
/// The step panicked, or the card does not offer the number format.
pub fn simulate_step<M: Model + Sync>(
    model: &M,
    job: &Job,
    device: DeviceSpec,
) -> Result<Simulated, estimator::Error> {
    measured_job(model, job).simulate(job.batch as u64, device)
}
