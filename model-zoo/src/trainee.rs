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
    name: &'static str,
    module: M,
    optimizer: ModuleOptimizer,
    /// The fp32 weights of mixed precision.
    master: Option<Master>,
    /// The gradients that wait for the next step.
    gradients: GradientsAccumulator<M>,
}

impl<M: Module> Trainee<M> {
    /// `module` under the optimizer that `job` names, with the adapters that it wants; what
    /// `job` freezes gets no gradient.
    pub fn new(module: M, job: &Job) -> Self {
        Self::named("", module, job)
    }

    /// One of several modules of a training step: as [`Trainee::new`], but paths of
    /// parameters begin with `name`.
    pub fn named(name: &'static str, module: M, job: &Job) -> Self {
        let module = match &job.lora {
            Some(lora) => lora.adapt(module, job.precision),
            None => module,
        };
        let module = frozen(module, &below(name, &job.freeze));
        let master = (job.precision == Precision::Mixed).then(|| Master::of(&module));
        Self {
            optimizer: job.optimizer.init(&module),
            name,
            module,
            master,
            gradients: GradientsAccumulator::new(),
        }
    }

    /// The module as it is now.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// Shows the module to `watcher`.
    pub fn show<W: Watcher>(&self, watcher: &mut W) {
        watcher.module(self.name, &self.module);
    }

    /// The gradients of `loss` with respect to the module's parameters; in mixed
    /// precision they are those of the scaled loss, in 16 bits. None if everything that
    /// the loss depends on is frozen.
    pub fn gradients(&self, loss: &Tensor<1>) -> GradientsParams {
        if !loss.is_tracked() {
            return GradientsParams::new();
        }
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
    pub fn train<B: Batch, W: Watcher>(
        mut self,
        job: &Job,
        device: &Device,
        watcher: &mut W,
        batch: impl Fn(&Device) -> B,
        loss: impl Fn(&M, B) -> Tensor<1>,
    ) -> Result<Self, W::Stop> {
        for _ in 0..job.accumulate {
            let inputs = batch(device);
            inputs.show(watcher);
            watcher.end(Phase::Data)?;

            let loss = loss(&self.module, inputs);
            self.show(watcher);
            self.backward(loss, watcher)?;
        }
        self.step(watcher)
    }

    /// Ends the forward phase with `loss` and passes backward from it; the gradients are
    /// added to those that wait for [`Trainee::step`].
    ///
    /// # Errors
    ///
    /// What the watcher stopped with.
    pub fn backward<W: Watcher>(
        &mut self,
        loss: Tensor<1>,
        watcher: &mut W,
    ) -> Result<(), W::Stop> {
        watcher.loss(&loss);
        watcher.end(Phase::Forward)?;
        let gradients = self.gradients(&loss);
        watcher.gradients(&self.module, &gradients);
        watcher.end(Phase::Backward)?;
        self.gradients.accumulate(&self.module, gradients);
        Ok(())
    }

    /// One optimizer step with the gradients that wait for it.
    ///
    /// # Errors
    ///
    /// What the watcher stopped with.
    pub fn step<W: Watcher>(mut self, watcher: &mut W) -> Result<Self, W::Stop> {
        let gradients = self.gradients.grads();
        let updated = self.update(gradients);
        updated.show(watcher);
        watcher.end(Phase::Optimizer)?;
        Ok(updated)
    }

    /// One optimizer step with `gradients`.
    pub fn update(self, gradients: GradientsParams) -> Self {
        let Self {
            name,
            module,
            mut optimizer,
            master,
            gradients: waiting,
        } = self;
        let (module, master) = match master {
            None => (optimizer.step(LEARNING_RATE, module, gradients), None),
            Some(master) => {
                let gradients = Master::unscaled(&module, gradients);
                let wide = optimizer.step(LEARNING_RATE, master.into_module(&module), gradients);
                let master = Master::of(&wide);
                (master.narrowed(module), Some(master))
            }
        };
        Self {
            name,
            module,
            optimizer,
            master,
            gradients: waiting,
        }
    }
}

/// Those of `prefixes` that lie within the module called `name`, as paths from there.
fn below(name: &str, prefixes: &[String]) -> Vec<String> {
    if name.is_empty() {
        return prefixes.to_vec();
    }
    prefixes
        .iter()
        .filter_map(|prefix| prefix.strip_prefix(name))
        .filter_map(|path| match path {
            "" => Some(""),
            _ => path.strip_prefix('.'),
        })
        .map(String::from)
        .collect()
}

/// `module` with the parameters below any of `prefixes` frozen: they get no
/// gradient and no optimizer state. Everything is below the empty prefix.
pub fn frozen<M: Module>(module: M, prefixes: &[String]) -> M {
    if prefixes.is_empty() {
        return module;
    }
    if prefixes.iter().any(String::is_empty) {
        return module.no_grad();
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

/// `module` with the parameters frozen, and the statistics of normalisations fixed,
/// whose paths match any of `patterns`.
pub(crate) fn frozen_where<M: Module>(module: M, patterns: &[&str]) -> M {
    let group = ParamGroup::from_any_regexes(patterns.to_vec());
    module.freeze_group(group.expect("patterns of this crate are regular expressions"))
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
    trainee.show(watcher);
    watcher.end(Phase::Init)?;
    for _ in 0..steps {
        trainee = trainee.train(job, device, watcher, &batch, &loss)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy;
    use crate::{Request, Unwatched, find, train};

    #[test]
    fn a_path_is_frozen_in_the_module_that_it_begins_with() {
        let prefixes = ["generator.convs.0", "discriminator", "generators"].map(String::from);
        assert_eq!(below("generator", &prefixes), ["convs.0"]);
        assert_eq!(below("discriminator", &prefixes), [""]);
        assert_eq!(below("", &prefixes), prefixes);
    }

    #[test]
    fn a_step_runs_with_everything_frozen() {
        let variant = find("dcgan").unwrap();
        let request = Request {
            batch: Some(1),
            freeze: vec!["generator".into(), "discriminator".into()],
            ..Request::default()
        };
        let job = request.resolve(&variant).unwrap();
        let device = toy::flex().autodiff();
        let Ok(()) = train(&variant, &job, &device, 1, &mut Unwatched);
    }
}
