//! The experts of a decoder: many feed-forward blocks, of which each token takes a few.
//!
//! Difference from transformers: which experts a token takes is fixed, the same number of tokens for each,
//! whereas there the router's scores decide. So no values are read from the device, and the sizes of all tensors
//! are known. All experts work in one batched product, where transformers has a loop or a grouped product.

use burn::module::{Module, Param};
use burn::nn::{Initializer, Linear};
use burn::tensor::activation::{sigmoid, softmax};
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};

use super::{Activation, DecoderConfig};

/// The experts of a [`DecoderConfig`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertsConfig {
    /// The number of experts in a layer.
    pub count: usize,
    /// Experts that each token takes.
    pub active: usize,
    /// Width of an expert's hidden layer.
    pub d_ff: usize,
    /// How experts are weighed.
    pub weights: ExpertWeights,
    /// The gate of GPT-OSS, whose experts and router have biases; none for that of the dense layers.
    pub clamped: Option<ClampedGate>,
}

/// How much the output of an expert counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertWeights {
    /// A softmax over all experts: Qwen3 with `norm_topk_prob` false.
    All,
    /// A softmax over all experts, divided by the sum of those taken: Qwen3.
    Normalised,
    /// A softmax over the experts taken: GPT-OSS.
    Taken,
}

/// `(up + 1) gate sigmoid(alpha gate)`, with both halves within `limit` (`GptOssExperts` of transformers).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClampedGate {
    /// The slope of the sigmoid.
    pub alpha: f64,
    /// The bound of both halves.
    pub limit: f64,
}

impl ClampedGate {
    fn forward(self, gate: Tensor<3>, up: Tensor<3>) -> Tensor<3> {
        let gate = gate.clamp_max(self.limit);
        let up = up.clamp(-self.limit, self.limit);
        let slope = sigmoid(gate.clone().mul_scalar(self.alpha));
        up.add_scalar(1.0) * (gate * slope)
    }
}

/// All experts of a layer, as transformers holds them: one tensor for each of their matrices.
#[derive(Module, Debug)]
pub(super) struct Experts {
    router: Linear,
    /// `[experts, d_model, 2 * d_ff]`
    gate_up: Param<Tensor<3>>,
    /// `[experts, 2 * d_ff]`
    gate_up_bias: Option<Param<Tensor<2>>>,
    /// `[experts, d_ff, d_model]`
    down: Param<Tensor<3>>,
    /// `[experts, d_model]`
    down_bias: Option<Param<Tensor<2>>>,
    #[module(skip)]
    config: ExpertsConfig,
    #[module(skip)]
    activation: Activation,
}

impl Experts {
    /// The `experts` of the decoder `config` on `device`.
    pub fn new(config: &DecoderConfig, experts: ExpertsConfig, device: &Device) -> Self {
        let (count, d_model, d_ff) = (experts.count, config.d_model, experts.d_ff);
        let biased = experts.clamped.is_some();
        // The scale of the reference (`initializer_range`).
        let small = Initializer::Normal {
            mean: 0.0,
            std: 0.02,
        };
        let bias = |width: usize| biased.then(|| Initializer::Zeros.init([count, width], device));
        Self {
            router: config.linear([d_model, count], biased, device),
            gate_up: small.init([count, d_model, 2 * d_ff], device),
            gate_up_bias: bias(2 * d_ff),
            down: small.init([count, d_ff, d_model], device),
            down_bias: bias(d_model),
            config: experts,
            activation: config.activation,
        }
    }

    /// `[batch, seq, d_model]` from `x` of the same shape.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, seq, d_model] = x.dims();
        let x: Tensor<2> = x.flatten(0, 1);
        let draw = Draw::new(batch * seq, &self.config, &x.device());
        let weights = self.weights(x.clone(), &draw);
        let rows = x.clone().select(0, draw.tokens.clone());
        let made = self.each(rows.reshape([draw.experts, draw.places, d_model]));
        let made = made.flatten::<2>(0, 1) * weights;
        x.zeros_like()
            .select_assign(0, draw.tokens, made, IndexingUpdateOp::Add)
            .reshape([batch, seq, d_model])
    }

    /// The weights `[experts * places, 1]` of what experts make of `x: [tokens, d_model]`.
    fn weights(&self, x: Tensor<2>, draw: &Draw) -> Tensor<2> {
        let scores = self.router.forward(x);
        let taken = draw.taken.clone();
        let weights = match self.config.weights {
            ExpertWeights::Taken => softmax(scores.gather(1, taken), 1),
            ExpertWeights::All => softmax(scores, 1).gather(1, taken),
            ExpertWeights::Normalised => {
                let weights = softmax(scores, 1).gather(1, taken);
                weights.clone() / weights.sum_dim(1)
            }
        };
        let weights: Tensor<1> = weights.flatten(0, 1);
        let weights = match draw.empty_places() {
            0 => weights,
            empty => {
                let none = Tensor::zeros([empty], &weights.device());
                Tensor::cat(vec![weights, none], 0)
            }
        };
        weights.select(0, draw.choices.clone()).unsqueeze_dim(1)
    }

    /// What each expert makes of its rows in `x: [experts, places, d_model]`, in the same shape.
    fn each(&self, x: Tensor<3>) -> Tensor<3> {
        let both = biased(x.matmul(self.gate_up.val()), &self.gate_up_bias);
        let d_ff = self.config.d_ff;
        let (gate, up) = (both.clone().narrow(2, 0, d_ff), both.narrow(2, d_ff, d_ff));
        let hidden = match self.config.clamped {
            Some(gated) => gated.forward(gate, up),
            None => self.activation.forward(gate) * up,
        };
        biased(hidden.matmul(self.down.val()), &self.down_bias)
    }
}

