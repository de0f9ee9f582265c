//! AlexNet, in its version with one tower. See `variants` for paper, reference and differences.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use burn::tensor::{Device, Tensor};

use super::Network;
use crate::blocks::{around, max_pool};
use crate::classify::classify;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant};

/// The configuration of an [`AlexNet`].
#[derive(Clone, Debug)]
pub(crate) struct AlexNetConfig {
    /// Channels of the five convolutions.
    pub channels: [usize; 5],
    /// Width of the two hidden layers of the classifier.
    pub hidden: usize,
    /// Classes of the output.
    pub classes: usize,
}

/// Height and width of the map that the classifier reads.
const POOLED: usize = 6;

impl AlexNetConfig {
    /// The published network.
    fn published(classes: usize) -> Self {
        Self {
            channels: [64, 192, 384, 256, 256],
            hidden: 4096,
            classes,
        }
    }

    /// A network for images of 63 x 63 and more.
    fn tiny(classes: usize) -> Self {
        Self {
            channels: [8, 16, 16, 16, 16],
            hidden: 256,
            classes,
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> AlexNet {
        let [a, b, c, d, e] = self.channels;
        let conv = |channels, kernel, stride, padding| {
            Conv2dConfig::new(channels, [kernel, kernel])
                .with_stride([stride, stride])
                .with_padding(around(padding))
                .init(device)
        };
        AlexNet {
            conv1: conv([3, a], 11, 4, 2),
            conv2: conv([a, b], 5, 1, 2),
            conv3: conv([b, c], 3, 1, 1),
            conv4: conv([c, d], 3, 1, 1),
            conv5: conv([d, e], 3, 1, 1),
            maxpool: max_pool(3, 2, 0),
            avgpool: AdaptiveAvgPool2dConfig::new([POOLED, POOLED]).init(),
            fc1: LinearConfig::new(e * POOLED * POOLED, self.hidden).init(device),
            fc2: LinearConfig::new(self.hidden, self.hidden).init(device),
            fc3: LinearConfig::new(self.hidden, self.classes).init(device),
            relu: Relu::new(),
            dropout: DropoutConfig::new(0.5).init(),
        }
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct AlexNet {
    conv1: Conv2d,
    conv2: Conv2d,
    conv3: Conv2d,
    conv4: Conv2d,
    conv5: Conv2d,
    maxpool: MaxPool2d,
    avgpool: AdaptiveAvgPool2d,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
    relu: Relu,
    dropout: Dropout,
}

impl AlexNet {
    /// Class scores `[batch, classes]` of `images: [batch, 3, height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.relu.forward(self.conv1.forward(images));
        let x = self.maxpool.forward(x);
        let x = self.relu.forward(self.conv2.forward(x));
        let x = self.maxpool.forward(x);
        let x = self.relu.forward(self.conv3.forward(x));
        let x = self.relu.forward(self.conv4.forward(x));
        let x = self.relu.forward(self.conv5.forward(x));
        let x = self.maxpool.forward(x);

        let x = self.avgpool.forward(x).flatten(1, 3);
        let x = self.fc1.forward(self.dropout.forward(x));
        let x = self.dropout.forward(self.relu.forward(x));
        let x = self.relu.forward(self.fc2.forward(x));
        self.fc3.forward(x)
    }
}

impl Network for AlexNet {
    const OUTPUT_LAYERS: &'static [&'static str] = &["fc3"];

    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "alexnet",
            family: "AlexNet",
            file,
            paper: "Krizhevsky 2014, One weird trick for parallelizing convolutional neural networks, arXiv 1404.5997",
            reference: "pytorch/vision torchvision/models/alexnet.py",
            counts: Counts {
                trainable: 61_100_840,
                tensors: 16,
                buffers: 0,
            },
            input: Input {
                image: Some([224, 224]),
                classes: Some(1000),
                ..Input::default()
            },
            batch: 128,
            optimizer: OptimizerKind::Momentum,
            recipe: "ImageNet, 224x224 crops, batch 128 on one card (table 1 of the paper), cross-entropy, SGD with momentum 0.9, weight decay 5e-4, dropout 0.5",
            differences: &[
                "weight decay is left out: it needs no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        // The first convolution leaves 15 of 63 pixels, the poolings leave 7, 3 and 1.
        job.image_at_least(63)
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "alexnet" => AlexNetConfig::published(job.classes()),
            "alexnet-mini" => AlexNetConfig::tiny(job.classes()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        let network = config.init(device);
        classify(network, job, device, steps, observer, AlexNet::forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    #[test]
    fn scores_have_a_row_for_each_image() {
        let device = test_support::flex();
        let scores = AlexNetConfig::tiny(10)
            .init(&device)
            .forward(Tensor::zeros([2, 3, 63, 70], &device));
        assert_eq!(scores.dims(), [2, 10]);
    }

    #[test]
    fn an_image_that_the_poolings_would_use_up_is_refused() {
        let error = test_support::refusal("alexnet", [62, 224]);
        assert_eq!(
            error.to_string(),
            "image size must be at least 63x63, not 62x224"
        );
    }
}
