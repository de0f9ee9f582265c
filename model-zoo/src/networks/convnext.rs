//! ConvNeXt. See `variants` for paper, reference and differences.

use burn::module::{Module, Param};
use burn::nn::activation::{Activation, ActivationConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

use super::Network;
use crate::blocks::{around, drop_path};
use crate::classify::classify;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant};

/// Epsilon of the normalisations before the last.
const EPSILON: f64 = 1e-6;

/// The configuration of a [`ConvNext`]; the fields are those of a `config.json`.
#[derive(Clone, Debug)]
pub(crate) struct ConvNextConfig {
    /// Height and width of a patch: 4 x 4.
    pub patch: [usize; 2],
    /// Channels of each stage, and its layers.
    pub stages: Vec<[usize; 2]>,
    /// The share of samples that the last layer leaves out; that of the others grows evenly from 0.
    pub drop_path: f64,
    /// The scale with which each layer begins; none if a layer has no scale: 1e-6.
    pub scale: Option<f64>,
    /// Epsilon of the last normalisation: 1e-6.
    pub epsilon: f64,
    /// Activation: exact GELU.
    pub activation: ActivationConfig,
    /// Classes of the output.
    pub classes: usize,
}

impl ConvNextConfig {
    /// ConvNeXt-T.
    pub fn tiny(classes: usize) -> Self {
        Self {
            patch: [4; 2],
            stages: vec![[96, 3], [192, 3], [384, 9], [768, 3]],
            drop_path: 0.1,
            scale: Some(1e-6),
            epsilon: EPSILON,
            activation: ActivationConfig::Gelu,
            classes,
        }
    }

    /// ConvNeXt-B.
    pub fn base(classes: usize) -> Self {
        Self {
            stages: vec![[128, 3], [256, 3], [512, 27], [1024, 3]],
            drop_path: 0.5,
            ..Self::tiny(classes)
        }
    }

    /// The same network with small numbers, of which any device trains a step within seconds.
    fn mini(self) -> Self {
        Self {
            stages: vec![[8, 1], [16, 1]],
            ..self
        }
    }

    /// Checks that the images of `job` have a pixel in the last stage.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if they have not.
    pub fn check(&self, job: &Job) -> Result<(), Error> {
        let halvings = 1 << (self.stages.len() - 1);
        let [height, width] = self.patch.map(|side| side * halvings);
        job.check_image(format!("at least {height}x{width}"), |[high, wide]| {
            high >= height && wide >= width
        })
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> ConvNext {
        let [first, _] = self.stages[0];
        let layers: usize = self.stages.iter().map(|[_, layers]| layers).sum();
        let mut before = first;
        let mut number = 0;
        let mut stages = Vec::new();
        for &[width, depth] in &self.stages {
            let is_first = stages.is_empty();
            let downsample = (!is_first).then(|| Downsample {
                norm: norm(before, EPSILON, device),
                conv: Conv2dConfig::new([before, width], [2, 2])
                    .with_stride([2, 2])
                    .init(device),
            });
            let numbers = number..number + depth;
            number += depth;
            before = width;
            stages.push(Stage {
                downsample,
                layers: numbers
                    .map(|layer| {
                        let share = layer as f64 / (layers - 1).max(1) as f64;
                        self.layer(width, self.drop_path * share, device)
                    })
                    .collect(),
            });
        }
        ConvNext {
            patches: Conv2dConfig::new([3, first], self.patch)
                .with_stride(self.patch)
                .init(device),
            patch_norm: norm(first, EPSILON, device),
            stages,
            norm: norm(before, self.epsilon, device),
            head: LinearConfig::new(before, self.classes).init(device),
        }
    }

    fn layer(&self, width: usize, drop_path: f64, device: &Device) -> Layer {
        Layer {
            depthwise: Conv2dConfig::new([width, width], [7, 7])
                .with_padding(around(3))
                .with_groups(width)
                .init(device),
            norm: norm(width, EPSILON, device),
            wide: LinearConfig::new(width, 4 * width).init(device),
            activation: self.activation.init(device),
            narrow: LinearConfig::new(4 * width, width).init(device),
            scale: self
                .scale
                .map(|value| Initializer::Constant { value }.init([width], device)),
            keep: 1.0 - drop_path,
        }
    }
}

fn norm(width: usize, epsilon: f64, device: &Device) -> LayerNorm {
    LayerNormConfig::new(width)
        .with_epsilon(epsilon)
        .init(device)
}

/// `x: [batch, channels, height, width]` as `[batch, height, width, channels]`.
fn channels_last(x: Tensor<4>) -> Tensor<4> {
    x.permute([0, 2, 3, 1])
}

/// `x: [batch, height, width, channels]` as `[batch, channels, height, width]`.
fn channels_first(x: Tensor<4>) -> Tensor<4> {
    x.permute([0, 3, 1, 2])
}

/// A convolutional network of layers as a transformer has them.
#[derive(Module, Debug)]
pub(crate) struct ConvNext {
    patches: Conv2d,
    patch_norm: LayerNorm,
    stages: Vec<Stage>,
    norm: LayerNorm,
    head: Linear,
}

impl ConvNext {
    /// Class scores `[batch, classes]` of `images: [batch, 3, height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = channels_last(self.patches.forward(images));
        let mut x = channels_first(self.patch_norm.forward(x));
        for stage in &self.stages {
            x = stage.forward(x);
        }
        let pooled: Tensor<2> = x.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2);
        self.head.forward(self.norm.forward(pooled))
    }
}

