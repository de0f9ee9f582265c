//! ResNet for ImageNet and CIFAR-10. See `variants` for paper, reference and differences.

use burn::module::Module;
use burn::nn::conv::Conv2d;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, Relu};
use burn::tensor::{Device, Tensor, s};

use super::Network;
use crate::blocks::{conv, dilated, max_pool};
use crate::classify::classify;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant};

/// The configuration of a [`ResNet`].
#[derive(Clone, Debug)]
pub(crate) struct ResNetConfig {
    /// Residual blocks of each stage; CIFAR networks have three stages.
    pub blocks: Vec<usize>,
    /// Channels of the stem.
    pub width: usize,
    /// Channels of the output of each stage. By default the first stage has as many as the stem inside
    /// its blocks, and each further stage twice as many.
    pub channels: Option<Vec<usize>>,
    /// Whether a block is a bottleneck: 1x1, 3x3 and 1x1 convolutions, the last of which has four
    /// times as many channels.
    pub bottleneck: bool,
    /// Whether stem and shortcuts are those for ImageNet, and not those for CIFAR.
    pub imagenet: bool,
    /// For each stage, whether it dilates its filters instead of halving the resolution
    /// (torchvision's `replace_stride_with_dilation`).
    pub dilated: [bool; 4],
    /// Classes of the output; `None` if the network has no output layer.
    pub classes: Option<usize>,
}

impl ResNetConfig {
    /// The published network called `name`.
    pub fn published(name: &str, classes: Option<usize>) -> Self {
        let (blocks, bottleneck) = match name {
            "resnet-18" => (vec![2, 2, 2, 2], false),
            "resnet-34" => (vec![3, 4, 6, 3], false),
            "resnet-50" => (vec![3, 4, 6, 3], true),
            "resnet-101" => (vec![3, 4, 23, 3], true),
            "resnet-152" => (vec![3, 8, 36, 3], true),
            "resnet-20" => (vec![3; 3], false),
            "resnet-56" => (vec![9; 3], false),
            "resnet-110" => (vec![18; 3], false),
            other => unreachable!("{other} is not a variant of this file"),
        };
        let imagenet = blocks.len() == 4;
        Self {
            blocks,
            width: if imagenet { 64 } else { 16 },
            channels: None,
            bottleneck,
            imagenet,
            dilated: [false; 4],
            classes,
        }
    }

    /// Channels of the output of stage `stage`.
    pub fn channels(&self, stage: usize) -> usize {
        match &self.channels {
            Some(channels) => channels[stage],
            None => (self.width << stage) * self.expansion(),
        }
    }

    /// Channels of a block's output for each that it has inside.
    fn expansion(&self) -> usize {
        if self.bottleneck { 4 } else { 1 }
    }

    fn stage(&self, stage: usize, device: &Device) -> Vec<Block> {
        let Some(&blocks) = self.blocks.get(stage) else {
            return Vec::new();
        };
        let entering = match stage {
            0 => self.width,
            _ => self.channels(stage - 1),
        };
        let stride = if stage == 0 { 1 } else { 2 };
        // A stage that does not halve the resolution doubles the dilation; its first block still
        // has the dilation of the stage before.
        let dilation = |stages: &[bool]| 1 << stages.iter().filter(|&&dilated| dilated).count();
        let first = BlockConfig {
            entering,
            width: self.channels(stage) / self.expansion(),
            leaving: self.channels(stage),
            stride: if self.dilated[stage] { 1 } else { stride },
            dilation: dilation(&self.dilated[..stage]),
            bottleneck: self.bottleneck,
            projection: self.imagenet,
        };
        let further = BlockConfig {
            entering: first.leaving,
            stride: 1,
            dilation: dilation(&self.dilated[..=stage]),
            ..first
        };
        (0..blocks)
            .map(|block| if block == 0 { first } else { further })
            .map(|block| block.init(device))
            .collect()
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> ResNet {
        let (stem, pool) = match self.imagenet {
            true => (conv([3, self.width], 7, 2), Some(max_pool(3, 2, 1))),
            false => (conv([3, self.width], 3, 1), None),
        };
        ResNet {
            conv1: stem.init(device),
            bn1: BatchNormConfig::new(self.width).init(device),
            relu: Relu::new(),
            maxpool: pool,
            layer1: self.stage(0, device),
            layer2: self.stage(1, device),
            layer3: self.stage(2, device),
            layer4: self.stage(3, device),
            avgpool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            fc: self.classes.map(|classes| {
                LinearConfig::new(self.channels(self.blocks.len() - 1), classes).init(device)
            }),
        }
    }
}

/// A residual network; the fields have torchvision's names.
#[derive(Module, Debug)]
pub(crate) struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm,
    relu: Relu,
    maxpool: Option<MaxPool2d>,
    layer1: Vec<Block>,
    layer2: Vec<Block>,
    layer3: Vec<Block>,
    layer4: Vec<Block>,
    avgpool: AdaptiveAvgPool2d,
    fc: Option<Linear>,
}

