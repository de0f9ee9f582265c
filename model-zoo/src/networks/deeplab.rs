//! DeepLabv3 on ResNet-50 and ResNet-101, with the auxiliary classifier of its training. See
//! `variants` for paper, reference and differences.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Distribution, Tensor};

use super::Network;
use super::resnet::{ResNet, ResNetConfig};
use crate::blocks::{ConvNorm, bilinear, conv, cross_entropy_per_pixel, dilated};
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Setting, Variant, supervised};

/// Dilations of the three 3x3 branches at output stride 8 (section 4.1 of the paper).
const RATES: [usize; 3] = [12, 24, 36];

/// Weight of the auxiliary classifier's loss.
const AUXILIARY_WEIGHT: f64 = 0.5;

/// The configuration of a [`DeepLab`].
#[derive(Clone, Debug)]
pub(crate) struct DeepLabConfig {
    /// The backbone.
    pub backbone: ResNetConfig,
    /// Channels of both heads.
    pub width: usize,
    /// Classes of the output.
    pub classes: usize,
}

impl DeepLabConfig {
    /// The published network called `name`.
    fn published(name: &str, classes: usize) -> Self {
        let backbone = match name {
            "deeplabv3-r50" => "resnet-50",
            "deeplabv3-r101" => "resnet-101",
            other => unreachable!("{other} is not a variant of this file"),
        };
        Self {
            backbone: Self::output_stride_8(ResNetConfig::published(backbone, None)),
            width: 256,
            classes,
        }
    }

    fn tiny(classes: usize) -> Self {
        Self {
            backbone: Self::output_stride_8(ResNetConfig {
                blocks: vec![1, 1, 1, 2],
                width: 4,
                ..ResNetConfig::published("resnet-50", None)
            }),
            width: 8,
            classes,
        }
    }

