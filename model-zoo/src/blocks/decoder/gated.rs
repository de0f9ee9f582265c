//! The gated feed-forward block of a decoder.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::{gelu, gelu_approximate, relu, silu};
use burn::tensor::{Device, Tensor};

use super::DecoderConfig;

/// The activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x sigmoid(x)`.
    Silu,
    /// The exact GELU.
    Gelu,
    /// The GELU with a hyperbolic tangent.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
}

impl Activation {
    pub(super) fn forward(self, x: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Silu => silu(x),
            Self::Gelu => gelu(x),
            Self::GeluTanh => gelu_approximate(x),
            Self::Relu => relu(x),
        }
    }
}

/// `down(activation(gate(x)) * up(x))` (Shazeer 2020, "GLU Variants Improve Transformer", arXiv
/// 2002.05202), with one projection for gate and up if the decoder is fused.
#[derive(Module, Debug)]
pub(super) struct GatedFeedForward {
    gate: Option<Linear>,
    up: Option<Linear>,
    gate_up: Option<Linear>,
    down: Linear,
    #[module(skip)]
    activation: Activation,
}

impl GatedFeedForward {
    /// The block of `config` on `device`.
    pub fn new(config: &DecoderConfig, device: &Device) -> Self {
        let (wide, fused) = (config.d_ff, config.fused);
        let linear = |sides| config.linear(sides, config.mlp_bias, device);
        let half = || (!fused).then(|| linear([config.d_model, wide]));
        Self {
            gate: half(),
            up: half(),
            gate_up: fused.then(|| linear([config.d_model, 2 * wide])),
            down: linear([wide, config.d_model]),
            activation: config.activation,
        }
    }

    /// `[batch, seq, d_model]` from `x` of the same shape.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let (gate, up) = match (&self.gate_up, &self.gate, &self.up) {
            (Some(both), ..) => {
                let both = both.forward(x);
                let wide = both.dims()[2] / 2;
                let gate = both.clone().narrow(2, 0, wide);
                (self.activation.forward(gate), both.narrow(2, wide, wide))
            }
            (None, Some(gate), Some(up)) => {
                let gate = self.activation.forward(gate.forward(x.clone()));
                (gate, up.forward(x))
            }
            _ => unreachable!("the block has one projection or two"),
        };
        self.down.forward(gate * up)
    }
}
