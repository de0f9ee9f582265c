//! For the tests of the networks: a step that really trains, small, on the CPU.

use std::convert::Infallible;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};

use crate::{Job, Phase, Request, Watcher, check, find, train};

/// Remembers the losses, and makes every batch the same by seeding before each.
pub(crate) struct Losses {
    device: Device,
    losses: Vec<f32>,
}

impl Losses {
    /// Nothing seen yet.
    pub fn on(device: &Device) -> Self {
        device.seed(1);
        Self {
            device: device.clone(),
            losses: Vec::new(),
        }
    }

    /// Asserts that there were several losses, all finite, the last below the first.
    pub fn assert_fall(&self) {
        let losses = &self.losses;
        assert!(losses.len() > 1, "{losses:?}");
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        assert!(losses.last() < losses.first(), "{losses:?}");
    }
}

impl Watcher for Losses {
    type Stop = Infallible;

    fn module<M: Module>(&mut self, _name: &str, _module: &M) {}

    fn gradients<M: Module>(&mut self, _module: &M, _gradients: &GradientsParams) {}

    fn input<const D: usize, K: Basic>(&mut self, _tensor: &Tensor<D, K>) {}

    fn loss(&mut self, loss: &Tensor<1>) {
        self.losses.push(loss.clone().into_scalar());
    }

    fn end(&mut self, phase: Phase) -> Result<(), Infallible> {
        if matches!(phase, Phase::Init | Phase::Optimizer) {
            self.device.seed(1);
        }
        Ok(())
    }
}

/// Trains the variant called `name` on one small batch: the loss must fall.
pub(crate) fn trains(name: &str, request: &Request) {
    let variant = find(name).expect("a variant of the zoo");
    falls(name, request, |job, device, losses| {
        train(&variant, job, device, 4, losses)
    });
}

/// Runs `train` with the recipe of the variant called `name`, for a network that is
/// a small copy of it: the loss must fall.
pub(crate) fn falls(
    name: &str,
    request: &Request,
    train: impl FnOnce(&Job, &Device, &mut Losses) -> Result<(), Infallible>,
) {
    let variant = find(name).expect("a variant of the zoo");
    let job = request
        .resolve(&variant)
        .expect("a request that can be met");
    let device = Device::flex().autodiff();
    let mut losses = Losses::on(&device);
    let Ok(()) = train(&job, &device, &mut losses);
    losses.assert_fall();
}

/// Asserts that the variant called `name` accepts sequences of `limit` and no longer.
pub(crate) fn longest(name: &str, limit: usize) {
    let variant = find(name).expect("a variant of the zoo");
    let mut job = Request::default()
        .resolve(&variant)
        .expect("the published recipe");
    job.input.seq = Some(limit);
    assert_eq!(check(&variant, &job), Ok(()));
    job.input.seq = Some(limit + 1);
    assert!(check(&variant, &job).is_err());
}

/// Elements of all parameters of `module`, and their tensors; creates none of them.
pub(crate) fn parameters<M: Module>(module: &M) -> (usize, usize) {
    struct Tensors(usize);
    impl ModuleVisitor for Tensors {
        fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
            self.0 += 1;
        }
    }
    let mut tensors = Tensors(0);
    module.visit(&mut tensors);
    (module.num_params(), tensors.0)
}