    fn output_stride_8(backbone: ResNetConfig) -> ResNetConfig {
        ResNetConfig {
            dilated: [false, false, true, true],
            ..backbone
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> DeepLab {
        DeepLab {
            backbone: self.backbone.init(device),
            aspp: Aspp::new(self.backbone.channels(3), self.width, device),
            classifier: Classifier::new(self.width, self.width, self.classes, 0.0, device),
            aux_classifier: Classifier::new(
                self.backbone.channels(2),
                self.width,
                self.classes,
                0.1,
                device,
            ),
        }
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct DeepLab {
    backbone: ResNet,
    aspp: Aspp,
    classifier: Classifier,
    aux_classifier: Classifier,
}

impl DeepLab {
    /// Class scores `[batch, classes, height, width]` of `images: [batch, 3, height, width]`, by
    /// the classifier and by the auxiliary one.
    pub fn forward(&self, images: Tensor<4>) -> [Tensor<4>; 2] {
        let [_, _, height, width] = images.dims();
        let [_, _, third, fourth] = self.backbone.stages(images);
        let scores = self.classifier.forward(self.aspp.forward(fourth));
        let scores = bilinear(scores, [height, width]);
        let auxiliary = self.aux_classifier.forward(third);
        [scores, bilinear(auxiliary, [height, width])]
    }
}

/// Atrous spatial pyramid pooling: five branches read the same map at different scales.
#[derive(Module, Debug)]
struct Aspp {
    point: ConvNorm,
    atrous: Vec<ConvNorm>,
    avgpool: AdaptiveAvgPool2d,
    image: ConvNorm,
    project: ConvNorm,
    dropout: Dropout,
}

impl Aspp {
    fn new(entering: usize, width: usize, device: &Device) -> Self {
        let point = || ConvNorm::new(conv([entering, width], 1, 1), device);
        let branches = RATES.len() + 2;
        Self {
            point: point(),
            atrous: RATES
                .map(|rate| dilated(conv([entering, width], 3, 1), rate))
                .map(|conv| ConvNorm::new(conv, device))
                .to_vec(),
            avgpool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            image: point(),
            project: ConvNorm::new(conv([branches * width, width], 1, 1), device),
            dropout: DropoutConfig::new(0.5).init(),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [_, _, height, width] = x.dims();
        let mut branches = vec![relu(self.point.forward(x.clone()))];
        for conv in &self.atrous {
            branches.push(relu(conv.forward(x.clone())));
        }
        let image = relu(self.image.forward(self.avgpool.forward(x)));
        branches.push(bilinear(image, [height, width]));
        let x = relu(self.project.forward(Tensor::cat(branches, 1)));
        self.dropout.forward(x)
    }
}

/// A 3x3 convolution, and a 1x1 convolution that computes the scores of each pixel.
#[derive(Module, Debug)]
struct Classifier {
    conv: ConvNorm,
    dropout: Dropout,
    scores: Conv2d,
}

impl Classifier {
    fn new(entering: usize, width: usize, classes: usize, dropout: f64, device: &Device) -> Self {
        Self {
            conv: ConvNorm::new(conv([entering, width], 3, 1), device),
            dropout: DropoutConfig::new(dropout).init(),
            scores: Conv2dConfig::new([width, classes], [1, 1]).init(device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.dropout.forward(relu(self.conv.forward(x)));
        self.scores.forward(x)
    }
}

fn train<O: Observer>(
    config: &DeepLabConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let ([height, width], batch) = (job.image(), job.batch);
    supervised(
        config.init(device),
        job,
        device,
        steps,
        observer,
        |device| {
            let random = Distribution::Default;
            (
                Tensor::<4>::random([batch, 3, height, width], random, device),
                Tensor::zeros([batch, 1, height, width], device),
            )
        },
        |network, (images, labels)| {
            let [scores, auxiliary] = network.forward(images);
            cross_entropy_per_pixel(scores, labels.clone())
                + cross_entropy_per_pixel(auxiliary, labels).mul_scalar(AUXILIARY_WEIGHT)
        },
    )
}

impl Network for DeepLab {
    fn variants(file: &'static str) -> Vec<Variant> {
        let variant = |name, trainable, tensors, buffers| Variant {
            name,
            family: "DeepLab",
            file,
            paper: "Chen, Papandreou, Schroff, Adam 2017, Rethinking Atrous Convolution for Semantic Image Segmentation, arXiv 1706.05587",
            reference: "pytorch/vision torchvision/models/segmentation/deeplabv3.py (output stride 8), references/segmentation",
            counts: Counts {
                trainable,
                tensors,
                buffers,
            },
            input: Input {
                image: Some([480, 480]),
                classes: Some(21),
                ..Input::default()
            },
            batch: 4,
            optimizer: OptimizerKind::Momentum,
            recipe: "480x480 crops, 4 images a card (32 on 8), per-pixel cross-entropy plus half of the auxiliary classifier's, SGD with momentum 0.9, weight decay 1e-4; everything is trained, from ImageNet weights",
            differences: &[
                "pixels without a label (255) are not masked: one byte per pixel of the batch",
                "bilinear resizing is a product with constant matrices: the same memory for the backward pass, and a partly resized map for a moment",
                "weight decay is left out: it needs no memory that outlives an operation",
            ],
        };
        vec![
            variant("deeplabv3-r50", 42_004_074, 187, 57_216),
            variant("deeplabv3-r101", 60_996_202, 340, 109_440),
        ]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        // The branch that pools the whole image has one value per image and channel. A batch of
        // one has no variance to normalise by.
        match job.batch {
            1 => Err(Error::Size {
                what: Setting::Batch,
                must: "at least 2".into(),
                got: "1".into(),
            }),
            _ => Ok(()),
        }
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "deeplabv3-mini" => DeepLabConfig::tiny(job.classes()),
            published => DeepLabConfig::published(published, job.classes()),
        };
        train(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, find, test_support};

    #[test]
    fn scores_have_the_size_of_the_image() {
        let device = test_support::flex();
        for scores in DeepLabConfig::tiny(5)
            .init(&device)
            .forward(Tensor::zeros([2, 3, 33, 40], &device))
        {
            assert_eq!(scores.dims(), [2, 5, 33, 40]);
        }
    }

    #[test]
    fn the_backbone_keeps_an_eighth_of_the_resolution() {
        let device = test_support::flex();
        let backbone = DeepLabConfig::tiny(5).backbone.init(&device);
        let sides = backbone
            .stages(Tensor::zeros([1, 3, 64, 64], &device))
            .map(|map| map.dims()[2]);
        assert_eq!(sides, [16, 8, 8, 8]);
    }

    #[test]
    fn a_batch_of_one_is_refused() {
        let variant = find("deeplabv3-r50").unwrap();
        let request = Request {
            batch: Some(1),
            ..Request::default()
        };
        let error = DeepLab::check(&variant, &request.resolve(&variant).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "batch size must be at least 2, not 1");
    }
}
