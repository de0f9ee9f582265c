//! Layers with an equalised learning rate, which can change the resolution, and the blur.

use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::nn::interpolate::Interpolate2dConfig;
use burn::nn::pool::AvgPool2dConfig;
use burn::tensor::module::{conv_transpose2d, conv2d, linear};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, PadMode};
use burn::tensor::{Device, Tensor, TensorData, s};

use crate::blocks::separable;

/// Gain of a layer that a leaky ReLU follows (He's initialisation).
pub(super) const GAIN: f64 = std::f64::consts::SQRT_2;

/// A linear layer that scales its weights at each use and not at their initialisation. burn keeps
/// the scaled copy for the backward pass.
#[derive(Module, Debug)]
pub(super) struct EqualLinear {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
    scale: f64,
    multiplier: f64,
}

impl EqualLinear {
    /// A layer of `[from, to]` channels; `multiplier` is the factor of its learning rate.
    pub fn new([from, to]: [usize; 2], gain: f64, multiplier: f64, device: &Device) -> Self {
        Self {
            weight: normal(multiplier).init([from, to], device),
            bias: Initializer::Zeros.init([to], device),
            scale: gain / (from as f64).sqrt() * multiplier,
            multiplier,
        }
    }

    /// `[batch, to]` from `x: [batch, from]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let weight = self.weight.val().mul_scalar(self.scale);
        let bias = self.bias.val();
        let bias = if self.multiplier == 1.0 {
            bias
        } else {
            bias.mul_scalar(self.multiplier)
        };
        linear(x, weight, Some(bias))
    }
}

fn normal(multiplier: f64) -> Initializer {
    Initializer::Normal {
        mean: 0.0,
        std: 1.0 / multiplier,
    }
}

/// The change of the resolution in a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resize {
    /// None.
    Keep,
    /// Doubling, before the convolution.
    Double {
        /// Whether both are one transposed convolution.
        fused: bool,
    },
    /// Halving, after the convolution.
    Halve {
        /// Whether both are one convolution of stride 2.
        fused: bool,
    },
}

/// A square convolution that scales its weights at each use.
#[derive(Module, Debug)]
pub(super) struct EqualConv {
    /// The unscaled weights, `[out, in, kernel, kernel]`.
    weight: Param<Tensor<4>>,
    bias: Option<Param<Tensor<1>>>,
    scale: f64,
    #[module(skip)]
    resize: Resize,
}

impl EqualConv {
    /// A convolution without a bias.
    pub fn new(
        [from, to]: [usize; 2],
        kernel: usize,
        gain: f64,
        resize: Resize,
        device: &Device,
    ) -> Self {
        Self {
            weight: normal(1.0).init([to, from, kernel, kernel], device),
            bias: None,
            scale: gain / ((from * kernel * kernel) as f64).sqrt(),
            resize,
        }
    }

    /// The same convolution with a bias.
    pub fn with_bias(mut self) -> Self {
        let [to, ..] = self.weight.lazy_shape().dims::<4>();
        self.bias = Some(Initializer::Zeros.init([to], &self.weight.lazy_device()));
        self
    }

    /// `[batch, out, height', width']` from `x: [batch, in, height, width]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let weight = self.weight.val().mul_scalar(self.scale);
        let bias = self.bias.as_ref().map(|bias| bias.val());
        let plain = |x, weight: Tensor<4>, bias, stride: usize| {
            let kernel = weight.dims()[3];
            let padding = (kernel - 1) / 2;
            let options = ConvOptions::new([stride, stride], [padding, padding], [1, 1], 1);
            conv2d(x, weight, bias, options)
        };
        match self.resize {
            Resize::Keep => plain(x, weight, bias, 1),
            Resize::Double { fused: false } => plain(double(x), weight, bias, 1),
            Resize::Double { fused: true } => {
                let weight = widened(weight).swap_dims(0, 1);
                let options = ConvTransposeOptions::new([2, 2], [1, 1], [0, 0], [1, 1], 1);
                conv_transpose2d(x, weight, bias, options)
            }
            Resize::Halve { fused: false } => {
                let halve = AvgPool2dConfig::new([2, 2]).init();
                let x = halve.forward(plain(x, weight, None, 1));
                match bias {
                    Some(bias) => x + bias.reshape([1, -1, 1, 1]),
                    None => x,
                }
            }
            Resize::Halve { fused: true } => plain(x, widened(weight).mul_scalar(0.25), bias, 2),
        }
    }
}

/// `x` with each pixel as four pixels.
fn double(x: Tensor<4>) -> Tensor<4> {
    Interpolate2dConfig::new()
        .with_scale_factor(Some([2.0, 2.0]))
        .init()
        .forward(x)
}

/// The 4x4 kernel that is the sum of the 3x3 kernel `weight` at all four positions.
fn widened(weight: Tensor<4>) -> Tensor<4> {
    let w = weight.pad((1, 1, 1, 1), PadMode::Constant(0.0));
    w.clone().slice(s![.., .., 1.., 1..])
        + w.clone().slice(s![.., .., ..-1, 1..])
        + w.clone().slice(s![.., .., 1.., ..-1])
        + w.slice(s![.., .., ..-1, ..-1])
}

/// `x: [batch, channels, height, width]`, filtered with `[1, 2, 1] / 4` along rows and columns.
pub(super) fn blur(x: Tensor<4>) -> Tensor<4> {
    let [_, _, height, width] = x.dims();
    separable(x, smoothing(height), smoothing(width))
}

fn smoothing(size: usize) -> TensorData {
    let mut matrix = vec![0f32; size * size];
    for row in 0..size {
        for (column, weight) in [(row.wrapping_sub(1), 0.25), (row, 0.5), (row + 1, 0.25)] {
            if column < size {
                matrix[row * size + column] = weight;
            }
        }
    }
    TensorData::new(matrix, [size, size])
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tolerance};

    use super::*;
    use crate::test_support;

    /// A fused convolution has the same result. The kernel here is symmetric, since a transposed
    /// convolution reads its kernel in the other direction.
    #[test]
    fn fused_convolutions_do_what_two_operations_do() {
        let device = test_support::flex();
        let x = Tensor::<4>::random([2, 3, 8, 8], Distribution::Default, &device);
        for resize in [
            |fused| Resize::Double { fused },
            |fused| Resize::Halve { fused },
        ] {
            let apart = EqualConv::new([3, 4], 3, GAIN, resize(false), &device);
            let weight = apart.weight.val();
            let weight = weight.clone() + weight.flip([2, 3]);
            let layer = |fused| EqualConv {
                weight: Param::from_tensor(weight.clone()),
                resize: resize(fused),
                ..apart.clone()
            };
            let [apart, fused] = [false, true].map(|fused| layer(fused).forward(x.clone()));
            assert_eq!(apart.dims(), fused.dims());
            apart
                .into_data()
                .assert_approx_eq::<f32>(&fused.into_data(), Tolerance::default());
        }
    }

    #[test]
    fn blurring_spreads_a_pixel() {
        let device = test_support::flex();
        let x = Tensor::<1>::from_floats([0.0, 0.0, 16.0, 0.0], &device).reshape([1, 1, 1, 4]);
        let blurred: Vec<f32> = blur(x).into_data().try_into_vec().unwrap();
        assert_eq!(blurred, [0.0, 2.0, 4.0, 2.0]);
    }
}
