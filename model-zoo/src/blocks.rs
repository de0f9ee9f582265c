//! Layers and functions that several networks share.

pub(crate) mod adaptive;
pub(crate) mod attention;
pub(crate) mod decoder;
pub(crate) mod locked_dropout;
pub(crate) mod lstm;
pub(crate) mod pre_norm;
pub(crate) mod text_steps;
pub(crate) mod tokens;
pub(crate) mod transformer;
pub(crate) mod weight_norm;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, PaddingConfig2d};
use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};

/// Padding of `size` pixels on every side.
pub(crate) fn around(size: usize) -> PaddingConfig2d {
    PaddingConfig2d::Explicit(size, size, size, size)
}

/// A square convolution from `channels[0]` to `channels[1]`, padded by half its kernel, so that
/// stride 1 keeps the image's size. It has no bias, since a normalisation follows.
pub(crate) fn conv(channels: [usize; 2], kernel: usize, stride: usize) -> Conv2dConfig {
    Conv2dConfig::new(channels, [kernel, kernel])
        .with_stride([stride, stride])
        .with_padding(around(kernel / 2))
        .with_bias(false)
}

/// `conv` with a dilation of `dilation` pixels, and with padding in proportion.
pub(crate) fn dilated(conv: Conv2dConfig, dilation: usize) -> Conv2dConfig {
    let padding = conv.kernel_size[0] / 2 * dilation;
    conv.with_dilation([dilation, dilation])
        .with_padding(around(padding))
}

/// A max-pooling with a square kernel and `padding` pixels on every side.
pub(crate) fn max_pool(kernel: usize, stride: usize, padding: usize) -> MaxPool2d {
    MaxPool2dConfig::new([kernel, kernel])
        .with_strides([stride, stride])
        .with_padding(around(padding))
        .init()
}

/// A convolution, followed by a batch normalisation.
#[derive(Module, Debug)]
pub(crate) struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

impl ConvNorm {
    /// The layers on `device`.
    pub fn new(conv: Conv2dConfig, device: &Device) -> Self {
        Self {
            norm: BatchNormConfig::new(conv.channels[1]).init(device),
            conv: conv.init(device),
        }
    }

    /// From `[batch, in, height, width]` to `[batch, out, height', width']`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// Sets each sample of `x: [batch, channels, height, width]` to zero with probability `1 - keep`
/// and scales up the others (Huang et al. 2016, "Deep Networks with Stochastic Depth", arXiv
/// 1603.09382).
pub(crate) fn drop_path(x: Tensor<4>, keep: f64) -> Tensor<4> {
    if keep >= 1.0 {
        return x;
    }
    let kept = Tensor::random(
        [x.dims()[0], 1, 1, 1],
        Distribution::Bernoulli(keep),
        &x.device(),
    );
    x * kept.div_scalar(keep)
}

/// `x: [batch, channels, height, width]` resized to `size`, a height and a width, by bilinear
/// interpolation with torch's `align_corners=False`.
///
/// burn's own interpolation has no backward pass in this mode on GPUs.
pub(crate) fn bilinear(x: Tensor<4>, size: [usize; 2]) -> Tensor<4> {
    let [_, _, height, width] = x.dims();
    separable(
        x,
        interpolation(height, size[0]),
        interpolation(width, size[1]),
    )
}

/// A separable linear filter: `rows` x `x` x `columns` transposed, for each channel of `x:
/// [batch, channels, height, width]`, with the constant matrices `rows: [height', height]` and
/// `columns: [width', width]`.
///
/// burn keeps the two matrices for the backward pass, and the product of `x` and `columns` until
/// it has the result. Of a convolution with a constant kernel it would keep the input.
pub(crate) fn separable(x: Tensor<4>, rows: TensorData, columns: TensorData) -> Tensor<4> {
    let device = x.device();
    let [batch, channels, height, width] = x.dims();
    let rows = Tensor::<2>::from_data(rows, &device);
    let columns = Tensor::<2>::from_data(columns, &device);
    let size = [rows.dims()[0], columns.dims()[0]];
    let wide = x
        .reshape([batch * channels * height, width])
        .matmul(columns.transpose())
        .reshape([batch * channels, height, size[1]]);
    rows.unsqueeze::<3>()
        .matmul(wide)
        .reshape([batch, channels, size[0], size[1]])
}

/// The matrix `[to, from]` that interpolates a line of `from` pixels at `to` pixels.
fn interpolation(from: usize, to: usize) -> TensorData {
    let mut matrix = vec![0f32; to * from];
    for row in 0..to {
        let position = (row as f32 + 0.5) * from as f32 / to as f32 - 0.5;
        let position = position.clamp(0.0, (from - 1) as f32);
        let (first, weight) = (position as usize, position.fract());
        matrix[row * from + first] += 1.0 - weight;
        matrix[row * from + (first + 1).min(from - 1)] += weight;
    }
    TensorData::new(matrix, [to, from])
}

/// The mean cross-entropy of `scores: [rows, classes]` against `targets: [rows]`.
pub(crate) fn cross_entropy(scores: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    CrossEntropyLossConfig::new()
        .init(&scores.device())
        .forward(scores, targets)
}

/// The mean cross-entropy of `scores: [batch, classes, height, width]` against `labels: [batch,
/// 1, height, width]`. It needs no permuted copy of the scores, as burn's own loss does.
pub(crate) fn cross_entropy_per_pixel(scores: Tensor<4>, labels: Tensor<4, Int>) -> Tensor<1> {
    log_softmax(scores, 1).gather(1, labels).mean().neg()
}

/// The binary cross-entropy of each element of `logits` against the probability in `targets`,
/// which has the same shape.
pub(crate) fn binary_cross_entropy<const D: usize>(
    logits: Tensor<D>,
    targets: Tensor<D>,
) -> Tensor<D> {
    targets.neg().add_scalar(1.0) * logits.clone() - log_sigmoid(logits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    /// Expected values: `torch.nn.functional.interpolate(mode="bilinear")` by its
    /// documented formula, source = (target + 0.5) / scale - 0.5.
    #[test]
    fn bilinear_doubles_a_line_as_torch_does() {
        let x = Tensor::<1>::from_floats([0.0, 4.0], &test_support::flex()).reshape([1, 1, 1, 2]);
        let resized: Vec<f32> = bilinear(x, [2, 4]).into_data().try_into_vec().unwrap();
        assert_eq!(resized, [0.0, 1.0, 3.0, 4.0, 0.0, 1.0, 3.0, 4.0]);
    }
}
