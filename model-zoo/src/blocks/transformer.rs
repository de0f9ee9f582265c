//! burn's transformer stacks as the published networks use them.

use burn::nn::DropoutConfig;
use burn::nn::transformer::{
    TransformerDecoder, TransformerDecoderConfig, TransformerEncoder, TransformerEncoderConfig,
};
use burn::tensor::Device;

/// An encoder without burn's dropout between the two layers of a feed-forward block:
/// the published networks have dropout on attention, on both residual branches and
/// nowhere else, and that one would keep two more maps of `d_ff` per layer.
pub(crate) fn encoder(config: &TransformerEncoderConfig, device: &Device) -> TransformerEncoder {
    let mut encoder = config.init(device);
    for layer in &mut encoder.layers {
        layer.pwff.dropout = DropoutConfig::new(0.0).init();
    }
    encoder
}

/// A decoder, likewise.
pub(crate) fn decoder(config: &TransformerDecoderConfig, device: &Device) -> TransformerDecoder {
    let mut decoder = config.init(device);
    for layer in &mut decoder.layers {
        layer.pwff.dropout = DropoutConfig::new(0.0).init();
    }
    decoder
}
