//! VGG-16 and VGG-19, with and without batch normalisation. See `variants` for paper, reference and
//! differences.

use burn::module::Module;
use burn::nn::conv::Conv2d;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use burn::tensor::{Device, Tensor};

use super::Network;
use crate::blocks::{conv, max_pool};
use crate::classify::classify;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant};

/// The configuration of a [`Vgg`].
#[derive(Clone, Debug)]
pub(crate) struct VggConfig {
    /// Convolutions of each stage, and their channels.
    pub stages: Vec<(usize, usize)>,
    /// Whether a batch normalisation follows each convolution.
    pub batch_norm: bool,
    /// Width of the two hidden layers of the classifier.
    pub hidden: usize,
    /// Classes of the output.
    pub classes: usize,
}

/// Configuration E of table 1 of the paper.
pub(crate) const VGG_19: [(usize, usize); 5] = [(2, 64), (2, 128), (4, 256), (4, 512), (4, 512)];

/// Configuration D of table 1 of the paper.
const VGG_16: [(usize, usize); 5] = [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)];

/// Height and width of the map that the classifier reads.
const POOLED: usize = 7;

impl VggConfig {
    /// The published network called `name`.
    fn published(name: &str, classes: usize) -> Self {
        let stages = match name {
            "vgg-16" | "vgg-16-bn" => VGG_16,
            "vgg-19" | "vgg-19-bn" => VGG_19,
            other => unreachable!("{other} is not a variant of this file"),
        };
        Self {
            stages: stages.to_vec(),
            batch_norm: name.ends_with("-bn"),
            hidden: 4096,
            classes,
        }
    }

