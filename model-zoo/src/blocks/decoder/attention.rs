//! The attention of a decoder.

use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig, Initializer, Linear, RmsNorm, RotaryEncoding};
use burn::tensor::{Bool, Device, Tensor};

use super::DecoderConfig;
use crate::blocks::attention::{ScoreRules, attend_by, join_heads};

/// How queries and keys are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadNorm {
    /// Each head by itself, all with the same weights: Qwen3, Gemma 3.
    Head,
    /// All heads together: OLMo 2.
    Projection,
}

/// Attention with rotary positions, in which several heads of the queries share one of the keys.
#[derive(Module, Debug)]
pub(super) struct DecoderAttention {
    query: Option<Linear>,
    key: Option<Linear>,
    value: Option<Linear>,
    qkv: Option<Linear>,
    query_norm: Option<RmsNorm>,
    key_norm: Option<RmsNorm>,
    /// `[heads]`
    sinks: Option<Param<Tensor<1>>>,
    output: Linear,
    dropout: Dropout,
    heads: usize,
    kv_heads: usize,
    d_rotary: usize,
    #[module(skip)]
    head_norm: Option<HeadNorm>,
    #[module(skip)]
    score_cap: Option<f64>,
}

impl DecoderAttention {
    /// The attention of `config` on `device`.
    pub fn new(config: &DecoderConfig, device: &Device) -> Self {
        let [wide, kv_wide] = [config.heads, config.kv_heads].map(|heads| heads * config.d_head);
        let linear = |to| config.linear([config.d_model, to], config.qkv_bias, device);
        let separate = |to| (!config.fused).then(|| linear(to));
        let norm = |projected| {
            let width = match config.head_norm? {
                HeadNorm::Head => config.d_head,
                HeadNorm::Projection => projected,
            };
            Some(config.norm(width, device))
        };
        Self {
            query: separate(wide),
            key: separate(kv_wide),
            value: separate(kv_wide),
            qkv: config.fused.then(|| linear(wide + 2 * kv_wide)),
            query_norm: norm(wide),
            key_norm: norm(kv_wide),
            sinks: config
                .sinks
                .then(|| Initializer::Zeros.init([config.heads], device)),
            output: config.linear([wide, config.d_model], config.output_bias, device),
            dropout: DropoutConfig::new(config.dropout).init(),
            heads: config.heads,
            kv_heads: config.kv_heads,
            d_rotary: config.d_rotary,
            head_norm: config.head_norm,
            score_cap: config.score_cap,
        }
    }

    /// `[batch, seq, d_model]` from `x` of the same shape; `mask`, true where a key is hidden, is
    /// `[1, 1, seq, seq]`.
    pub fn forward(
        &self,
        x: Tensor<3>,
        rotary: Option<&RotaryEncoding>,
        mask: Tensor<4, Bool>,
    ) -> Tensor<3> {
        let [query, key, value] = self.project(x);
        let query = self.split(query, self.heads, &self.query_norm);
        let key = self.split(key, self.kv_heads, &self.key_norm);
        let value = self.split(value, self.kv_heads, &None);
        let heads = [
            self.rotate(query, rotary),
            self.for_each_query(self.rotate(key, rotary)),
            self.for_each_query(value),
        ];
        let rules = ScoreRules {
            cap: self.score_cap,
            bias: None,
            sinks: self.sinks.as_ref().map(Param::val),
        };
        let attended = attend_by(rules, heads, Some(mask), &self.dropout);
        self.output.forward(join_heads(attended))
    }

    /// Queries, keys and values `[batch, seq, heads * d_head]` of `x: [batch, seq, d_model]`.
    fn project(&self, x: Tensor<3>) -> [Tensor<3>; 3] {
        match (&self.qkv, &self.query, &self.key, &self.value) {
            (Some(qkv), ..) => {
                let all = qkv.forward(x);
                let d_head = all.dims()[2] / (self.heads + 2 * self.kv_heads);
                let [wide, kv_wide] = [self.heads, self.kv_heads].map(|heads| heads * d_head);
                [
                    all.clone().narrow(2, 0, wide),
                    all.clone().narrow(2, wide, kv_wide),
                    all.narrow(2, wide + kv_wide, kv_wide),
                ]
            }
            (None, Some(query), Some(key), Some(value)) => [
                query.forward(x.clone()),
                key.forward(x.clone()),
                value.forward(x),
            ],
            _ => unreachable!("attention has one projection or three"),
        }
    }

    /// `x: [batch, seq, heads * d_head]`, normalised, as `[batch, heads, seq, d_head]`.
    fn split(&self, x: Tensor<3>, heads: usize, norm: &Option<RmsNorm>) -> Tensor<4> {
        let [batch, seq, wide] = x.dims();
        let split = |x: Tensor<3>| x.reshape([batch, seq, heads, wide / heads]);
        let x = match (self.head_norm, norm) {
            (Some(HeadNorm::Head), Some(norm)) => norm.forward(split(x)),
            (Some(HeadNorm::Projection), Some(norm)) => split(norm.forward(x)),
            _ => split(x),
        };
        x.swap_dims(1, 2)
    }

    /// `x: [batch, heads, seq, d_head]` with its first `d_rotary` channels rotated.
    fn rotate(&self, x: Tensor<4>, rotary: Option<&RotaryEncoding>) -> Tensor<4> {
        let Some(rotary) = rotary else {
            return x;
        };
        let [.., d_head] = x.dims();
        if self.d_rotary == d_head {
            return rotary.forward(x);
        }
        let rotated = rotary.forward(x.clone().narrow(3, 0, self.d_rotary));
        let rest = x.narrow(3, self.d_rotary, d_head - self.d_rotary);
        Tensor::cat(vec![rotated, rest], 3)
    }

    /// `[batch, heads, seq, d_head]` from `x: [batch, kv_heads, seq, d_head]`, with a copy of each
    /// head for each head of the queries that it serves.
    fn for_each_query(&self, x: Tensor<4>) -> Tensor<4> {
        if self.heads == self.kv_heads {
            return x;
        }
        let [batch, kv_heads, seq, d_head] = x.dims();
        let shared = self.heads / kv_heads;
        x.unsqueeze_dim::<5>(2)
            .expand([batch, kv_heads, shared, seq, d_head])
            .reshape([batch, self.heads, seq, d_head])
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Int;

    use super::*;
    use crate::test_support;

    /// Query heads 0 and 1 share the first key head, 2 and 3 the second.
    #[test]
    fn neighbouring_queries_share_a_key() {
        let device = test_support::flex();
        let config = DecoderConfig::llama(50, [16, 32], 2, [4, 2]);
        let attention = DecoderAttention::new(&config, &device);
        let keys = Tensor::<1, Int>::arange(0..2, &device)
            .float()
            .reshape([1, 2, 1, 1]);
        let shared = attention.for_each_query(keys).into_data();
        shared.assert_eq(
            &Tensor::<4>::from_data([[[[0.0]], [[0.0]], [[1.0]], [[1.0]]]], &device).into_data(),
            true,
        );
    }

    #[test]
    fn dropout_is_on_the_attention_weights() {
        let device = test_support::flex();
        for dropout in [0.0, 0.1] {
            let config = DecoderConfig {
                dropout,
                ..DecoderConfig::llama(50, [16, 32], 2, [4, 2])
            };
            let attention = DecoderAttention::new(&config, &device);
            assert_eq!(attention.dropout.prob, dropout);
        }
    }
}
