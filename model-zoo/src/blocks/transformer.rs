//! burn's transformer stacks as the published networks use them.

use burn::nn::DropoutConfig;
use burn::nn::transformer::{
    TransformerDecoder, TransformerDecoderConfig, TransformerEncoder, TransformerEncoderConfig,
};
use burn::tensor::Device;

/// An encoder on `device` without burn's dropout between the two layers of a feed-forward
/// block. The published networks have dropout on attention and on both residual branches only;
/// that one would keep two more tensors `[batch, seq, d_ff]` in each layer.
pub(crate) fn encoder(config: &TransformerEncoderConfig, device: &Device) -> TransformerEncoder {
    let mut encoder = config.init(device);
    for layer in &mut encoder.layers {
        layer.pwff.dropout = DropoutConfig::new(0.0).init();
    }
    encoder
}

/// A decoder on `device`, without the same dropout as in [`encoder`].
pub(crate) fn decoder(config: &TransformerDecoderConfig, device: &Device) -> TransformerDecoder {
    let mut decoder = config.init(device);
    for layer in &mut decoder.layers {
        layer.pwff.dropout = DropoutConfig::new(0.0).init();
    }
    decoder
}