    /// A network for images of 32 x 32 and more.
    fn tiny(batch_norm: bool, classes: usize) -> Self {
        Self {
            stages: vec![(1, 16), (1, 16), (1, 16), (1, 16), (2, 16)],
            batch_norm,
            hidden: 256,
            classes,
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Vgg {
        let channels = self.stages.last().map_or(3, |&(_, channels)| channels);
        Vgg {
            features: Features::new(&self.stages, self.batch_norm, device),
            pool: max_pool(2, 2, 0),
            avgpool: AdaptiveAvgPool2dConfig::new([POOLED, POOLED]).init(),
            fc1: LinearConfig::new(channels * POOLED * POOLED, self.hidden).init(device),
            fc2: LinearConfig::new(self.hidden, self.hidden).init(device),
            fc3: LinearConfig::new(self.hidden, self.classes).init(device),
            relu: Relu::new(),
            dropout: DropoutConfig::new(0.5).init(),
        }
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct Vgg {
    features: Features,
    pool: MaxPool2d,
    avgpool: AdaptiveAvgPool2d,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
    relu: Relu,
    dropout: Dropout,
}

impl Vgg {
    /// Class scores `[batch, classes]` of `images: [batch, 3, height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.pool.forward(self.features.forward(images));
        let x = self.avgpool.forward(x).flatten(1, 3);
        let x = self.dropout.forward(self.relu.forward(self.fc1.forward(x)));
        let x = self.dropout.forward(self.relu.forward(self.fc2.forward(x)));
        self.fc3.forward(x)
    }
}

/// The convolutions, in stages with a max-pooling between each and the next.
#[derive(Module, Debug)]
pub(crate) struct Features {
    stages: Vec<Stage>,
    pool: MaxPool2d,
}

impl Features {
    /// The layers on `device`. Each stage is its number of convolutions and their channels.
    pub fn new(stages: &[(usize, usize)], batch_norm: bool, device: &Device) -> Self {
        let mut entering = 3;
        let stages = stages
            .iter()
            .map(|&(convs, channels)| Stage {
                convs: (0..convs)
                    .map(|_| Layer::new(&mut entering, channels, batch_norm, device))
                    .collect(),
            })
            .collect();
        Self {
            stages,
            pool: max_pool(2, 2, 0),
        }
    }

    /// The output `[batch, channels, height / 16, width / 16]` of the last convolution for
    /// `images: [batch, 3, height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        self.walk(images, |_| ())
    }

    /// The output `[batch, channels, height', width']` of the first convolution of each stage for
    /// `images: [batch, 3, height, width]`.
    pub fn first_of_each_stage(&self, images: Tensor<4>) -> Vec<Tensor<4>> {
        let mut firsts = Vec::new();
        self.walk(images, |first| firsts.push(first.clone()));
        firsts
    }

    fn walk(&self, images: Tensor<4>, mut after_first: impl FnMut(&Tensor<4>)) -> Tensor<4> {
        let mut x = images;
        for (index, stage) in self.stages.iter().enumerate() {
            if index > 0 {
                x = self.pool.forward(x);
            }
            for (index, layer) in stage.convs.iter().enumerate() {
                x = layer.forward(x);
                if index == 0 {
                    after_first(&x);
                }
            }
        }
        x
    }
}

#[derive(Module, Debug)]
struct Stage {
    convs: Vec<Layer>,
}

#[derive(Module, Debug)]
struct Layer {
    conv: Conv2d,
    norm: Option<BatchNorm>,
    relu: Relu,
}

impl Layer {
    fn new(entering: &mut usize, channels: usize, batch_norm: bool, device: &Device) -> Self {
        let entering = std::mem::replace(entering, channels);
        Self {
            conv: conv([entering, channels], 3, 1)
                .with_bias(true)
                .init(device),
            norm: batch_norm.then(|| BatchNormConfig::new(channels).init(device)),
            relu: Relu::new(),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.conv.forward(x);
        let x = match &self.norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        self.relu.forward(x)
    }
}

impl Network for Vgg {
    const OUTPUT_LAYERS: &'static [&'static str] = &["fc3"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let variant = |name, trainable, tensors, buffers| Variant {
            name,
            family: "VGG",
            file,
            paper: "Simonyan, Zisserman 2014, Very Deep Convolutional Networks for Large-Scale Image Recognition, arXiv 1409.1556",
            reference: "pytorch/vision torchvision/models/vgg.py",
            counts: Counts {
                trainable,
                tensors,
                buffers,
            },
            input: Input {
                image: Some([224, 224]),
                classes: Some(1000),
                ..Input::default()
            },
            batch: 64,
            optimizer: OptimizerKind::Momentum,
            recipe: "ImageNet, 224x224 crops, 64 images a card (256 on 4), cross-entropy, SGD with momentum 0.9, weight decay 5e-4, dropout 0.5",
            differences: &[
                "weight decay is left out: it needs no memory that outlives an operation",
            ],
        };
        vec![
            variant("vgg-16", 138_357_544, 32, 0),
            variant("vgg-16-bn", 138_365_992, 58, 8_448),
            variant("vgg-19", 143_667_240, 38, 0),
            variant("vgg-19-bn", 143_678_248, 70, 11_008),
        ]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        // Five max-poolings halve the image.
        job.image_at_least(32)
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "vgg-mini" => VggConfig::tiny(false, job.classes()),
            name => VggConfig::published(name, job.classes()),
        };
        let network = config.init(device);
        classify(network, job, device, steps, observer, Vgg::forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    #[test]
    fn scores_have_a_row_for_each_image() {
        let device = test_support::flex();
        let network = VggConfig::tiny(false, 10).init(&device);
        let scores = network.forward(Tensor::zeros([2, 3, 32, 40], &device));
        assert_eq!(scores.dims(), [2, 10]);
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(4),
            optimizer: Some(OptimizerKind::Adam),
            input: Input {
                image: Some([32, 32]),
                ..Input::default()
            },
            ..Request::default()
        };
        for (name, batch_norm) in [("vgg-16", false), ("vgg-16-bn", true)] {
            test_support::assert_loss_decreases(name, &request, |job, device, steps, losses| {
                let network = VggConfig::tiny(batch_norm, 10).init(device);
                classify(network, job, device, steps, losses, Vgg::forward)
            });
        }
    }

    #[test]
    fn an_image_too_small_to_halve_five_times_is_refused() {
        let error = test_support::refusal("vgg-16", [224, 31]);
        assert_eq!(
            error.to_string(),
            "image size must be at least 32x32, not 224x31"
        );
    }
}