impl ResNet {
    /// Class scores `[batch, classes]` of `images: [batch, 3, height, width]`; without an output
    /// layer the means over the maps of the last stage, `[batch, channels]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let [.., x] = self.stages(images);
        let x = self.avgpool.forward(x).flatten(1, 3);
        match &self.fc {
            Some(fc) => fc.forward(x),
            None => x,
        }
    }

    /// The outputs `[batch, channels, height', width']` of the four stages for `images: [batch, 3,
    /// height, width]`. A CIFAR network has no fourth stage: its output is that of the third.
    pub fn stages(&self, images: Tensor<4>) -> [Tensor<4>; 4] {
        let x = self.conv1.forward(images);
        let x = self.relu.forward(self.bn1.forward(x));
        let x = match &self.maxpool {
            Some(pool) => pool.forward(x),
            None => x,
        };
        let through = |stage: &[Block], x| stage.iter().fold(x, |x, block| block.forward(x));
        let first = through(&self.layer1, x);
        let second = through(&self.layer2, first.clone());
        let third = through(&self.layer3, second.clone());
        let fourth = through(&self.layer4, third.clone());
        [first, second, third, fourth]
    }
}

#[derive(Clone, Copy, Debug)]
struct BlockConfig {
    entering: usize,
    width: usize,
    leaving: usize,
    stride: usize,
    /// Dilation of the 3x3 convolution of a bottleneck.
    dilation: usize,
    bottleneck: bool,
    projection: bool,
}

impl BlockConfig {
    fn init(&self, device: &Device) -> Block {
        let norm = |channels| BatchNormConfig::new(channels).init(device);
        let reshapes = self.stride != 1 || self.entering != self.leaving;
        let shortcut = match (reshapes, self.projection) {
            (false, _) => Shortcut::Identity(Relu::new()),
            (true, true) => Shortcut::Projection(Projection {
                conv: conv([self.entering, self.leaving], 1, self.stride).init(device),
                bn: norm(self.leaving),
            }),
            (true, false) => Shortcut::Subsample(Subsample {
                stride: self.stride,
                channels: self.leaving,
            }),
        };
        let (first, second, third) = match self.bottleneck {
            true => (
                conv([self.entering, self.width], 1, 1),
                dilated(
                    conv([self.width, self.width], 3, self.stride),
                    self.dilation,
                ),
                Some(conv([self.width, self.leaving], 1, 1)),
            ),
            false => (
                conv([self.entering, self.width], 3, self.stride),
                conv([self.width, self.leaving], 3, 1),
                None,
            ),
        };
        Block {
            conv1: first.init(device),
            bn1: norm(self.width),
            conv2: second.init(device),
            bn2: norm(self.width),
            bn3: third.is_some().then(|| norm(self.leaving)),
            conv3: third.map(|third| third.init(device)),
            downsample: shortcut,
            relu: Relu::new(),
        }
    }
}

/// A basic block or a bottleneck.
#[derive(Module, Debug)]
struct Block {
    conv1: Conv2d,
    bn1: BatchNorm,
    conv2: Conv2d,
    bn2: BatchNorm,
    conv3: Option<Conv2d>,
    bn3: Option<BatchNorm>,
    downsample: Shortcut,
    relu: Relu,
}

