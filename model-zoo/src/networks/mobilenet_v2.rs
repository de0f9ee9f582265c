//! MobileNetV2, a network of inverted residuals. See `variants` for paper, reference and
//! differences.

use burn::module::Module;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::activation::relu6;
use burn::tensor::{Device, Tensor};

use super::Network;
use crate::blocks::{ConvNorm, conv};
use crate::classify::classify;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant};

/// Table 2 of the paper: expansion, channels, blocks, stride of the first block.
const STAGES: [(usize, usize, usize, usize); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];
const STEM: usize = 32;
const LAST: usize = 1280;

/// The configuration of a [`MobileNetV2`].
#[derive(Clone, Debug)]
pub(crate) struct MobileNetV2Config {
    /// Classes of the output.
    pub classes: usize,
}

impl MobileNetV2Config {
    /// The network on `device`.
    pub fn init(&self, device: &Device) -> MobileNetV2 {
        let mut entering = STEM;
        let mut blocks = Vec::new();
        for (expansion, channels, repetitions, first_stride) in STAGES {
            for repetition in 0..repetitions {
                let stride = if repetition == 0 { first_stride } else { 1 };
                blocks.push(InvertedResidual::new(
                    [entering, channels],
                    expansion,
                    stride,
                    device,
                ));
                entering = channels;
            }
        }
        MobileNetV2 {
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
pub(crate) struct MobileNetV2 {
    stem: ConvNorm,
    blocks: Vec<InvertedResidual>,
    last: ConvNorm,
    avgpool: AdaptiveAvgPool2d,
    dropout: Dropout,
    classifier: Linear,
}

impl MobileNetV2 {
    /// Class scores `[batch, classes]` of `images: [batch, 3, height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut x = relu6(self.stem.forward(images));
        for block in &self.blocks {
            x = block.forward(x);
        }
        let x = relu6(self.last.forward(x));
        let x = self.avgpool.forward(x).flatten(1, 3);
        self.classifier.forward(self.dropout.forward(x))
    }
}

/// A 1x1 convolution to more channels, a depthwise convolution, and a 1x1 convolution to fewer
/// channels without an activation.
#[derive(Module, Debug)]
struct InvertedResidual {
    expand: Option<ConvNorm>,
    depthwise: ConvNorm,
    project: ConvNorm,
    residual: bool,
}

impl InvertedResidual {
    fn new(
        [entering, leaving]: [usize; 2],
        expansion: usize,
        stride: usize,
        device: &Device,
    ) -> Self {
        let wide = entering * expansion;
        let depthwise = conv([wide, wide], 3, stride).with_groups(wide);
        Self {
            expand: (expansion != 1).then(|| ConvNorm::new(conv([entering, wide], 1, 1), device)),
            depthwise: ConvNorm::new(depthwise, device),
            project: ConvNorm::new(conv([wide, leaving], 1, 1), device),
            residual: stride == 1 && entering == leaving,
        }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let x = match &self.expand {
            Some(expand) => relu6(expand.forward(input.clone())),
            None => input.clone(),
        };
        let x = relu6(self.depthwise.forward(x));
        let x = self.project.forward(x);
        if self.residual { input + x } else { x }
    }
}

impl Network for MobileNetV2 {
    const OUTPUT_LAYERS: &'static [&'static str] = &["classifier"];

    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "mobilenet-v2",
            family: "MobileNet",
            file,
            paper: "Sandler, Howard, Zhu, Zhmoginov, Chen 2018, MobileNetV2: Inverted Residuals and Linear Bottlenecks, arXiv 1801.04381",
            reference: "pytorch/vision torchvision/models/mobilenetv2.py",
            counts: Counts {
                trainable: 3_504_872,
                tensors: 158,
                buffers: 34_112,
            },
            input: Input {
                image: Some([224, 224]),
                classes: Some(1000),
                ..Input::default()
            },
            batch: 96,
            optimizer: OptimizerKind::RmsProp,
            recipe: "ImageNet, 224x224, batch 96 a worker (16 asynchronous workers), cross-entropy, RMSProp with decay and momentum 0.9, weight decay 4e-5",
            differences: &[
                "weight decay is left out: it needs no memory that outlives an operation",
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
        let network = MobileNetV2Config { classes }.init(device);
        classify(network, job, device, steps, observer, MobileNetV2::forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    #[test]
    fn scores_have_a_row_for_each_image() {
        let device = test_support::flex();
        let network = MobileNetV2Config { classes: 10 }.init(&device);
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
        test_support::trains("mobilenet-v2", &request);
    }
}
