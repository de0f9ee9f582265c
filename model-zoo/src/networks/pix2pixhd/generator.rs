//! The generators: a global one, and one that enhances it at twice its resolution.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::pool::AvgPool2d;
use burn::nn::{InstanceNorm, InstanceNormConfig};
use burn::tensor::activation::{relu, tanh};
use burn::tensor::ops::PadMode;
use burn::tensor::{Device, Tensor};

use super::halving;
use crate::blocks::conv;

/// The configuration of a [`Generator`].
#[derive(Clone, Debug)]
pub(super) struct GeneratorConfig {
    /// Channels of the input.
    pub inputs: usize,
    /// Channels of the global generator's maps at its full resolution.
    pub width: usize,
    /// Layers of the global generator that halve the resolution.
    pub halvings: usize,
    /// Residual blocks of the global generator.
    pub blocks: usize,
    /// Residual blocks of the enhancer; `None` for the global generator alone.
    pub enhancer: Option<usize>,
}

impl GeneratorConfig {
    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Generator {
        let trunk = self.trunk(device);
        let Some(blocks) = self.enhancer else {
            return Generator::Global(Global {
                trunk,
                last: Reflected::new([self.width, 3], 7, device),
            });
        };
        let width = self.width / 2;
        Generator::Local(Local {
            downsample: halving(),
            trunk,
            first: Reflected::new([self.inputs, width], 7, device),
            first_norm: norm(width, device),
            down: Down::new(width, device),
            blocks: residuals(blocks, self.width, device),
            up: Up::new(width, device),
            last: Reflected::new([width, 3], 7, device),
        })
    }

    fn trunk(&self, device: &Device) -> Trunk {
        let width = |level: usize| self.width << level;
        Trunk {
            first: Reflected::new([self.inputs, self.width], 7, device),
            first_norm: norm(self.width, device),
            down: (0..self.halvings)
                .map(|level| Down::new(width(level), device))
                .collect(),
            blocks: residuals(self.blocks, width(self.halvings), device),
            up: (0..self.halvings)
                .rev()
                .map(|level| Up::new(width(level), device))
                .collect(),
        }
    }
}

fn norm(channels: usize, device: &Device) -> InstanceNorm {
    InstanceNormConfig::new(channels)
        .with_affine(false)
        .init(device)
}

fn residuals(blocks: usize, width: usize, device: &Device) -> Vec<Residual> {
    (0..blocks).map(|_| Residual::new(width, device)).collect()
}

/// The network that makes images from label maps.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Generator {
    /// The reference's `GlobalGenerator`.
    Global(Global),
    /// The reference's `LocalEnhancer`.
    Local(Local),
}

impl Generator {
    /// Images `[batch, 3, height, width]` from `maps: [batch, inputs, height, width]`.
    pub fn forward(&self, maps: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Global(global) => {
                let x = global.trunk.forward(maps);
                tanh(global.last.forward(x))
            }
            Self::Local(local) => local.forward(maps),
        }
    }
}

#[derive(Module, Debug)]
pub(super) struct Global {
    trunk: Trunk,
    last: Reflected,
}

#[derive(Module, Debug)]
pub(super) struct Local {
    downsample: AvgPool2d,
    trunk: Trunk,
    first: Reflected,
    first_norm: InstanceNorm,
    down: Down,
    blocks: Vec<Residual>,
    up: Up,
    last: Reflected,
}

impl Local {
    fn forward(&self, maps: Tensor<4>) -> Tensor<4> {
        let coarse = self.trunk.forward(self.downsample.forward(maps.clone()));
        let x = relu(self.first_norm.forward(self.first.forward(maps)));
        let mut x = self.down.forward(x) + coarse;
        for block in &self.blocks {
            x = block.forward(x);
        }
        tanh(self.last.forward(self.up.forward(x)))
    }
}

/// The global generator without its last convolution, whose output is the image.
#[derive(Module, Debug)]
pub(super) struct Trunk {
    first: Reflected,
    first_norm: InstanceNorm,
    down: Vec<Down>,
    blocks: Vec<Residual>,
    up: Vec<Up>,
}

impl Trunk {
    fn forward(&self, maps: Tensor<4>) -> Tensor<4> {
        let mut x = relu(self.first_norm.forward(self.first.forward(maps)));
        for down in &self.down {
            x = down.forward(x);
        }
        for block in &self.blocks {
            x = block.forward(x);
        }
        for up in &self.up {
            x = up.forward(x);
        }
        x
    }
}

/// A convolution with reflection padding.
#[derive(Module, Debug)]
struct Reflected {
    conv: Conv2d,
    padding: usize,
}

impl Reflected {
    fn new(channels: [usize; 2], kernel: usize, device: &Device) -> Self {
        Self {
            conv: Conv2dConfig::new(channels, [kernel, kernel]).init(device),
            padding: kernel / 2,
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let side = self.padding;
        let x = x.pad((side, side, side, side), PadMode::Reflect);
        self.conv.forward(x)
    }
}

/// Halves the resolution and doubles the channels.
#[derive(Module, Debug)]
struct Down {
    conv: Conv2d,
    norm: InstanceNorm,
}

impl Down {
    fn new(width: usize, device: &Device) -> Self {
        Self {
            conv: conv([width, 2 * width], 3, 2).with_bias(true).init(device),
            norm: norm(2 * width, device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        relu(self.norm.forward(self.conv.forward(x)))
    }
}

/// Doubles the resolution and halves the channels, to `width`.
#[derive(Module, Debug)]
struct Up {
    conv: ConvTranspose2d,
    norm: InstanceNorm,
}

impl Up {
    fn new(width: usize, device: &Device) -> Self {
        Self {
            conv: ConvTranspose2dConfig::new([2 * width, width], [3, 3])
                .with_stride([2, 2])
                .with_padding([1, 1])
                .with_padding_out([1, 1])
                .init(device),
            norm: norm(width, device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        relu(self.norm.forward(self.conv.forward(x)))
    }
}

/// Two convolutions with a shortcut around them.
#[derive(Module, Debug)]
struct Residual {
    conv1: Reflected,
    norm1: InstanceNorm,
    conv2: Reflected,
    norm2: InstanceNorm,
}

impl Residual {
    fn new(width: usize, device: &Device) -> Self {
        Self {
            conv1: Reflected::new([width, width], 3, device),
            norm1: norm(width, device),
            conv2: Reflected::new([width, width], 3, device),
            norm2: norm(width, device),
        }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let x = relu(self.norm1.forward(self.conv1.forward(input.clone())));
        input + self.norm2.forward(self.conv2.forward(x))
    }
}