impl Block {
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let x = self.bn1.forward(self.conv1.forward(input.clone()));
        let x = self.bn2.forward(self.conv2.forward(self.relu.forward(x)));
        let x = match (&self.conv3, &self.bn3) {
            (Some(conv3), Some(bn3)) => bn3.forward(conv3.forward(self.relu.forward(x))),
            _ => x,
        };
        self.relu.forward(x + self.downsample.forward(input))
    }
}

/// The shortcut around a block, whose output the block adds to its own.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)]
enum Shortcut {
    /// The input.
    Identity(Relu),
    /// A 1x1 convolution of the input (option B of the paper).
    Projection(Projection),
    /// Every other pixel of the input, with zeros in the new channels (option A).
    Subsample(Subsample),
}

impl Shortcut {
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Identity(_) => input,
            Self::Projection(projection) => projection.bn.forward(projection.conv.forward(input)),
            Self::Subsample(subsample) => subsample.forward(input),
        }
    }
}

#[derive(Module, Debug)]
struct Projection {
    conv: Conv2d,
    bn: BatchNorm,
}

#[derive(Module, Debug)]
struct Subsample {
    stride: usize,
    channels: usize,
}

impl Subsample {
    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let step = self.stride as isize;
        let x = input.slice(s![.., .., ..;step, ..;step]);
        let [batch, channels, height, width] = x.dims();
        let zeros = Tensor::zeros(
            [batch, self.channels - channels, height, width],
            &x.device(),
        );
        Tensor::cat(vec![x, zeros], 1)
    }
}

impl Network for ResNet {
    const OUTPUT_LAYERS: &'static [&'static str] = &["fc"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let imagenet = |name, trainable, tensors, buffers| Variant {
            name,
            family: "ResNet",
            file,
            paper: "He, Zhang, Ren, Sun 2015, Deep Residual Learning for Image Recognition, arXiv 1512.03385",
            reference: "pytorch/vision torchvision/models/resnet.py (v1.5: the stride of a bottleneck is on its 3x3 convolution)",
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
            batch: 32,
            optimizer: OptimizerKind::Momentum,
            recipe: "ImageNet, 224x224 crops, 32 images a card (256 on 8), cross-entropy, SGD with momentum 0.9, weight decay 1e-4",
            differences: &[
                "weight decay is left out: it needs no memory that outlives an operation",
            ],
        };
        let cifar = |name, trainable, tensors, buffers| Variant {
            input: Input {
                image: Some([32, 32]),
                classes: Some(10),
                ..Input::default()
            },
            batch: 128,
            recipe: "CIFAR-10, 32x32, batch 128, cross-entropy, SGD with momentum 0.9, weight decay 1e-4",
            reference: "section 4.2 of the paper, shortcuts of option A",
            ..imagenet(name, trainable, tensors, buffers)
        };
        vec![
            imagenet("resnet-18", 11_689_512, 62, 9_600),
            imagenet("resnet-34", 21_797_672, 110, 17_024),
            imagenet("resnet-50", 25_557_032, 161, 53_120),
            imagenet("resnet-101", 44_549_160, 314, 105_344),
            imagenet("resnet-152", 60_192_808, 467, 151_424),
            cifar("resnet-20", 269_722, 59, 1_376),
            cifar("resnet-56", 853_018, 167, 4_064),
            cifar("resnet-110", 1_727_962, 329, 8_096),
        ]
    }

    fn check(_variant: &Variant, _job: &Job) -> Result<(), Error> {
        // All convolutions are padded by half their kernel, so one pixel is enough.
        Ok(())
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let network = ResNetConfig::published(variant.name, Some(job.classes())).init(device);
        classify(network, job, device, steps, observer, ResNet::forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    #[test]
    fn scores_have_a_row_for_each_image() {
        let device = test_support::flex();
        let network = ResNetConfig::published("resnet-20", Some(10)).init(&device);
        let scores = network.forward(Tensor::zeros([2, 3, 32, 32], &device));
        assert_eq!(scores.dims(), [2, 10]);
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(4),
            optimizer: Some(OptimizerKind::Adam),
            input: Input {
                image: Some([16, 16]),
                ..Input::default()
            },
            ..Request::default()
        };
        test_support::trains("resnet-20", &request);
        test_support::trains("resnet-18", &request);
    }
}
