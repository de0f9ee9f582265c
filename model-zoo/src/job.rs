//! A training job: what somebody requests, and the same with every gap filled.

use burn::module::{Module, ModuleVisitor, Param, ParamGroup, ParamId};
use burn::optim::{
    AdaGradConfig, AdafactorConfig, AdamConfig, AdamWConfig, AdanConfig, LambConfig, LionConfig,
    ModuleOptimizer, MuonConfig, RmsPropConfig, SgdConfig, momentum::MomentumConfig,
};
use burn::tensor::{FloatDType, Tensor};
use serde::{Deserialize, Serialize};

use crate::lora::projections;
use crate::{Error, Input, InputSize, Lora, LoraRequest, Model, Setting};

/// The number formats of a training step.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
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
pub enum Precision {
    /// Everything in 32 bits.
    #[default]
    Fp32,
    /// Everything in IEEE half precision.
    Fp16,
    /// Everything in bfloat16.
    Bf16,
    /// 16-bit weights, activations and gradients with fp32 master weights and
    /// optimizer state (Micikevicius et al. 2018, arXiv 1710.03740).
    Mixed,
}

impl Precision {
    /// The float type of the tensors that a step creates on the device.
    pub fn float_type(self) -> FloatDType {
        match self {
            Self::Fp32 => FloatDType::F32,
            Self::Fp16 | Self::Mixed => FloatDType::F16,
            Self::Bf16 => FloatDType::BF16,
        }
    }
}

/// The optimizers of burn-optim. Each is displayed and parsed in lower case, as `adamw`.
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

/// What somebody wants to train. A field that is `None` takes the value of the model's recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Request {
    /// Samples in a batch.
    pub batch: Option<usize>,
    /// Most tokens in a batch: the batch has as many samples as have no more tokens together.
    /// It has no effect if `batch` is given.
    pub tokens: Option<usize>,
    /// Number formats.
    pub precision: Precision,
    /// Optimizer.
    pub optimizer: Option<OptimizerKind>,
    /// Sizes of a sample.
    pub input: Input,
    /// Batches whose gradients are summed before one optimizer step; 0 counts as 1.
    pub accumulate: usize,
    /// Whether the backward pass computes activations again where burn supports it.
    pub checkpointing: bool,
    /// Path prefixes of parameters that are not trained.
    pub freeze: Vec<String>,
    /// Low-rank adapters, which are trained in place of the weights.
    pub lora: Option<LoraRequest>,
}

/// A [`Request`] with every gap filled: the training step is made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Samples in a batch.
    pub batch: usize,
    /// Number formats.
    pub precision: Precision,
    /// Optimizer.
    pub optimizer: OptimizerKind,
    /// Sizes of a sample.
    pub input: Input,
    /// Batches whose gradients are summed before one optimizer step.
    pub accumulate: usize,
    /// Whether the backward pass computes activations again where burn supports it.
    pub checkpointing: bool,
    /// Path prefixes of parameters that are not trained.
    pub freeze: Vec<String>,
    /// Low-rank adapters, which are trained in place of the weights.
    pub lora: Option<Lora>,
}

impl Request {
    /// Fills the gaps with the recipe of `model`.
    ///
    /// # Errors
    ///
    /// [`Error::NotApplicable`] if the model has no such size, [`Error::NoAdapters`] if the zoo
    /// knows no adapters for it, [`Error::Size`] if a size is zero, the model has no such adapter
    /// target, or one sample has more tokens than the batch may have.
    pub fn resolve(&self, model: &impl Model) -> Result<Job, Error> {
        let recipe = model.recipe();
        let input = self.input.resolve(model)?;
        let batch = match (self.batch, self.tokens) {
            (Some(batch), _) => batch,
            (None, Some(tokens)) => samples(tokens, &input, model)?,
            (None, None) => recipe.batch,
        };
        if batch == 0 {
            return Err(Error::Size {
                what: Setting::Batch,
                must: "at least 1".into(),
                got: "0".into(),
            });
        }
        Ok(Job {
            batch,
            precision: self.precision,
            optimizer: self.optimizer.unwrap_or(recipe.optimizer),
            input,
            accumulate: self.accumulate.max(1),
            checkpointing: self.checkpointing,
            freeze: self.freeze.clone(),
            lora: self.lora(model)?,
        })
    }

