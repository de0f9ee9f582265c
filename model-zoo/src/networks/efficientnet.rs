//! EfficientNet-B0, a network of inverted residuals with squeeze and excitation. See `variants` for
//! paper, reference and differences.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::activation::{sigmoid, silu};
use burn::tensor::{Device, Tensor};

use super::Network;
use crate::blocks::{ConvNorm, conv, drop_path};
use crate::classify::classify;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant};

/// Table 1 of the paper: expansion, kernel, stride of the first block, channels, blocks.
const STAGES: [(usize, usize, usize, usize, usize); 7] = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
];
const STEM: usize = 32;
const LAST: usize = 1280;
/// Channels of a block's input for each channel of its squeeze layer.
const SQUEEZE: usize = 4;
/// Probability with which a sample skips the last block; it rises linearly from 0 at the first.
const DROP_PATH: f64 = 0.2;

/// The configuration of an [`EfficientNet`].
#[derive(Clone, Debug)]
pub(crate) struct EfficientNetConfig {
    /// Classes of the output.
    pub classes: usize,
}

impl EfficientNetConfig {
    /// The network on `device`.
    pub fn init(&self, device: &Device) -> EfficientNet {
        let total: usize = STAGES.iter().map(|stage| stage.4).sum();
        let mut entering = STEM;
        let mut blocks = Vec::new();
        for (expansion, kernel, first_stride, channels, repetitions) in STAGES {
            for repetition in 0..repetitions {
                let config = BlockConfig {
                    channels: [entering, channels],
                    expansion,
                    kernel,
                    stride: if repetition == 0 { first_stride } else { 1 },
                    keep: 1.0 - DROP_PATH * blocks.len() as f64 / total as f64,
                };
                blocks.push(config.init(device));
                entering = channels;
            }
        }
        EfficientNet {
            stem: ConvNorm::new(conv([3, STEM], 3, 2), device),
            blocks,
            last: ConvNorm::new(conv([entering, LAST], 1, 1), device),
            avgpool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            dropout: DropoutConfig::new(0.2).init(),
            classifier: LinearConfig::new(LAST, self.classes).init(device),
        }
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct EfficientNet {
    stem: ConvNorm,
    blocks: Vec<Block>,
    last: ConvNorm,
    avgpool: AdaptiveAvgPool2d,
    dropout: Dropout,
    classifier: Linear,
}

impl EfficientNet {
    /// Class scores `[batch, classes]` of `images: [batch, 3, height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut x = silu(self.stem.forward(images));
        for block in &self.blocks {
            x = block.forward(x);
        }
        let x = silu(self.last.forward(x));
        let x = self.avgpool.forward(x).flatten(1, 3);
        self.classifier.forward(self.dropout.forward(x))
    }
}

#[derive(Clone, Copy, Debug)]
struct BlockConfig {
    channels: [usize; 2],
    expansion: usize,
    kernel: usize,
    stride: usize,
    keep: f64,
}

impl BlockConfig {
    fn init(&self, device: &Device) -> Block {
        let [entering, leaving] = self.channels;
        let wide = entering * self.expansion;
        let depthwise = conv([wide, wide], self.kernel, self.stride).with_groups(wide);
        let expands = self.expansion != 1;
        Block {
            expand: expands.then(|| ConvNorm::new(conv([entering, wide], 1, 1), device)),
            depthwise: ConvNorm::new(depthwise, device),
            excite: SqueezeExcite::new(wide, (entering / SQUEEZE).max(1), device),
            project: ConvNorm::new(conv([wide, leaving], 1, 1), device),
            residual: self.stride == 1 && entering == leaving,
            keep: self.keep,
        }
    }
}

/// An inverted residual with squeeze and excitation (MBConv).
#[derive(Module, Debug)]
struct Block {
    expand: Option<ConvNorm>,
    depthwise: ConvNorm,
    excite: SqueezeExcite,
    project: ConvNorm,
    residual: bool,
    keep: f64,
}

impl Block {
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let x = match &self.expand {
            Some(expand) => silu(expand.forward(input.clone())),
            None => input.clone(),
        };
        let x = silu(self.depthwise.forward(x));
        let x = self.project.forward(self.excite.forward(x));
        if self.residual {
            input + drop_path(x, self.keep)
        } else {
            x
        }
    }
}

/// Multiplies each channel by a weight that is computed from the means of all channels.
#[derive(Module, Debug)]
struct SqueezeExcite {
    avgpool: AdaptiveAvgPool2d,
    fc1: Conv2d,
    fc2: Conv2d,
}

impl SqueezeExcite {
    fn new(channels: usize, squeezed: usize, device: &Device) -> Self {
        Self {
            avgpool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            fc1: Conv2dConfig::new([channels, squeezed], [1, 1]).init(device),
            fc2: Conv2dConfig::new([squeezed, channels], [1, 1]).init(device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let weights = silu(self.fc1.forward(self.avgpool.forward(x.clone())));
        x * sigmoid(self.fc2.forward(weights))
    }
}

impl Network for EfficientNet {
    const OUTPUT_LAYERS: &'static [&'static str] = &["classifier"];

    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "efficientnet-b0",
            family: "EfficientNet",
            file,
            paper: "Tan, Le 2019, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, arXiv 1905.11946",
            reference: "pytorch/vision torchvision/models/efficientnet.py; the recipe is that of tensorflow/tpu models/official/efficientnet",
            counts: Counts {
                trainable: 5_288_548,
                tensors: 213,
                buffers: 42_016,
            },
            input: Input {
                image: Some([224, 224]),
                classes: Some(1000),
                ..Input::default()
            },
            batch: 64,
            optimizer: OptimizerKind::RmsProp,
            recipe: "ImageNet, 224x224, 64 images a replica (2048 on 32), cross-entropy with label smoothing 0.1, RMSProp with decay and momentum 0.9, weight decay 1e-5, stochastic depth 0.2, dropout 0.2",
            differences: &[
                "the moving average of the weights is left out: 20 MiB",
                "label smoothing and weight decay are left out: they need no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, _job: &Job) -> Result<(), Error> {
        // All convolutions are padded by half their kernel, so one pixel is enough.
        Ok(())
    }

    fn train<O: Observer>(
        _variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let classes = job.classes();
        let network = EfficientNetConfig { classes }.init(device);
        classify(network, job, device, steps, observer, EfficientNet::forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    #[test]
    fn scores_have_a_row_for_each_image() {
        let device = test_support::flex();
        let network = EfficientNetConfig { classes: 10 }.init(&device);
        let scores = network.forward(Tensor::zeros([2, 3, 32, 32], &device));
        assert_eq!(scores.dims(), [2, 10]);
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(4),
            optimizer: Some(OptimizerKind::Adam),
            input: Input {
                image: Some([32, 32]),
                classes: Some(10),
                ..Input::default()
            },
            ..Request::default()
        };
        test_support::trains("efficientnet-b0", &request);
    }
}
