//! A module under its optimizer, and the training loop that most networks share.

use burn::module::{Module, ParamGroup};
use burn::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor};

use crate::mixed::Master;
use crate::{Job, Observer, Phase, Precision, PublishedTensors, Strategy};

/// It has no effect on memory. It is small, so that the losses of a short test stay finite.
const LEARNING_RATE: f64 = 1e-3;

/// A module, the optimizer that trains it, and the gradients of the batches since its last step.
pub struct Trainer<M: Module> {
    name: &'static str,
    module: M,
    optimizer: ModuleOptimizer,
    /// The fp32 weights of mixed precision.
    master: Option<Master>,
    /// The sum of the gradients since the last step.
    gradients: GradientsAccumulator<M>,
    strategy: Strategy,
    /// The module that the program built, if the loop keeps it while it trains a copy.
    first: Option<M>,
}

impl<M: Module> Trainer<M> {
    /// `module` with the optimizer and the adapters of `job`, and with the parameters frozen
    /// that `job` freezes.
    pub fn new(module: M, job: &Job) -> Self {
        Self::named("", module, job)
    }

    /// One of several modules of a training step: as [`Trainer::new`], but the paths of its
    /// parameters begin with `name`.
    pub fn named(name: &'static str, module: M, job: &Job) -> Self {
        let module = match &job.lora {
            Some(lora) => lora.adapt(module, job.precision),
            None => module,
        };
        let module = frozen(module, &below(name, &job.freeze));
        let strategy = job.strategy;
        let first = strategy.keeps_first_model().then(|| module.clone());
        let module = strategy.trained(module);
        let master = (job.precision == Precision::Mixed).then(|| Master::of(&module));
        Self {
            optimizer: job.optimizer.init(&module, job.output_layers),
            name,
            module,
            master,
            gradients: GradientsAccumulator::new(),
            strategy,
            first,
        }
    }

    /// The module.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// Reports the module to `observer`.
    pub fn show<O: Observer>(&self, observer: &mut O) {
        observer.module(self.name, &self.module);
        if let Some(first) = &self.first {
            observer.kept(self.name, first);
        }
    }

    /// The gradients of `loss: [1]` with respect to the module's parameters. In mixed precision
    /// they are in 16 bits, and of the scaled loss. There are none if everything that the loss
    /// depends on is frozen.
    pub fn gradients(&self, loss: &Tensor<1>) -> GradientsParams {
        if !loss.is_tracked() {
            return GradientsParams::new();
        }
        let gradients = match &self.master {
            None => loss.backward(),
            Some(_) => Master::scaled(loss).backward(),
        };
        let gradients = GradientsParams::from_grads(gradients, &self.module);
        self.strategy.reduced(&self.module, gradients)
    }

    /// Makes one optimizer step with the gradients of as many batches as `job` accumulates:
    /// `batch` makes the tensors of a batch on `device`, `loss` computes the loss `[1]` of it.
    ///
    /// # Errors
    ///
    /// The error of the observer, if it stops the step.
    pub fn train<B: Batch, O: Observer>(
        mut self,
        job: &Job,
        device: &Device,
        observer: &mut O,
        batch: impl Fn(&Device) -> B,
        loss: impl Fn(&M, B) -> Tensor<1>,
    ) -> Result<Self, O::Stop> {
        for _ in 0..job.accumulate {
            let inputs = batch(device);
            inputs.show(observer);
            observer.end(Phase::Data)?;

            let loss = loss(&self.module, inputs);
            self.show(observer);
            self.backward(loss, observer)?;
        }
        self.step(observer)
    }

    /// Ends the forward phase with `loss: [1]`, runs the backward pass, and adds the gradients
    /// to those for the next [`Trainer::step`].
    ///
    /// # Errors
    ///
    /// The error of the observer, if it stops the step.
    pub fn backward<O: Observer>(
        &mut self,
        loss: Tensor<1>,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        observer.loss(&loss);
        observer.end(Phase::Forward)?;
        let gradients = self.gradients(&loss);
        observer.gradients(&self.module, &gradients);
        observer.end(Phase::Backward)?;
        self.gradients.accumulate(&self.module, gradients);
        Ok(())
    }

    /// Makes one optimizer step with the gradients since the last one.
    ///
    /// # Errors
    ///
    /// The error of the observer, if it stops the step.
    pub fn step<O: Observer>(mut self, observer: &mut O) -> Result<Self, O::Stop> {
        let gradients = self.gradients.grads();
        let updated = self.update(gradients);
        updated.show(observer);
        observer.end(Phase::Optimizer)?;
        Ok(updated)
    }

    /// The trainer after one optimizer step with `gradients`.
    pub fn update(self, gradients: GradientsParams) -> Self {
        let Self {
            name,
            module,
            mut optimizer,
            master,
            gradients: waiting,
            strategy,
            first,
        } = self;
        let kept = strategy.clones_for_optimizer().then(|| module.clone());
        let (module, master) = match master {
            None => (optimizer.step(LEARNING_RATE, module, gradients), None),
            Some(master) => {
                let gradients = Master::unscaled(&module, gradients);
                let wide = optimizer.step(LEARNING_RATE, master.into_module(&module), gradients);
                let master = Master::of(&wide);
                (master.narrowed(module), Some(master))
            }
        };
        drop(kept);
        Self {
            name,
            module,
            optimizer,
            master,
            gradients: waiting,
            strategy,
            first,
        }
    }
}

