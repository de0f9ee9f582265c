//! A training job: what somebody requests, and the same with every gap filled.

use std::collections::HashSet;

use burn::tensor::{Device, FloatDType};
use serde::{Deserialize, Serialize};

use crate::lora::projections;
use crate::networks::output_layers;
use crate::trainer::is_below;
use crate::{
    Error, Input, InputSize, Lora, LoraRequest, Model, OptimizerKind, PublishedTensors, Setting,
    Strategy,
};

/// The number formats of a training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::EnumString, strum::VariantNames)]
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

/// What somebody wants to train. A field that is `None` takes the model's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Request {
    /// Samples in a batch.
    pub batch: Option<usize>,
    /// Maximum tokens of a batch: the batch holds as many samples as fit into it.
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
    /// The training loop, and the GPU of several.
    #[serde(default, skip_serializing_if = "Strategy::is_default")]
    pub strategy: Strategy,
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
    /// The training loop, and the GPU of several.
    pub strategy: Strategy,
    /// Regular expressions for the names of the model's output layers, which Muon leaves to AdamW. The
    /// zoo knows none of a model outside of it, so Muon trains those too.
    pub output_layers: &'static [&'static str],
}

impl Request {
    /// Fills the gaps with the defaults of `model`.
    ///
    /// # Errors
    ///
    /// [`Error::NotApplicable`] if the model has no such size, [`Error::NoAdapters`] if the zoo
    /// knows no adapters for it, [`Error::Size`] if a size is zero, the model has no such adapter
    /// target, or one sample has more tokens than the batch may have.
    pub fn resolve(&self, model: &impl Model) -> Result<Job, Error> {
        let defaults = model.defaults();
        let input = self.input.resolve(model)?;
        let batch = match (self.batch, self.tokens) {
            (Some(batch), _) => batch,
            (None, Some(tokens)) => samples(tokens, &input, model)?,
            (None, None) => defaults.batch,
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
            optimizer: self.optimizer.unwrap_or(defaults.optimizer),
            input,
            accumulate: self.accumulate.max(1),
            checkpointing: self.checkpointing,
            freeze: self.freeze.clone(),
            lora: self.lora(model)?,
            strategy: self.strategy,
            output_layers: model.file().map(output_layers).unwrap_or_default(),
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

/// The first part of each of `paths`, without repetition.
fn first_parts(paths: &[String]) -> Vec<String> {
    let mut seen = HashSet::new();
    let parts = paths.iter().filter_map(|path| path.split('.').next());
    let parts = parts.filter(|part| seen.insert(*part));
    parts.map(String::from).collect()
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
            strategy: self.strategy,
        }
    }

    /// The paths of all parameters of `model`, as [`Job::freeze`] names them. `model` builds its
    /// network for that, and no parameters, on `device`: an autodiff device whose float type is
    /// that of fp32.
    pub fn parameter_paths(&self, model: &impl Model, device: &Device) -> Vec<String> {
        let plain = Self {
            precision: Precision::Fp32,
            freeze: Vec::new(),
            lora: None,
            strategy: Strategy::Single,
            ..self.clone()
        };
        let mut seen = PublishedTensors::default();
        let Ok(()) = model.train(&plain, device, 0, &mut seen);
        seen.tensors.into_iter().map(|tensor| tensor.path).collect()
    }

    /// Checks that each path in [`Job::freeze`] leads to a parameter; `paths` are those of all
    /// parameters of the model called `model`.
    ///
    /// # Errors
    ///
    /// [`Error::NoParameter`] about the first path that leads to none.
    pub fn check_frozen(&self, model: &str, paths: &[String]) -> Result<(), Error> {
        let is_known = |prefix: &&String| paths.iter().any(|path| is_below(path, prefix));
        match self.freeze.iter().find(|prefix| !is_known(prefix)) {
            None => Ok(()),
            Some(prefix) => Err(Error::NoParameter {
                path: prefix.clone(),
                model: model.into(),
                parts: first_parts(paths),
            }),
        }
    }

    /// Checks that the loop can train two networks, each with its own optimizer.
    ///
    /// # Errors
    ///
    /// [`Error::TwoNetworks`] if it cannot.
    pub(crate) fn trains_two_networks(&self) -> Result<(), Error> {
        match self.strategy {
            Strategy::Single | Strategy::Learner => Ok(()),
            Strategy::Ddp(_) => Err(Error::TwoNetworks),
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
    /// If the model has no image size: a mistake in the model, not in a request.
    pub fn image(&self) -> [usize; 2] {
        self.input.image.expect("the model has an image size")
    }

    /// Tokens in a sequence. Panics as [`Job::image`] does.
    pub fn seq(&self) -> usize {
        self.input.seq.expect("the model has a sequence length")
    }

    /// Tokens in a source sequence. Panics as [`Job::image`] does.
    pub fn src_seq(&self) -> usize {
        self.input.src_seq.expect("the model has a source length")
    }

    /// Classes of the output. Panics as [`Job::image`] does.
    pub fn classes(&self) -> usize {
        self.input.classes.expect("the model has classes")
    }

    /// Words in the vocabulary. Panics as [`Job::image`] does.
    pub fn vocab(&self) -> usize {
        self.input.vocab.expect("the model has a vocabulary")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    /// The parts of ResNet have the names of torchvision's.
    #[test]
    fn a_frozen_path_that_leads_to_no_parameter_is_refused() {
        let device = test_support::flex().autodiff();
        let checked = |name: &str, path: &str| {
            let variant = crate::find(name).unwrap();
            let request = Request {
                freeze: vec![path.into()],
                ..Request::default()
            };
            let job = request.resolve(&variant).unwrap();
            job.check_frozen(name, &job.parameter_paths(&variant, &device))
        };
        let parts = |name, path| match checked(name, path) {
            Err(Error::NoParameter { parts, .. }) => parts,
            other => panic!("{path} of {name}: {other:?}"),
        };
        for path in ["layer4", "layer4.2.conv1.weight", "fc", ""] {
            assert_eq!(checked("resnet-50", path), Ok(()), "{path}");
        }
        let resnet = ["conv1", "bn1", "layer1", "layer2", "layer3", "layer4", "fc"];
        for path in ["layr1", "layer", "layer4.3", "layer[1"] {
            assert_eq!(parts("resnet-50", path), resnet);
        }
        assert_eq!(checked("dcgan", "generator.convs"), Ok(()));
        assert_eq!(parts("dcgan", "convs"), ["generator", "discriminator"]);
    }

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
}
