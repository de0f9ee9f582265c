//! For the tests of the networks: a step that really trains, small, on the CPU.

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};

use crate::{Error, Input, Job, Phase, Request, Watcher, check, find, train};

const STEPS: usize = 6;

/// All tests draw from one random generator: a test that trains has it alone, so that its
/// losses are the same in every run; the others share it.
static GENERATOR: RwLock<()> = RwLock::new(());

thread_local! {
    /// This test's share of [`GENERATOR`], held until its thread ends.
    static SHARE: RefCell<Option<RwLockReadGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// The CPU, for a test that draws random numbers without training.
pub(crate) fn flex() -> Device {
    SHARE.with_borrow_mut(|share| {
        share.get_or_insert_with(|| GENERATOR.read().unwrap_or_else(PoisonError::into_inner));
    });
    Device::flex()
}

/// One of the losses of a step that has several.
pub(crate) struct Kind {
    /// Its place among them.
    pub which: usize,
    /// How many there are.
    pub of: usize,
}

impl Kind {
    /// The loss of a step that has one.
    pub const ONLY: Self = Self { which: 0, of: 1 };
}

/// Remembers the losses, and makes every batch the same by seeding before each.
pub(crate) struct Losses {
    device: Device,
    losses: Vec<f32>,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Losses {
    /// Nothing seen yet.
    pub fn on(device: &Device) -> Self {
        SHARE.take();
        let alone = GENERATOR.write().unwrap_or_else(PoisonError::into_inner);
        device.seed(1);
        Self {
            device: device.clone(),
            losses: Vec::new(),
            _alone: alone,
        }
    }

    /// Asserts that there are losses, and that all are finite.
    pub fn assert_finite(&self) {
        let losses = &self.losses;
        assert!(!losses.is_empty());
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    }

    /// Asserts that all losses are finite and that the last is below the second: in the
    /// first step the parameters are drawn too, so that its batch is another one. If a
    /// step has several losses, `kind` says which of how many is looked at.
    pub fn assert_fall(&self, kind: Kind) {
        self.assert_finite();
        let losses = &self.losses;
        let same: Vec<_> = losses.iter().skip(kind.which).step_by(kind.of).collect();
        let [_, first, .., last] = same[..] else {
            panic!("too few steps: {losses:?}");
        };
        assert!(last < first, "{losses:?}");
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
    falls(name, request, |job, device, steps, losses| {
        train(&variant, job, device, steps, losses)
    });
}

/// Trains with `train`, for a `request` made to the variant called `name`, on one
/// small batch: the loss must fall.
pub(crate) fn falls(
    name: &str,
    request: &Request,
    train: impl FnOnce(&Job, &Device, usize, &mut Losses) -> Result<(), Infallible>,
) {
    one_falls(Kind::ONLY, name, request, train);
}

/// As [`falls`], for a step that has several losses.
pub(crate) fn one_falls(
    kind: Kind,
    name: &str,
    request: &Request,
    train: impl FnOnce(&Job, &Device, usize, &mut Losses) -> Result<(), Infallible>,
) {
    let variant = find(name).expect("a variant of the zoo");
    let job = request
        .resolve(&variant)
        .expect("a request that can be met");
    let device = Device::flex().autodiff();
    let mut losses = Losses::on(&device);
    let Ok(()) = train(&job, &device, STEPS, &mut losses);
    losses.assert_fall(kind);
}

/// Why the variant called `name` cannot be trained on images of this size.
pub(crate) fn refusal(name: &str, image: [usize; 2]) -> Error {
    let variant = find(name).expect("a variant of the zoo");
    let request = Request {
        input: Input {
            image: Some(image),
            ..Input::default()
        },
        ..Request::default()
    };
    let job = request.resolve(&variant).expect("sizes above zero");
    check(&variant, &job).expect_err("a size that does not fit")
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
