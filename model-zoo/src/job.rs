//! What to train, at which sizes, with which options.

use burn::optim::{
    AdaGradConfig, AdamConfig, AdamWConfig, LionConfig, ModuleOptimizer, RmsPropConfig, SgdConfig,
    momentum::MomentumConfig,
};
use serde::{Deserialize, Serialize};

use crate::{Error, Variant};

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
}

impl OptimizerKind {
    /// A fresh optimizer with burn's default hyper-parameters; momentum is 0.9.
    pub fn init(self) -> ModuleOptimizer {
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
        }
    }
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
    /// `self` where given, else the `variant`'s own sizes.
    ///
    /// # Errors
    ///
    /// A size is given that means nothing for this network, or is zero.
    pub fn resolve(self, variant: &Variant) -> Result<Self, Error> {
        let own = variant.input;
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
                model: variant.name,
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

/// What somebody asks for; what is left out is the variant's published recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Samples in a batch.
    pub batch: Option<usize>,
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
}

impl Request {
    /// Fills the gaps with the published recipe of `variant`.
    ///
    /// # Errors
    ///
    /// A size that means nothing for this network, or is zero.
    pub fn resolve(&self, variant: &Variant) -> Result<Job, Error> {
        let batch = self.batch.unwrap_or(variant.batch);
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
            optimizer: self.optimizer.unwrap_or(variant.optimizer),
            input: self.input.resolve(variant)?,
            accumulate: self.accumulate.max(1),
            checkpointing: self.checkpointing,
            freeze: self.freeze.clone(),
        })
    }
}

impl Job {
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
