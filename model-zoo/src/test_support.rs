//! Helpers for the tests of the networks, which train small networks on the CPU.

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};

use crate::{Error, Input, Job, Observer, Phase, Request, check, find, train};

const STEPS: usize = 6;

/// All tests use one random generator. A test that trains holds it exclusively, so that its losses
/// are the same in every run; the other tests share it.
static GENERATOR: RwLock<()> = RwLock::new(());

thread_local! {
    /// The read lock of a test on [`GENERATOR`], which it holds until its thread ends.
    static SHARE: RefCell<Option<RwLockReadGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// The CPU, for a test that uses random numbers and does not train.
pub(crate) fn flex() -> Device {
    SHARE.with_borrow_mut(|share| {
        share.get_or_insert_with(|| GENERATOR.read().unwrap_or_else(PoisonError::into_inner));
    });
    Device::flex()
}

/// One of the losses of a step that has several.
pub(crate) struct Kind {
    /// Its index among them.
    pub which: usize,
    /// The number of losses.
    pub of: usize,
}

impl Kind {
    /// The loss of a step that has one.
    pub const ONLY: Self = Self { which: 0, of: 1 };
}

/// Collects the losses, and seeds the generator before each batch, so that all are the same.
pub(crate) struct Losses {
    device: Device,
    losses: Vec<f32>,
    _exclusive: RwLockWriteGuard<'static, ()>,
}

impl Losses {
    /// No losses yet; this thread holds the generator exclusively from here on.
    pub fn on(device: &Device) -> Self {
        SHARE.take();
        let exclusive = GENERATOR.write().unwrap_or_else(PoisonError::into_inner);
        device.seed(1);
        Self {
            device: device.clone(),
            losses: Vec::new(),
            _exclusive: exclusive,
        }
    }

    /// Asserts that there are losses, and that all are finite.
    pub fn assert_finite(&self) {
        let losses = &self.losses;
        assert!(!losses.is_empty());
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    }

    /// Asserts that all losses are finite and that the last is below the second. The batch of the
    /// first step differs from the others, since that step draws the parameters too. `kind` says
    /// which loss to look at, if a step has several.
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

impl Observer for Losses {
    type Stop = Infallible;

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

/// Trains the variant called `name` on the batch of `request`, and asserts that the loss falls.
pub(crate) fn trains(name: &str, request: &Request) {
    let variant = find(name).expect("a variant of the zoo");
    assert_loss_decreases(name, request, |job, device, steps, losses| {
        train(&variant, job, device, steps, losses)
    });
}

/// Trains with `train` on the batch of `request`, resolved for the variant called `name`, and
/// asserts that the loss falls.
pub(crate) fn assert_loss_decreases(
    name: &str,
    request: &Request,
    train: impl FnOnce(&Job, &Device, usize, &mut Losses) -> Result<(), Infallible>,
) {
    assert_one_loss_decreases(Kind::ONLY, name, request, train);
}

/// As [`assert_loss_decreases`], for a step that has several losses.
pub(crate) fn assert_one_loss_decreases(
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

/// The error of the variant called `name` for images of this height and width.
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

/// Asserts that the variant called `name` accepts sequences of `limit` tokens and no longer ones.
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

/// The number of elements of all parameters of `module`, and of their tensors. It creates none
/// of them.
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
