//! Pieces that several networks share.

pub(crate) mod adaptive;
pub(crate) mod attention;
pub(crate) mod locked_dropout;
pub(crate) mod lstm;
pub(crate) mod pre_norm;
pub(crate) mod text_steps;
pub(crate) mod tokens;
pub(crate) mod transformer;
pub(crate) mod weight_norm;

use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2dConfig;

/// A square convolution whose padding is half its kernel: at stride 1 the image
/// keeps its size. Without a bias, since a normalisation follows.
pub(crate) fn conv(channels: [usize; 2], kernel: usize, stride: usize) -> Conv2dConfig {
    let pad = kernel / 2;
    Conv2dConfig::new(channels, [kernel, kernel])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
        .with_bias(false)
}