/// `x: [experts, places, width]` with the `bias: [experts, width]`, if there is one.
fn biased(x: Tensor<3>, bias: &Option<Param<Tensor<2>>>) -> Tensor<3> {
    match bias {
        Some(bias) => x + bias.val().unsqueeze_dim(1),
        None => x,
    }
}

/// Which experts tokens take. Choice `c` of token `t` is number `t * active + c`, and goes to the expert of that
/// number modulo the number of experts: each token takes different ones, and all experts have as many tokens, or
/// one less.
struct Draw {
    tokens_taken: usize,
    experts: usize,
    /// The rows of each expert.
    places: usize,
    /// The expert of each choice: `[tokens, active]`.
    taken: Tensor<2, Int>,
    /// The choice in each place of each expert: `[experts * places]`. A place that no token takes has a choice from
    /// `tokens * active` on.
    choices: Tensor<1, Int>,
    /// The token in each place of each expert: `[experts * places]`; any if no token takes it.
    tokens: Tensor<1, Int>,
}

impl Draw {
    fn new(tokens: usize, config: &ExpertsConfig, device: &Device) -> Self {
        let (experts, active) = (config.count, config.active);
        let all = tokens * active;
        let places = all.div_ceil(experts);
        let count = |end: usize| Tensor::<1, Int>::arange(0..end as i64, device);
        let taken = count(all).remainder_scalar(experts as i64);
        // Place p of expert e has choice p * experts + e.
        let choices = count(places * experts)
            .reshape([places, experts])
            .swap_dims(0, 1)
            .reshape([places * experts]);
        let taken_by = choices.clone().div_scalar(active as i64);
        Self {
            tokens_taken: all,
            experts,
            places,
            taken: taken.reshape([tokens, active]),
            tokens: match places * experts > all {
                true => taken_by.clamp_max(tokens as i64 - 1),
                false => taken_by,
            },
            choices,
        }
    }

    /// Places that no token takes.
    fn empty_places(&self) -> usize {
        self.places * self.experts - self.tokens_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    fn config(active: usize) -> ExpertsConfig {
        ExpertsConfig {
            count: 4,
            active,
            d_ff: 6,
            weights: ExpertWeights::Normalised,
            clamped: None,
        }
    }

    /// By hand: tokens 0, 1, 2 make choices 0 and 1, 2 and 3, 4 and 5, and experts take every fourth.
    #[test]
    fn experts_have_as_many_tokens() {
        let device = test_support::flex();
        let draw = Draw::new(3, &config(2), &device);
        let list = |tensor: Tensor<1, Int>| tensor.into_data().iter::<i64>().collect::<Vec<_>>();
        assert_eq!(list(draw.taken.clone().flatten(0, 1)), [0, 1, 2, 3, 0, 1]);
        assert_eq!(list(draw.choices.clone()), [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(list(draw.tokens.clone()), [0, 2, 0, 2, 1, 2, 1, 2]);
        assert_eq!((draw.places, draw.empty_places()), (2, 2));
    }

    /// With equal experts a token gets what one expert makes of it: its weights add up to 1.
    #[test]
    fn equal_experts_are_one_expert() {
        let device = test_support::flex();
        let decoder = DecoderConfig::llama(50, [8, 12], 1, [2, 2]);
        for (active, weights) in [
            (2, ExpertWeights::Normalised),
            (3, ExpertWeights::Taken),
            (4, ExpertWeights::All),
        ] {
            let config = ExpertsConfig {
                weights,
                ..config(active)
            };
            let mut experts = Experts::new(&decoder, config, &device);
            let gate_up = Tensor::<3>::ones([1, 8, 12], &device).mul_scalar(0.1);
            let down = Tensor::<3>::ones([1, 6, 8], &device).mul_scalar(0.2);
            experts.gate_up = Param::from_tensor(gate_up.clone().repeat_dim(0, 4));
            experts.down = Param::from_tensor(down.clone().repeat_dim(0, 4));
            // Five tokens do not divide evenly.
            let x = Tensor::<1, Int>::arange(0..40, &device)
                .float()
                .div_scalar(40.0)
                .reshape([1, 5, 8]);
            let hidden = x.clone().matmul(gate_up);
            let gated = config_gate(hidden);
            let expected = gated.matmul(down);
            let found = experts.forward(x);
            let difference = (found - expected).abs().max().into_scalar::<f32>();
            assert!(difference < 1e-5, "{difference}");
        }
    }

    fn config_gate(both: Tensor<3>) -> Tensor<3> {
        let (gate, up) = (both.clone().narrow(2, 0, 6), both.narrow(2, 6, 6));
        Activation::Silu.forward(gate) * up
    }
}
