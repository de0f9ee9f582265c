//! The layer of GPT-2 and of the Vision Transformer.

use burn::module::Module;
use burn::nn::activation::ActivationConfig;
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{Dropout, DropoutConfig, LayerNorm, LayerNormConfig};
use burn::tensor::{Bool, Device, Tensor};

use super::attention::{SelfAttention, SelfAttentionConfig};

/// The configuration of a [`PreNormLayer`].
#[derive(Clone, Debug)]
pub(crate) struct PreNormConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of the feed-forward block's hidden layer.
    pub d_ff: usize,
    /// Dropout on attention weights and residual branches.
    pub dropout: f64,
    /// Epsilon of the normalisations.
    pub epsilon: f64,
    /// Activation of the feed-forward block.
    pub activation: ActivationConfig,
}

impl PreNormConfig {
    /// The normalisation of a layer; one more follows the last layer.
    pub fn norm(&self, device: &Device) -> LayerNorm {
        LayerNormConfig::new(self.d_model)
            .with_epsilon(self.epsilon)
            .init(device)
    }

    /// The layer on `device`.
    pub fn init(&self, device: &Device) -> PreNormLayer {
        let attention = SelfAttentionConfig {
            d_model: self.d_model,
            heads: self.heads,
            dropout: self.dropout,
        };
        PreNormLayer {
            norm_1: self.norm(device),
            attention: attention.init(device),
            norm_2: self.norm(device),
            mlp: PositionWiseFeedForwardConfig::new(self.d_model, self.d_ff)
                .with_dropout(0.0)
                .with_activation(self.activation.clone())
                .init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

/// Attention and feed-forward block, each after a normalisation.
#[derive(Module, Debug)]
pub(crate) struct PreNormLayer {
    norm_1: LayerNorm,
    attention: SelfAttention,
    norm_2: LayerNorm,
    mlp: PositionWiseFeedForward,
    dropout: Dropout,
}

impl PreNormLayer {
    /// `[batch, seq, d_model]` from `x` of the same shape; `mask`, true where a key is hidden,
    /// broadcasts to `[batch, heads, seq, seq]`.
    pub fn forward(&self, x: Tensor<3>, mask: Option<Tensor<4, Bool>>) -> Tensor<3> {
        let attended = self.attention.forward(self.norm_1.forward(x.clone()), mask);
        let x = x + self.dropout.forward(attended);
        let fed = self.mlp.forward(self.norm_2.forward(x.clone()));
        x + self.dropout.forward(fed)
    }
}
