//! Layers with an equalised learning rate, and what changes the resolution.

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

/// A linear layer whose weights are scaled when they are used, not when they are made; the
/// scaled copy is what the backward pass keeps.
#[derive(Module, Debug)]
pub(super) struct EqualLinear {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
    scale: f64,
    multiplier: f64,
}

impl EqualLinear {
    /// A layer of `[from, to]`; `multiplier` slows its learning down.
    pub fn new([from, to]: [usize; 2], gain: f64, multiplier: f64, device: &Device) -> Self {
        Self {
            weight: normal(multiplier).init([from, to], device),
            bias: Initializer::Zeros.init([to], device),
            scale: gain / (from as f64).sqrt() * multiplier,
            multiplier,
        }
    }

    /// `[batch, to]` from `[batch, from]`.
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

/// What a convolution does to the resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resize {
    /// Nothing.
    Keep,
    /// Doubles it before; fused with the convolution, or apart.
    Double {
        /// As one transposed convolution.
        fused: bool,
    },
    /// Halves it afterwards; fused with the convolution, or apart.
    Halve {
        /// As one convolution of stride 2.
        fused: bool,
    },
}

/// A square convolution whose weights are scaled when they are used.
#[derive(Module, Debug)]
pub(super) struct EqualConv {
    /// `[out, in, kernel, kernel]`.
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

    /// The same with a bias.
    pub fn with_bias(mut self) -> Self {
        let [to, ..] = self.weight.lazy_shape().dims::<4>();
        self.bias = Some(Initializer::Zeros.init([to], &self.weight.lazy_device()));
        self
    }

    /// `[batch, out, height', width']` from `[batch, in, height, width]`.
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
            Resize::Halve { fused: true } => {
                plain(x, widened(weight).mul_scalar(0.25), bias, 2)
            }
        }
    }
}

/// Each pixel four times.
fn double(x: Tensor<4>) -> Tensor<4> {
    Interpolate2dConfig::new()
        .with_scale_factor(Some([2.0, 2.0]))
        .init()
        .forward(x)
}

/// A 3x3 kernel as the 4x4 kernel that sees every pixel twice each way.
fn widened(weight: Tensor<4>) -> Tensor<4> {
    let w = weight.pad((1, 1, 1, 1), PadMode::Constant(0.0));
    w.clone().slice(s![.., .., 1.., 1..])
        + w.clone().slice(s![.., .., ..-1, 1..])
        + w.clone().slice(s![.., .., 1.., ..-1])
        + w.slice(s![.., .., ..-1, ..-1])
}

/// `x` `[batch, channels, height, width]` with [1, 2, 1] / 4 passed over it both ways.
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
    use crate::toy;

    /// Fusing saves memory and changes nothing else, but for the direction in which a
    /// transposed convolution reads its kernel; here the kernel is the same both ways.
    #[test]
    fn fused_convolutions_do_what_two_operations_do() {
        let device = toy::flex();
        let x = Tensor::<4>::random([2, 3, 8, 8], Distribution::Default, &device);
        for resize in [|fused| Resize::Double { fused }, |fused| Resize::Halve { fused }] {
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
        let device = toy::flex();
        let x = Tensor::<1>::from_floats([0.0, 0.0, 16.0, 0.0], &device).reshape([1, 1, 1, 4]);
        let blurred: Vec<f32> = blur(x).into_data().try_into_vec().unwrap();
        assert_eq!(blurred, [0.0, 2.0, 4.0, 2.0]);
    }
}