    fn lora(&self, model: &impl Model) -> Result<Option<Lora>, Error> {
        match (&self.lora, model.file().and_then(projections)) {
            (None, _) => Ok(None),
            (Some(lora), Some(projections)) => lora.resolve(projections).map(Some),
            (Some(_), None) => Err(Error::NoAdapters {
                model: model.name().into(),
            }),
        }
    }
}

/// The number of samples of `input` that have at most `tokens` together.
fn samples(tokens: usize, input: &Input, model: &impl Model) -> Result<usize, Error> {
    let each = input.tokens().ok_or_else(|| Error::NotApplicable {
        what: Setting::Tokens,
        model: model.name().into(),
        applicable: input.sizes(),
    })?;
    match tokens / each {
        0 => Err(Error::Size {
            what: Setting::Tokens,
            must: format!("at least {each}, which is one sample"),
            got: tokens.to_string(),
        }),
        samples => Ok(samples),
    }
}

impl Job {
    /// The request that resolves to this job again, for the same model.
    pub fn request(&self) -> Request {
        Request {
            batch: Some(self.batch),
            tokens: None,
            precision: self.precision,
            optimizer: Some(self.optimizer),
            input: self.input,
            accumulate: self.accumulate,
            checkpointing: self.checkpointing,
            freeze: self.freeze.clone(),
            lora: self.lora.as_ref().map(Lora::request),
        }
    }

    /// Checks that an image is at least `side` pixels high and wide.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if it is not.
    pub(crate) fn image_at_least(&self, side: usize) -> Result<(), Error> {
        self.check_image(format!("at least {side}x{side}"), |[height, width]| {
            height.min(width) >= side
        })
    }

    /// Checks that `holds` is true of the height and width of an image; `must` says it in words.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if it is false.
    pub(crate) fn check_image(
        &self,
        must: String,
        holds: impl Fn([usize; 2]) -> bool,
    ) -> Result<(), Error> {
        let [height, width] = self.image();
        if holds([height, width]) {
            return Ok(());
        }
        Err(Error::Size {
            what: InputSize::Image.into(),
            must,
            got: format!("{height}x{width}"),
        })
    }

    /// Height and width of an image, in pixels.
    ///
    /// # Panics
    ///
    /// If the model's recipe has no image size: a mistake in the model, not in a request.
    pub fn image(&self) -> [usize; 2] {
        self.input
            .image
            .expect("the model's recipe has an image size")
    }

    /// Tokens in a sequence. Panics as [`Job::image`] does.
    pub fn seq(&self) -> usize {
        self.input
            .seq
            .expect("the model's recipe has a sequence length")
    }

    /// Tokens in a source sequence. Panics as [`Job::image`] does.
    pub fn src_seq(&self) -> usize {
        self.input
            .src_seq
            .expect("the model's recipe has a source length")
    }

    /// Classes of the output. Panics as [`Job::image`] does.
    pub fn classes(&self) -> usize {
        self.input.classes.expect("the model's recipe has classes")
    }

    /// Words in the vocabulary. Panics as [`Job::image`] does.
    pub fn vocab(&self) -> usize {
        self.input
            .vocab
            .expect("the model's recipe has a vocabulary")
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::tensor::{Device, Int};
    use strum::VariantNames;

    use super::*;
    use crate::{supervised, test_support};

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

    /// Vaswani et al. 2017, section 5.1: 25,000 source and 25,000 target tokens a batch.
    #[test]
    fn a_batch_in_tokens_counts_the_longer_side() {
        let variant = crate::find("transformer-base").unwrap();
        let request = |tokens, src_seq, seq| Request {
            tokens: Some(tokens),
            input: Input {
                src_seq: Some(src_seq),
                seq: Some(seq),
                ..Input::default()
            },
            ..Request::default()
        };
        let batch = |tokens, src_seq, seq| {
            let job = request(tokens, src_seq, seq).resolve(&variant);
            job.map(|job| job.batch)
        };
        assert_eq!(batch(25_000, 25, 25), Ok(1000));
        assert_eq!(batch(25_000, 50, 25), Ok(500));
        assert_eq!(batch(25_000, 25, 50), Ok(500));
        assert_eq!(batch(99, 50, 50), Ok(1));
        assert!(matches!(batch(49, 50, 50), Err(Error::Size { .. })));
    }

    #[test]
    fn muon_gets_neither_embeddings_nor_vectors_nor_kernels() {
        let network = SmallNetwork::new(&test_support::flex().autodiff());
        assert_eq!(hidden_matrices(&network), [network.hidden.weight.id]);
    }
}
