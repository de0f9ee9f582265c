//! The optimizers of burn-optim.

use burn::module::{Module, ModuleVisitor, Param, ParamGroup, ParamId};
use burn::optim::{
    AdaGradConfig, AdafactorConfig, AdamConfig, AdamWConfig, AdanConfig, LambConfig, LionConfig,
    ModuleOptimizer, MuonConfig, RmsPropConfig, SgdConfig, momentum::MomentumConfig,
};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// An optimizer of burn-optim. It is displayed and parsed in lower case, as `adamw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::EnumString, strum::VariantNames)]
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
    /// Muon, with one value per parameter, for the matrices of hidden layers, and AdamW for embedding
    /// tables, output layers and all other parameters, as Muon's author recommends (Jordan et al. 2024).
    Muon,
}

impl OptimizerKind {
    /// An optimizer for `module` with burn's default hyper-parameters and a momentum of 0.9. The
    /// module's output layers are those that [`Job::output_layers`](crate::Job::output_layers) names.
    pub fn init<M: Module>(self, module: &M, output_layers: &[&str]) -> ModuleOptimizer {
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
                ParamGroup::from_ids(hidden_matrices(module, output_layers)),
                MuonConfig::new().build(),
                None,
            ),
        }
    }
}

/// The parameters in `output_layers`; `None` if there are none of these, since a group of no patterns
/// matches every path.
fn output_group(output_layers: &[&str]) -> Option<ParamGroup> {
    if output_layers.is_empty() {
        return None;
    }
    let patterns = output_layers.iter();
    let patterns = patterns.map(|name| format!(r"(^|\.){name}(\.|$)"));
    let group = ParamGroup::from_any_regexes(patterns.collect::<Vec<_>>());
    Some(group.expect("valid regular expressions"))
}

/// The parameters of rank two that are neither embedding tables nor in `output_layers`: Muon's author
/// leaves both of these to AdamW (KellerJordan/Muon, README.md).
fn hidden_matrices<M: Module>(module: &M, output_layers: &[&str]) -> Vec<ParamId> {
    struct Matrices {
        found: Vec<ParamId>,
        /// The names on the path to the next parameter, and the types of the modules that have them.
        path: Vec<(String, String)>,
        output: Option<ParamGroup>,
    }
    impl ModuleVisitor for Matrices {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.push((name.into(), container.into()));
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let names: Vec<_> = self.path.iter().map(|(name, _)| name.as_str()).collect();
            let path = names.join(".");
            let embeds = self
                .path
                .last()
                .is_some_and(|(_, container)| container.contains("Embedding"));
            let is_output = |group: &ParamGroup| group.matches(&param.id, Some(path.as_str()));
            let is_hidden = !embeds && !self.output.as_ref().is_some_and(is_output);
            if D == 2 && is_hidden {
                self.found.push(param.id);
            }
        }
    }
    let mut matrices = Matrices {
        found: Vec::new(),
        path: Vec::new(),
        output: output_group(output_layers),
    };
    module.visit(&mut matrices);
    matrices.found
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::tensor::{Device, Int};
    use strum::VariantNames;

    use super::*;
    use crate::{Model, Request, networks, supervised, test_support};

    #[derive(Module, Debug)]
    struct SmallNetwork {
        words: Embedding,
        hidden: Linear,
        head: Linear,
        kernel: Param<Tensor<3>>,
    }

    impl SmallNetwork {
        fn new(device: &Device) -> Self {
            Self {
                words: EmbeddingConfig::new(5, 4).init(device),
                hidden: LinearConfig::new(4, 4).init(device),
                head: LinearConfig::new(4, 3).init(device),
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
                    let scores = network.head.forward(hidden);
                    (scores * network.kernel.val() - 7.0).square().mean()
                },
            );
            losses.assert_fall(test_support::Kind::ONLY);
        }
    }

    #[test]
    fn muon_gets_neither_embeddings_nor_output_layers_nor_vectors_nor_kernels() {
        let network = SmallNetwork::new(&test_support::flex().autodiff());
        let (hidden, head) = (network.hidden.weight.id, network.head.weight.id);
        assert_eq!(hidden_matrices(&network, &["head"]), [hidden]);
        // A name is a whole name.
        assert_eq!(hidden_matrices(&network, &["hea", "idden"]), [hidden, head]);
        assert_eq!(hidden_matrices(&network, &[]), [hidden, head]);
    }

    /// A layer that is renamed would become a hidden one without a word.
    #[test]
    fn every_output_layer_is_there() {
        let device = test_support::flex().autodiff();
        let mut seen: HashSet<(&str, &str)> = HashSet::new();
        let mut unseen = seen.clone();
        let mut look = |file: &'static str, paths: Vec<String>| {
            for &layer in networks::output_layers(file) {
                let group = output_group(&[layer]).unwrap();
                let id = ParamId::new();
                let is_of = |path: &String| group.matches(&id, Some(path.as_str()));
                let found = paths.iter().any(is_of);
                let kind = if found { &mut seen } else { &mut unseen };
                kind.insert((file, layer));
            }
        };
        for variant in crate::variants() {
            let job = Request::default().resolve(&variant).unwrap();
            assert_eq!(job.output_layers, networks::output_layers(variant.file));
            look(variant.file, job.parameter_paths(&variant, &device));
        }
        // Layers that no published network has.
        for config in [
            r#"{"model_type": "gemma", "tie_word_embeddings": false}"#,
            r#"{"model_type": "smollm3", "tie_word_embeddings": false}"#,
            r#"{"model_type": "bert", "architectures": ["BertForTokenClassification"]}"#,
            r#"{"model_type": "bert", "architectures": ["BertForQuestionAnswering"]}"#,
        ] {
            let own = crate::ConfigModel::read("own", config).unwrap();
            let job = Request::default().resolve(&own).unwrap();
            look(own.file().unwrap(), job.parameter_paths(&own, &device));
        }
        // Not each network of a file has each of its output layers.
        assert!(unseen.is_subset(&seen), "{unseen:?}");
    }
}