/// Those of `prefixes` that are paths in the module called `name`, without that name.
fn below(name: &str, prefixes: &[String]) -> Vec<String> {
    if name.is_empty() {
        return prefixes.to_vec();
    }
    prefixes
        .iter()
        .filter_map(|prefix| match prefix.as_str() {
            "" => Some(""),
            prefix => prefix.strip_prefix(name),
        })
        .filter_map(|path| match path {
            "" => Some(""),
            _ => path.strip_prefix('.'),
        })
        .map(String::from)
        .collect()
}

/// `module` with the parameters below any of `prefixes` frozen: they get no gradient and no
/// optimizer state. The empty prefix freezes all parameters.
pub(crate) fn frozen<M: Module>(module: M, prefixes: &[String]) -> M {
    if prefixes.is_empty() {
        return module;
    }
    if prefixes.iter().any(String::is_empty) {
        return module.no_grad();
    }
    let mut seen = PublishedTensors::default();
    seen.module("", &module);
    let paths = seen.tensors.into_iter().map(|tensor| tensor.path);
    let frozen = paths.filter(|path| prefixes.iter().any(|prefix| is_below(path, prefix)));
    module.set_require_grad_group(ParamGroup::from_paths(frozen.collect::<Vec<_>>()), false)
}

/// Whether `path` is `prefix`, or that of a parameter below it; every path is below the empty
/// prefix.
pub(crate) fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

/// `module` with the parameters whose paths match any of `patterns` frozen, and with the
/// statistics of normalisations there fixed.
pub(crate) fn frozen_where<M: Module>(module: M, patterns: &[&str]) -> M {
    let group = ParamGroup::from_any_regexes(patterns.to_vec());
    module.freeze_group(group.expect("valid regular expressions"))
}

/// The tensors of a batch.
pub trait Batch {
    /// Reports each of them to `observer`.
    fn show<O: Observer>(&self, observer: &mut O);
}

macro_rules! batch {
    ($($rank:ident $kind:ident $field:tt),+) => {
        impl<$(const $rank: usize, $kind: Basic),+> Batch for ($(Tensor<$rank, $kind>,)+) {
            fn show<O: Observer>(&self, observer: &mut O) {
                $(observer.input(&self.$field);)+
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

/// Trains one module with one optimizer for `steps` steps: `batch` makes the inputs and targets
/// on `device`, `loss` computes the loss `[1]` of them.
///
/// # Errors
///
/// The error of the observer, if it stops the step.
pub fn supervised<M, B, O>(
    module: M,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
    batch: impl Fn(&Device) -> B,
    loss: impl Fn(&M, B) -> Tensor<1>,
) -> Result<(), O::Stop>
where
    M: Module,
    B: Batch,
    O: Observer,
{
    let mut trainer = Trainer::new(module, job);
    trainer.show(observer);
    observer.end(Phase::Init)?;
    for _ in 0..steps {
        trainer = trainer.train(job, device, observer, &batch, &loss)?;
        observer.step_ends()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::*;
    use crate::test_support;
    use crate::{NoopObserver, Request, find, train};

    #[test]
    fn a_path_is_frozen_in_the_module_that_it_begins_with() {
        let prefixes = ["generator.convs.0", "discriminator", "generators"].map(String::from);
        assert_eq!(below("generator", &prefixes), ["convs.0"]);
        assert_eq!(below("discriminator", &prefixes), [""]);
        assert_eq!(below("", &prefixes), prefixes);
        assert_eq!(below("generator", &[String::new()]), [""]);
    }

    /// A prefix is a path and no regular expression.
    #[test]
    fn parameters_below_a_path_are_frozen_and_no_others() {
        let device = test_support::flex().autodiff();
        let trained = |prefixes: &[&str]| -> Vec<bool> {
            let prefixes: Vec<_> = prefixes.iter().map(ToString::to_string).collect();
            let layer = |_| LinearConfig::new(2, 2).init(&device);
            let layers: Vec<Linear> = frozen((0..2).map(layer).collect(), &prefixes);
            let weights = layers.iter().map(|layer| layer.weight.val());
            weights.map(|weight| weight.is_require_grad()).collect()
        };
        assert_eq!(trained(&["1"]), [true, false]);
        assert_eq!(trained(&["0.weight", "1.bias"]), [false, true]);
        assert_eq!(trained(&["0|1", "[01]", "[1", "0.w"]), [true, true]);
        assert_eq!(trained(&[""]), [false, false]);
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
        let device = test_support::flex().autodiff();
        let Ok(()) = train(&variant, &job, &device, 1, &mut NoopObserver);
    }
}
