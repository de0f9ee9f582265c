//! Attention that computes its scores as a tensor, and self-attention with one projection for
//! queries, keys and values.

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Device, Tensor};

/// The score of a masked key, as in burn's own attention.
const MASKED: f64 = -1.0e4;

/// `softmax(query · key / sqrt(d_head)) · value`, `[batch, heads, seq, d_head]`, with dropout
/// on the weights. As in burn's `MultiHeadAttention`, the scores are a tensor.
///
/// `query: [batch, heads, seq, d_head]`, `key` and `value: [batch, heads, keys, d_head]`;
/// `mask`, true where a key is hidden, broadcasts to `[batch, heads, seq, keys]`.
pub(crate) fn attend(
    heads: [Tensor<4>; 3],
    mask: Option<Tensor<4, Bool>>,
    dropout: &Dropout,
) -> Tensor<4> {
    attend_by(ScoreRules::default(), heads, mask, dropout)
}

/// What else becomes of attention scores.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScoreRules {
    /// The bound to which a hyperbolic tangent keeps them (Gemma 2).
    pub cap: Option<f64>,
    /// What is added to them; it broadcasts to `[batch, heads, seq, keys]` (Swin).
    pub bias: Option<Tensor<4>>,
    /// A score for each head, `[heads]`, that takes a share of the weights and gives it to no key (GPT-OSS).
    pub sinks: Option<Tensor<1>>,
}

/// As [`attend`], with the scores after `rules`.
pub(crate) fn attend_by(
    rules: ScoreRules,
    [query, key, value]: [Tensor<4>; 3],
    mask: Option<Tensor<4, Bool>>,
    dropout: &Dropout,
) -> Tensor<4> {
    let [batch, heads, seq, d_head] = query.dims();
    let [.., keys, _] = key.dims();
    let scores = query
        .matmul(key.transpose())
        .div_scalar((d_head as f64).sqrt());
    let scores = match rules.cap {
        Some(cap) => scores.div_scalar(cap).tanh().mul_scalar(cap),
        None => scores,
    };
    let scores = match rules.bias {
        Some(bias) => scores + bias,
        None => scores,
    };
    let scores = match mask {
        Some(mask) => scores.mask_fill(mask, MASKED),
        None => scores,
    };
    let weights = match rules.sinks {
        Some(sinks) => {
            let sinks = sinks.reshape([1, heads, 1, 1]);
            let sinks = sinks.expand([batch, heads, seq, 1]);
            softmax(Tensor::cat(vec![scores, sinks], 3), 3).narrow(3, 0, keys)
        }
        None => softmax(scores, 3),
    };
    dropout.forward(weights).matmul(value)
}

/// The mask `[1, 1, seq, seq]` that hides the keys after each query.
pub(crate) fn causal_mask(seq: usize, device: &Device) -> Tensor<4, Bool> {
    Tensor::<2, Bool>::tril_mask([seq, seq], 0, device).unsqueeze()
}

/// The mask `[1, 1, seq, seq]` that hides the keys after each query, and those more than `window - 1`
/// tokens before it.
pub(crate) fn window_mask(seq: usize, window: usize, device: &Device) -> Tensor<4, Bool> {
    let before = 1 - window as i64;
    let far = Tensor::<2, Bool>::triu_mask([seq, seq], before, device).unsqueeze();
    causal_mask(seq, device).bool_or(far)
}

/// The mask `[1, 1, seq, seq]` that hides the keys more than `reach` tokens before or after each query.
pub(crate) fn around_mask(seq: usize, reach: usize, device: &Device) -> Tensor<4, Bool> {
    let reach = reach as i64;
    let after = Tensor::<2, Bool>::tril_mask([seq, seq], reach, device);
    let before = Tensor::<2, Bool>::triu_mask([seq, seq], -reach, device);
    after.bool_or(before).unsqueeze()
}

/// `[batch, seq, heads * d_head]` as `[batch, heads, seq, d_head]`.
pub(crate) fn split_heads(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, seq, width] = x.dims();
    x.reshape([batch, seq, heads, width / heads])
        .swap_dims(1, 2)
}

/// `[batch, heads, seq, d_head]` as `[batch, seq, heads * d_head]`.
pub(crate) fn join_heads(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, seq, d_head] = x.dims();
    x.swap_dims(1, 2).reshape([batch, seq, heads * d_head])
}

/// The configuration of a [`SelfAttention`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelfAttentionConfig {
    /// Width of the input and the output.
    pub d_model: usize,
    /// Heads, each `d_model / heads` wide.
    pub heads: usize,
    /// Dropout on the attention weights.
    pub dropout: f64,
}

impl SelfAttentionConfig {
    /// The layer on `device`.
    pub fn init(&self, device: &Device) -> SelfAttention {
        SelfAttention {
            qkv: LinearConfig::new(self.d_model, 3 * self.d_model).init(device),
            output: LinearConfig::new(self.d_model, self.d_model).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            heads: self.heads,
        }
    }
}

/// Multi-head self-attention with one projection for queries, keys and values: `c_attn` of
/// GPT-2, `in_proj` of torch.
#[derive(Module, Debug)]
pub(crate) struct SelfAttention {
    qkv: Linear,
    output: Linear,
    dropout: Dropout,
    heads: usize,
}

impl SelfAttention {
    /// `[batch, seq, d_model]` from `x` of the same shape; `mask` as in [`attend`].
    pub fn forward(&self, x: Tensor<3>, mask: Option<Tensor<4, Bool>>) -> Tensor<3> {
        let projected: [Tensor<3>; 3] = self
            .qkv
            .forward(x)
            .chunk(3, 2)
            .try_into()
            .expect("the projection is three times as wide as the model");
        let heads = projected.map(|part| split_heads(part, self.heads));
        self.output
            .forward(join_heads(attend(heads, mask, &self.dropout)))
    }
}
