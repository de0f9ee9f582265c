//! The convolutions of the cells.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, s};

/// A batch normalisation with the reference's epsilon.
pub(super) fn norm(channels: usize, device: &Device) -> BatchNorm {
    BatchNormConfig::new(channels)
        .with_epsilon(1e-3)
        .init(device)
}

/// A 1x1 convolution.
pub(super) fn point(channels: [usize; 2], device: &Device) -> Conv2d {
    Conv2dConfig::new(channels, [1, 1])
        .with_bias(false)
        .init(device)
}

/// A ReLU, a 1x1 convolution and a batch normalisation.
#[derive(Module, Debug)]
pub(super) struct Pointwise {
    conv: Conv2d,
    norm: BatchNorm,
}

impl Pointwise {
    /// A block of `[in, out]` channels.
    pub fn new(channels: [usize; 2], device: &Device) -> Self {
        Self {
            conv: point(channels, device),
            norm: norm(channels[1], device),
        }
    }

    /// `[batch, out, height, width]` from `x: [batch, in, height, width]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(relu(x)))
    }
}

/// Halves the resolution: one half of the output channels is from the even pixels, the other half
/// from the odd pixels.
#[derive(Module, Debug)]
pub(super) struct Halved {
    even: Conv2d,
    odd: Conv2d,
    norm: BatchNorm,
}

impl Halved {
    /// A block of `[in, out]` channels.
    pub fn new([entering, leaving]: [usize; 2], device: &Device) -> Self {
        Self {
            even: point([entering, leaving / 2], device),
            odd: point([entering, leaving - leaving / 2], device),
            norm: norm(leaving, device),
        }
    }

    /// `[batch, out, height / 2, width / 2]`, rounded up, from `x: [batch, in, height, width]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = relu(x);
        let even = x.clone().slice(s![.., .., ..;2, ..;2]);
        let odd = with_trailing_zeros(x).slice(s![.., .., 1..;2, 1..;2]);
        let halves = vec![self.even.forward(even), self.odd.forward(odd)];
        self.norm.forward(Tensor::cat(halves, 1))
    }
}

/// `x: [batch, channels, height, width]` with a zero at the end of each row and each column.
///
/// This is `x.pad((0, 1, 0, 1), PadMode::Constant(0.0))` with zeros that are made on the device.
/// With autodiff burn 0.22.1 makes those of `pad` on the host and copies them, gigabytes for a
/// batch of large images (`burn-autodiff`'s `FloatTensorOps` does not implement `float_full`).
fn with_trailing_zeros(x: Tensor<4>) -> Tensor<4> {
    let [batch, channels, height, width] = x.dims();
    let zeros = Tensor::zeros([batch, channels, height + 1, width + 1], &x.device());
    zeros.slice_assign(s![.., .., ..height, ..width], x)
}

/// Two depthwise separable convolutions, the first of which may halve the resolution.
#[derive(Module, Debug)]
pub(super) struct Separable {
    depthwise1: Conv2d,
    pointwise1: Conv2d,
    norm1: BatchNorm,
    depthwise2: Conv2d,
    pointwise2: Conv2d,
    norm2: BatchNorm,
}

impl Separable {
    /// A block of `[in, out]` channels.
    pub fn new(
        [entering, leaving]: [usize; 2],
        kernel: usize,
        stride: usize,
        device: &Device,
    ) -> Self {
        let depthwise = |channels, stride| {
            Conv2dConfig::new([channels, channels], [kernel, kernel])
                .with_stride([stride, stride])
                .with_groups(channels)
                .with_padding(PaddingConfig2d::Same)
                .with_bias(false)
                .init(device)
        };
        Self {
            depthwise1: depthwise(entering, stride),
            pointwise1: point([entering, leaving], device),
            norm1: norm(leaving, device),
            depthwise2: depthwise(leaving, 1),
            pointwise2: point([leaving, leaving], device),
            norm2: norm(leaving, device),
        }
    }

    /// `[batch, out, height / stride, width / stride]`, rounded up, from `x: [batch, in, height,
    /// width]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.pointwise1.forward(self.depthwise1.forward(relu(x)));
        let x = relu(self.norm1.forward(x));
        let x = self.pointwise2.forward(self.depthwise2.forward(x));
        self.norm2.forward(x)
    }
}
