//! A module under its optimizer, and the training loop that most networks share.

use burn::module::{Module, ParamGroup};
use burn::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};

use crate::mixed::Master;
use crate::{Job, Phase, Precision, Watcher};

/// Does not matter to memory; small, so that a short test run stays finite.
const LEARNING_RATE: f64 = 1e-3;

/// A module that is being trained, with its optimizer.
pub struct Trainee<M: Module> {
    module: M,
    optimizer: ModuleOptimizer,
    /// The fp32 weights of mixed precision.
    master: Option<Master>,
}

impl<M: Module> Trainee<M> {
    /// `module` under the optimizer that `job` names; what `job` freezes gets no gradient.
    pub fn new(module: M, job: &Job) -> Self {
        let module = frozen(module, &job.freeze);
        let master = (job.precision == Precision::Mixed).then(|| Master::of(&module));
        Self {
            optimizer: job.optimizer.init(&module),
            module,
            master,
        }
    }

    /// The module as it is now.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// The gradients of `loss` with respect to the module's parameters; in mixed
    /// precision they are those of the scaled loss, in 16 bits.
    pub fn gradients(&self, loss: &Tensor<1>) -> GradientsParams {
        let gradients = match &self.master {
            None => loss.backward(),
            Some(_) => Master::scaled(loss).backward(),
        };
        GradientsParams::from_grads(gradients, &self.module)
    }

    /// Runs `loss` on as many batches as `job` accumulates, and one optimizer step.
    ///
    /// # Errors
    ///
    /// What the watcher stopped with.
    pub fn step<B: Batch, W: Watcher>(
        self,
        job: &Job,
        device: &Device,
        watcher: &mut W,
        batch: impl Fn(&Device) -> B,
        loss: impl Fn(&M, B) -> Tensor<1>,
    ) -> Result<Self, W::Stop> {
        let mut accumulator = GradientsAccumulator::new();
        for _ in 0..job.accumulate {
            let inputs = batch(device);
            inputs.show(watcher);
            watcher.end(Phase::Data)?;

            let loss = loss(&self.module, inputs);
            watcher.loss(&loss);
            watcher.module("", &self.module);
            watcher.end(Phase::Forward)?;

            let gradients = self.gradients(&loss);
            watcher.gradients(&self.module, &gradients);
            watcher.end(Phase::Backward)?;
            accumulator.accumulate(&self.module, gradients);
        }
        let updated = self.update(accumulator.grads());
        watcher.module("", &updated.module);
        watcher.end(Phase::Optimizer)?;
        Ok(updated)
    }

    /// One optimizer step.
    pub fn update(self, gradients: GradientsParams) -> Self {
        let Self {
            module,
            mut optimizer,
            master,
        } = self;
        let Some(master) = master else {
            let module = optimizer.step(LEARNING_RATE, module, gradients);
            return Self {
                module,
                optimizer,
                master: None,
            };
        };
        let gradients = Master::unscaled(&module, gradients);
        let wide = optimizer.step(LEARNING_RATE, master.into_module(&module), gradients);
        let master = Master::of(&wide);
        Self {
            module: master.narrowed(module),
            optimizer,
            master: Some(master),
        }
    }
}

/// `module` with the parameters below any of `prefixes` frozen: they get no
/// gradient and no optimizer state.
pub fn frozen<M: Module>(module: M, prefixes: &[String]) -> M {
    if prefixes.is_empty() {
        return module;
    }
    let patterns = prefixes
        .iter()
        .map(|prefix| format!(r"^{}(\.|$)", prefix.replace('.', r"\.")));
    match ParamGroup::from_any_regexes(patterns.collect()) {
        Ok(group) => module.set_require_grad_group(group, false),
        // A prefix that is no path matches no parameter.
        Err(_) => module,
    }
}

/// The tensors of a batch.
pub trait Batch {
    /// Shows each of them to `watcher`.
    fn show<W: Watcher>(&self, watcher: &mut W);
}

macro_rules! batch {
    ($($rank:ident $kind:ident $field:tt),+) => {
        impl<$(const $rank: usize, $kind: Basic),+> Batch for ($(Tensor<$rank, $kind>,)+) {
            fn show<W: Watcher>(&self, watcher: &mut W) {
                $(watcher.input(&self.$field);)+
            }
        }
    };
}

batch!(A KindA 0);
batch!(A KindA 0, B KindB 1);
batch!(A KindA 0, B KindB 1, C KindC 2);
batch!(A KindA 0, B KindB 1, C KindC 2, D KindD 3);
batch!(A KindA 0, B KindB 1, C KindC 2, D KindD 3, E KindE 4);
batch!(A KindA 0, B KindB 1, C KindC 2, D KindD 3, E KindE 4, F KindF 5);

/// Trains one module with one optimizer: `batch` makes the inputs and targets on
/// the device, `loss` turns them into a loss of one element.
///
/// # Errors
///
/// What the watcher stopped with.
pub fn supervised<M, B, W>(
    module: M,
    job: &Job,
    device: &Device,
    steps: usize,
    watcher: &mut W,
    batch: impl Fn(&Device) -> B,
    loss: impl Fn(&M, B) -> Tensor<1>,
) -> Result<(), W::Stop>
where
    M: Module,
    B: Batch,
    W: Watcher,
{
    let mut trainee = Trainee::new(module, job);
    watcher.module("", trainee.module());
    watcher.end(Phase::Init)?;
    for _ in 0..steps {
        trainee = trainee.step(job, device, watcher, &batch, &loss)?;
    }
    Ok(())
}
