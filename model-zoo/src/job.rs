//! What to train, at which sizes, with which options.

use burn::module::{Module, ModuleVisitor, Param, ParamGroup, ParamId};
use burn::optim::{
    AdaGradConfig, AdafactorConfig, AdamConfig, AdamWConfig, AdanConfig, LambConfig, LionConfig,
    ModuleOptimizer, MuonConfig, RmsPropConfig, SgdConfig, momentum::MomentumConfig,
};
use burn::tensor::{FloatDType, Tensor};
use serde::{Deserialize, Serialize};

use crate::lora::projections;
use crate::{Error, Lora, LoraRequest, Model};

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
    /// The float type of what a step creates.
    pub fn float_type(self) -> FloatDType {
        match self {
            Self::Fp32 => FloatDType::F32,
            Self::Fp16 | Self::Mixed => FloatDType::F16,
            Self::Bf16 => FloatDType::BF16,
        }
    }
}

/// The optimizers of burn-optim, by the names that people type.
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
    /// Adan: four values per parameter, one of them the gradient before
    /// (Xie et al. 2022, arXiv 2208.06677).
    Adan,
    /// Muon, one value per parameter, for matrices that are no embedding; AdamW for
    /// everything else, as its author recommends (Jordan et al. 2024).
    Muon,
}

impl OptimizerKind {
    /// A fresh optimizer for `module` with burn's default hyper-parameters; momentum is 0.9.
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

/// The parameters of rank two that are not the table of an embedding.
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

/// The sizes of one sample. `None`: it means nothing for this network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Height and width of an image, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<[usize; 2]>,
    /// Tokens in a sequence (of the target, where there is a source too).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<usize>,
    /// Tokens in a source sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_seq: Option<usize>,
    /// Classes of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
    /// Words in the vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocab: Option<usize>,
}

impl Input {
    /// `self` where given, else the sizes of the `model`'s recipe.
    ///
    /// # Errors
    ///
    /// A size is given that means nothing for this network, or is zero.
    pub fn resolve(self, model: &impl Model) -> Result<Self, Error> {
        let own = model.recipe().input;
        let pick = |option: &'static str, given: Option<usize>, default: Option<usize>| match (
            given, default,
        ) {
            (Some(0), Some(_)) => Err(Error::Size {
                what: option,
                must: "at least 1".into(),
                got: "0".into(),
            }),
            (Some(given), Some(_)) => Ok(Some(given)),
            (Some(_), None) => Err(Error::NotApplicable {
                option,
                model: model.name().into(),
                applicable: own.applicable(),
            }),
            (None, default) => Ok(default),
        };
        let height = pick("--image", self.image.map(|i| i[0]), own.image.map(|i| i[0]))?;
        let width = pick("--image", self.image.map(|i| i[1]), own.image.map(|i| i[1]))?;
        Ok(Self {
            image: height.zip(width).map(|(height, width)| [height, width]),
            seq: pick("--seq", self.seq, own.seq)?,
            src_seq: pick("--src-seq", self.src_seq, own.src_seq)?,
            classes: pick("--classes", self.classes, own.classes)?,
            vocab: pick("--vocab", self.vocab, own.vocab)?,
        })
    }

    /// Tokens of one sample, where it is made of tokens. Of a translation it is the longer
    /// side, as `--max-tokens` counts them (fairseq, `num_tokens` of
    /// `language_pair_dataset.py`).
    pub fn tokens(&self) -> Option<usize> {
        self.seq.max(self.src_seq)
    }

    /// The first option whose size is another in `other`, with both sizes.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let one = |size: Option<usize>| size.map_or_else(|| "none".into(), |size| size.to_string());
        let image = |size: Option<[usize; 2]>| match size {
            Some([height, width]) => format!("{height}x{width}"),
            None => "none".into(),
        };
        [
            ("--image", image(self.image), image(other.image)),
            ("--seq", one(self.seq), one(other.seq)),
            ("--src-seq", one(self.src_seq), one(other.src_seq)),
            ("--classes", one(self.classes), one(other.classes)),
            ("--vocab", one(self.vocab), one(other.vocab)),
        ]
        .into_iter()
        .find(|(_, own, others)| own != others)
    }

    /// The options whose sizes mean something here.
    pub fn applicable(&self) -> Vec<&'static str> {
        [
            ("--image", self.image.is_some()),
            ("--seq", self.seq.is_some()),
            ("--src-seq", self.src_seq.is_some()),
            ("--classes", self.classes.is_some()),
            ("--vocab", self.vocab.is_some()),
        ]
        .into_iter()
        .filter_map(|(option, applies)| applies.then_some(option))
        .collect()
    }
}

