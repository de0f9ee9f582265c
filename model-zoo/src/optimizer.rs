//! The optimizers of burn-optim.

use burn::module::{Module, ModuleVisitor, Param, ParamGroup, ParamId};
use burn::optim::{
    AdaGradConfig, AdafactorConfig, AdamConfig, AdamWConfig, AdanConfig, LambConfig, LionConfig,
    ModuleOptimizer, MuonConfig, RmsPropConfig, SgdConfig, momentum::MomentumConfig,
};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// An optimizer of burn-optim. It is displayed and parsed in lower case, as `adamw`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::VariantNames,
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum OptimizerKind {
    /// Stochastic gradient descent, no state.
    Sgd,
    /// Stochastic gradient descent with momentum: one value per parameter.
    Momentum,
    /// Adam: two values per parameter.
    Adam,
    /// Adam with decoupled weight decay: two values per parameter.
    AdamW,
    /// RMSProp with momentum.
    RmsProp,
    /// AdaGrad: one value per parameter.
    AdaGrad,
    /// Lion: one value per parameter.
    Lion,
    /// Adafactor: one value per row and one per column of a matrix, one per element
    /// of a vector (Shazeer, Stern 2018, arXiv 1804.04235).
    Adafactor,
    /// LAMB: two values per parameter (You et al. 2019, arXiv 1904.00962).
    Lamb,
    /// Adan: four values per parameter, one of them the gradient of the step before
    /// (Xie et al. 2022, arXiv 2208.06677).
    Adan,
    /// Muon, with one value per parameter, for the matrices that are not embedding tables, and
    /// AdamW for all other parameters, as Muon's author recommends (Jordan et al. 2024).
    Muon,
}

impl OptimizerKind {
    /// An optimizer for `module` with burn's default hyper-parameters and a momentum of 0.9.
    pub fn init<M: Module>(self, module: &M) -> ModuleOptimizer {
        match self {
            Self::Sgd => SgdConfig::new().init(),
            Self::Momentum => SgdConfig::new()
                .with_momentum(Some(MomentumConfig::new().with_momentum(0.9)))
                .init(),
            Self::Adam => AdamConfig::new().init(),
            Self::AdamW => AdamWConfig::new().init(),
            Self::RmsProp => RmsPropConfig::new().init(),
            Self::AdaGrad => AdaGradConfig::new().init(),
            Self::Lion => LionConfig::new().init(),
            Self::Adafactor => AdafactorConfig::new().init(),
            Self::Lamb => LambConfig::new().init(),
            Self::Adan => AdanConfig::new().init(),
            Self::Muon => AdamWConfig::new().init().with_group(
                ParamGroup::from_ids(hidden_matrices(module)),
                MuonConfig::new().build(),
                None,
            ),
        }
    }
}

/// The parameters of rank two that are not embedding tables.
fn hidden_matrices<M: Module>(module: &M) -> Vec<ParamId> {
    #[derive(Default)]
    struct Matrices {
        found: Vec<ParamId>,
        containers: Vec<String>,
    }
    impl ModuleVisitor for Matrices {
        fn enter_module(&mut self, _name: &str, container: &str) {
            self.containers.push(container.into());
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.containers.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let embeds = self
                .containers
                .last()
                .is_some_and(|c| c.contains("Embedding"));
            if D == 2 && !embeds {
                self.found.push(param.id);
            }
        }
    }
    let mut matrices = Matrices::default();
    module.visit(&mut matrices);
    matrices.found
}

#[cfg(test)]
mod tests {
    use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::tensor::{Device, Int};
    use strum::VariantNames;

    use super::*;
    use crate::{Request, supervised, test_support};

    #[derive(Module, Debug)]
    struct SmallNetwork {
        words: Embedding,
        hidden: Linear,
        kernel: Param<Tensor<3>>,
    }

    impl SmallNetwork {
        fn new(device: &Device) -> Self {
            Self {
                words: EmbeddingConfig::new(5, 4).init(device),
                hidden: LinearConfig::new(4, 3).init(device),
                kernel: burn::nn::Initializer::Ones.init([1, 2, 3], device),
            }
        }
    }

    #[test]
    fn every_optimizer_trains() {
        for name in OptimizerKind::VARIANTS {
            let variant = crate::find("resnet-20").unwrap();
            let request = Request {
                optimizer: Some(name.parse().unwrap()),
                ..Request::default()
            };
            let job = request.resolve(&variant).unwrap();
            let device = test_support::flex().autodiff();
            let mut losses = test_support::Losses::on(&device);
            let Ok(()) = supervised(
                SmallNetwork::new(&device),
                &job,
                &device,
                4,
                &mut losses,
                |device| (Tensor::<2, Int>::ones([1, 2], device),),
                |network, (words,)| {
                    let hidden = network.hidden.forward(network.words.forward(words));
                    (hidden * network.kernel.val() - 7.0).square().mean()
                },
            );
            losses.assert_fall(test_support::Kind::ONLY);
        }
    }

    #[test]
    fn muon_gets_neither_embeddings_nor_vectors_nor_kernels() {
        let network = SmallNetwork::new(&test_support::flex().autodiff());
        assert_eq!(hidden_matrices(&network), [network.hidden.weight.id]);
    }
}