/// Layers at one resolution, after a step down to it.
#[derive(Module, Debug)]
struct Stage {
    downsample: Option<Downsample>,
    layers: Vec<Layer>,
}

impl Stage {
    /// From `[batch, in, height, width]` to `[batch, out, height', width']`.
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let mut x = match &self.downsample {
            Some(downsample) => downsample.forward(x),
            None => x,
        };
        for layer in &self.layers {
            x = layer.forward(x);
        }
        x
    }
}

/// Half the resolution, by a convolution of 2 x 2 after a normalisation.
#[derive(Module, Debug)]
struct Downsample {
    norm: LayerNorm,
    conv: Conv2d,
}

impl Downsample {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = channels_first(self.norm.forward(channels_last(x)));
        self.conv.forward(x)
    }
}

/// A depthwise convolution, and a feed-forward block on each pixel.
#[derive(Module, Debug)]
struct Layer {
    depthwise: Conv2d,
    norm: LayerNorm,
    wide: Linear,
    activation: Activation,
    narrow: Linear,
    scale: Option<Param<Tensor<1>>>,
    keep: f64,
}

impl Layer {
    /// `[batch, channels, height, width]` from `x` of the same shape.
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = channels_last(self.depthwise.forward(x.clone()));
        let y = self.wide.forward(self.norm.forward(y));
        let y = self.narrow.forward(self.activation.forward(y));
        let y = match &self.scale {
            Some(scale) => y * scale.val().unsqueeze(),
            None => y,
        };
        x + drop_path(channels_first(y), self.keep)
    }
}

impl Network for ConvNext {
    const OUTPUT_LAYERS: &'static [&'static str] = &["head"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let sized = |name, trainable, tensors| Variant {
            name,
            family: "ConvNeXt",
            file,
            paper: "Liu et al. 2022, A ConvNet for the 2020s, arXiv 2201.03545",
            reference: "pytorch/vision torchvision/models/convnext.py; transformers ConvNextForImageClassification",
            counts: Counts {
                trainable,
                tensors,
                buffers: 0,
            },
            input: Input {
                image: Some([224, 224]),
                classes: Some(1000),
                ..Input::default()
            },
            batch: 128,
            optimizer: OptimizerKind::AdamW,
            recipe: "ImageNet, 224x224 crops, 128 images a card (4,096 in all), cross-entropy, AdamW, stochastic depth",
            differences: &[
                "augmentations, label smoothing, gradient clipping and weight decay are left out: they need no memory that outlives an operation",
                "the averaged copy of the weights is left out: one more value per parameter",
            ],
        };
        vec![
            sized("convnext-tiny", 28_589_128, 182),
            sized("convnext-base", 88_591_464, 344),
        ]
    }

    fn check(variant: &Variant, job: &Job) -> Result<(), Error> {
        published(variant, job).check(job)
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let network = published(variant, job).init(device);
        classify(network, job, device, steps, observer, ConvNext::forward)
    }
}

/// The published configuration of `variant`.
fn published(variant: &Variant, job: &Job) -> ConvNextConfig {
    match variant.name {
        "convnext-tiny" => ConvNextConfig::tiny(job.classes()),
        "convnext-base" => ConvNextConfig::base(job.classes()),
        "convnext-mini" => ConvNextConfig::tiny(job.classes()).mini(),
        other => unreachable!("{other} is not a variant of this file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    #[test]
    fn scores_have_a_row_for_each_image() {
        let device = test_support::flex();
        let images = || Tensor::zeros([2, 3, 36, 44], &device);
        for scale in [None, Some(1e-6)] {
            let config = ConvNextConfig {
                scale,
                ..ConvNextConfig::tiny(10).mini()
            };
            let network = config.init(&device);
            assert_eq!(network.forward(images()).dims(), [2, 10]);
        }
    }

    #[test]
    fn an_image_without_a_pixel_in_the_last_stage_is_refused() {
        let variant = crate::find("convnext-tiny").unwrap();
        let mut job = crate::Request::default().resolve(&variant).unwrap();
        job.input.image = Some([32, 32]);
        assert!(ConvNext::check(&variant, &job).is_ok());
        job.input.image = Some([32, 31]);
        assert!(ConvNext::check(&variant, &job).is_err());
    }
}