/// What somebody asks for; what is left out is the model's own recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Samples in a batch.
    pub batch: Option<usize>,
    /// Tokens in a batch: as many samples as have no more; where `batch` is given, that counts.
    pub tokens: Option<usize>,
    /// Number formats.
    pub precision: Precision,
    /// Optimizer.
    pub optimizer: Option<OptimizerKind>,
    /// Sizes of a sample.
    pub input: Input,
    /// Batches whose gradients are added up before one optimizer step; 0 is taken as 1.
    pub accumulate: usize,
    /// Whether activations are computed again in the backward pass where burn can.
    pub checkpointing: bool,
    /// Path prefixes of parameters that are not trained.
    pub freeze: Vec<String>,
    /// Low-rank adapters, which are trained in place of the weights.
    pub lora: Option<LoraRequest>,
}

/// A request with every gap filled: what a training step is made from.
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
    /// Batches whose gradients are added up before one optimizer step.
    pub accumulate: usize,
    /// Whether activations are computed again in the backward pass where burn can.
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
    /// A size or adapters that mean nothing for this network, or a size of zero; fewer tokens
    /// than one sample has.
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
                what: "--batch",
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

/// As many samples of `input` as have at most `tokens`.
fn samples(tokens: usize, input: &Input, model: &impl Model) -> Result<usize, Error> {
    let each = input.tokens().ok_or_else(|| Error::NotApplicable {
        option: "--tokens",
        model: model.name().into(),
        applicable: input.applicable(),
    })?;
    match tokens / each {
        0 => Err(Error::Size {
            what: "--tokens",
            must: format!("at least {each}, which is one sample"),
            got: tokens.to_string(),
        }),
        samples => Ok(samples),
    }
}

impl Job {
    /// What asks for it: resolved for the same model, this job again.
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

    /// Checks that an image is what `must` says.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if it is not.
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
            what: "--image",
            must,
            got: format!("{height}x{width}"),
        })
    }

    /// Height and width of an image, in pixels.
    ///
    /// # Panics
    ///
    /// The variant has no images: a mistake in its file, not in a request.
    pub fn image(&self) -> [usize; 2] {
        self.input
            .image
            .expect("the variant's recipe has an image size")
    }

    /// Tokens in a sequence. Panics as [`Job::image`] does.
    pub fn seq(&self) -> usize {
        self.input
            .seq
            .expect("the variant's recipe has a sequence length")
    }

    /// Tokens in a source sequence. Panics as [`Job::image`] does.
    pub fn src_seq(&self) -> usize {
        self.input
            .src_seq
            .expect("the variant's recipe has a source length")
    }

    /// Classes of the output. Panics as [`Job::image`] does.
    pub fn classes(&self) -> usize {
        self.input
            .classes
            .expect("the variant's recipe has classes")
    }

    /// Words in the vocabulary. Panics as [`Job::image`] does.
    pub fn vocab(&self) -> usize {
        self.input
            .vocab
            .expect("the variant's recipe has a vocabulary")
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::tensor::{Device, Int};
    use strum::VariantNames;

    use super::*;
    use crate::{supervised, toy};

    #[derive(Module, Debug)]
    struct Toy {
        words: Embedding,
        hidden: Linear,
        kernel: Param<Tensor<3>>,
    }

    impl Toy {
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
            let device = toy::flex().autodiff();
            let mut losses = toy::Losses::on(&device);
            let Ok(()) = supervised(
                Toy::new(&device),
                &job,
                &device,
                4,
                &mut losses,
                |device| (Tensor::<2, Int>::ones([1, 2], device),),
                |toy, (words,)| {
                    let hidden = toy.hidden.forward(toy.words.forward(words));
                    (hidden * toy.kernel.val() - 7.0).square().mean()
                },
            );
            losses.assert_fall(crate::toy::Kind::ONLY);
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
        let toy = Toy::new(&toy::flex().autodiff());
        assert_eq!(hidden_matrices(&toy), [toy.hidden.weight.id]);
    }
}
