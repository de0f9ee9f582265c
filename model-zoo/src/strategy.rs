//! Whose training loop runs the step, and on how many GPUs.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::distributed::{ReduceOperation, all_reduce};
use burn::tensor::{StreamId, Tensor};
use serde::{Deserialize, Serialize};

/// Whose training loop runs the step, and on how many GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// A loop on one GPU that moves the model into the optimizer, as people write it.
    #[default]
    Single,
    /// The loop of burn-train on one GPU, which hands the optimizer a clone of the model: `optimizer_step` of burn-train
    /// 0.22.1, `src/learner/base.rs`.
    Learner,
    /// The loop of burn-train on one of several GPUs that train the same model with a batch each: data parallelism (DDP),
    /// `src/learner/supervised/strategies/ddp`.
    Ddp(Rank),
}

/// One of the GPUs of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Rank {
    /// GPU 0. The program built the model there, and `fit` of `ddp/strategy.rs` keeps it while workers train copies.
    #[default]
    First,
    /// Any other GPU.
    Other,
}

impl Strategy {
    /// Whether this is what a request means that says nothing about it.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the loop keeps the model that the program built, and trains a copy.
    pub(crate) fn keeps_first_model(self) -> bool {
        self == Self::Ddp(Rank::First)
    }

    /// Whether the optimizer gets a clone of the model, so that no weight is overwritten in place.
    pub(crate) fn clones_for_optimizer(self) -> bool {
        self != Self::Single
    }

    /// `module` as the loop trains it: a worker of DDP forks a clone, of which all parameters are there from the beginning.
    pub(crate) fn trained<M: Module>(self, module: M) -> M {
        let Self::Ddp(_) = self else {
            return module;
        };
        match module.devices().first() {
            Some(device) => module.fork(device).map(&mut Created),
            None => module,
        }
    }

    /// The gradients of `module` after the GPUs have reduced them: `gradients` themselves on one GPU.
    ///
    /// burn reduces a gradient when the last GPU has it: on the thread of `DistributedSyncServer` (burn-backend 0.22.1,
    /// `src/backend/distributed/server.rs`), and so on a stream, and in pools, of its own. This is the moment for a GPU that is
    /// ahead of the others: it has all its gradients.
    pub(crate) fn reduced<M: Module>(
        self,
        module: &M,
        gradients: GradientsParams,
    ) -> GradientsParams {
        let Self::Ddp(_) = self else {
            return gradients;
        };
        let mut reduction = Reduction {
            // That thread has another stream than the program.
            stream: StreamId {
                value: StreamId::current().value + 1,
            },
            from: gradients,
            to: GradientsParams::new(),
        };
        module.visit(&mut reduction);
        reduction.to
    }
}

/// Creates all parameters, as `ModuleSharder` of burn-train does when it marks them (`src/learner/sharder.rs`).
struct Created;

impl ModuleMapper for Created {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        Param::from_mapped_value(id, tensor, mapper)
    }
}

/// The gradients of a module while the GPUs reduce them, one after the other.
struct Reduction {
    stream: StreamId,
    from: GradientsParams,
    to: GradientsParams,
}

impl ModuleVisitor for Reduction {
    /// As `launch_ops` of `server.rs`: the server reduces a clone of the gradient, which burn therefore copies, and puts the
    /// outcome into the place of the gradient.
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.from.remove::<D>(param.id) else {
            return;
        };
        let reduced = self.stream.executes(|| {
            let gpus = vec![gradient.device()];
            let reduced = all_reduce(gradient.clone(), ReduceOperation::Mean, gpus);
            let reduced = reduced.resolve();
            drop(gradient);
            reduced
        });
        self.to.register(param.id, reduced);
    }
}
