//! An answer is of a training of any length, although few steps are simulated for it.

use std::convert::Infallible;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::kind::Basic;
use estimator::{Bytes, DeviceSpec, Run, Runtime, StepRuns, TrainingJob, Tuning};
use fit_check::{SimulatedObserver, measured_job, training_device, training_job};
use model_zoo::{Job, Model, Observer, Phase, Request, Variant, find};

/// A training that goes on after a step that repeats the one before.
struct AllSteps<'a>(SimulatedObserver<'a>);

impl Observer for AllSteps<'_> {
    type Stop = Infallible;

    fn module<M: Module>(&mut self, name: &str, module: &M) {
        self.0.module(name, module);
    }

    fn kept<M: Module>(&mut self, name: &str, module: &M) {
        self.0.kept(name, module);
    }

    fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams) {
        self.0.gradients(module, gradients);
    }

    fn input<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>) {
        self.0.input(tensor);
    }

    fn loss(&mut self, _loss: &Tensor<1>) {}

    fn end(&mut self, phase: Phase) -> Result<(), Infallible> {
        let _ = self.0.end(phase);
        Ok(())
    }
}

/// So many steps of `job`.
fn steps<'a>(variant: &'a Variant, job: &'a Job, steps: usize) -> TrainingJob<'a> {
    TrainingJob::new(job.precision.float_type(), move |_, run: &mut Run| {
        let device = training_device(run.device(), job);
        let observer = &mut AllSteps(SimulatedObserver::new(run));
        let Ok(()) = variant.train(job, &device, steps, observer);
    })
}

/// What the runs with tuned kernels need.
fn needed(program: &TrainingJob, device: &DeviceSpec, batch: usize) -> Bytes {
    StepRuns::of(program, batch as u64, device)
        .and_then(|runs| runs.required())
        .unwrap()
}

#[test]
fn an_answer_needs_what_twelve_steps_need() {
    let device = DeviceSpec::unlimited(Runtime::Cuda);
    let mut more = 0;
    for (name, batch) in [("alexnet", 64), ("vgg-16", 16)] {
        let variant = find(name).unwrap();
        let request = Request {
            batch: Some(batch),
            ..Request::default()
        };
        let job = request.resolve(&variant).unwrap();
        let warm = Some(Tuning::Warm);
        let answer = needed(&training_job(&variant, &job).only(warm), &device, batch);
        let twelve = needed(&steps(&variant, &job, 12).only(warm), &device, batch);
        let two = needed(&measured_job(&variant, &job).only(warm), &device, batch);
        // With a little less the pools tidy up earlier, so what a card needs is no sharp bound.
        let near = twelve.0 / 50;
        assert!(
            answer.0.abs_diff(twelve.0) <= near,
            "{name}: {answer} in place of {twelve}"
        );
        more += u32::from(two.0 + near < twelve.0);
    }
    assert!(more > 0, "two steps are as good");
}
