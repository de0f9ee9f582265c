//! Transformer-XL, base and large, on WikiText-103. See `variants` for paper, reference and
//! differences.
//!
//! The file is long because a network is one file: its modules, its training step with memory, and its
//! published sizes.

use std::cell::RefCell;

use burn::module::{Module, Param};
use burn::nn::activation::ActivationConfig;
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{
    Dropout, DropoutConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Device, Int, Tensor};

use super::Network;
use crate::blocks::adaptive::{Adaptive, AdaptiveConfig};
use crate::blocks::attention::{join_heads, split_heads};
use crate::{Counts, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// The configuration of a [`TransformerXl`].
#[derive(Clone, Debug)]
pub(crate) struct TransformerXlConfig {
    /// The input and output layers: 267,735 words in clusters.
    pub words: AdaptiveConfig,
    /// Layers: 16 or 18.
    pub layers: usize,
    /// Heads: 10 or 16.
    pub heads: usize,
    /// Width of a head: 41 or 64.
    pub d_head: usize,
    /// Width of the feed-forward block's hidden layer: 2,100 or 4,096.
    pub d_ff: usize,
    /// Dropout on embeddings, residual branches and feed-forward blocks: 0.1 or 0.2.
    pub dropout: f64,
    /// Dropout on attention weights: 0 or 0.2.
    pub attention_dropout: f64,
}

impl TransformerXlConfig {
    /// The base network.
    pub fn base() -> Self {
        Self {
            words: AdaptiveConfig {
                ends: vec![20_000, 40_000, 200_000, 267_735],
                d_model: 410,
                narrowing: 1,
            },
            layers: 16,
            heads: 10,
            d_head: 41,
            d_ff: 2100,
            dropout: 0.1,
            attention_dropout: 0.0,
        }
    }

    /// The large network.
    pub fn large() -> Self {
        let base = Self::base();
        Self {
            words: AdaptiveConfig {
                d_model: 1024,
                narrowing: 4,
                ..base.words
            },
            layers: 18,
            heads: 16,
            d_head: 64,
            d_ff: 4096,
            dropout: 0.2,
            attention_dropout: 0.2,
        }
    }

    /// A network with 30 words; `narrowing` is [`AdaptiveConfig::narrowing`].
    fn tiny(narrowing: usize) -> Self {
        Self {
            words: AdaptiveConfig {
                ends: vec![6, 12, 30],
                d_model: 16,
                narrowing,
            },
            layers: 2,
            heads: 2,
            d_head: 6,
            d_ff: 32,
            ..Self::base()
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> TransformerXl {
        let bias = || Initializer::Zeros.init([self.heads, self.d_head], device);
        TransformerXl {
            words: self.words.init(device),
            content_bias: bias(),
            position_bias: bias(),
            dropout: DropoutConfig::new(self.dropout).init(),
            layers: (0..self.layers).map(|_| self.layer(device)).collect(),
            d_model: self.words.d_model,
        }
    }

    fn layer(&self, device: &Device) -> Layer {
        let d_model = self.words.d_model;
        let inner = self.heads * self.d_head;
        let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(device);
        let norm = || LayerNormConfig::new(d_model).init(device);
        Layer {
            attention: RelativeAttention {
                qkv: linear(d_model, 3 * inner),
                positions: linear(d_model, inner),
                output: linear(inner, d_model),
                dropout: DropoutConfig::new(self.attention_dropout).init(),
                heads: self.heads,
            },
            norm_1: norm(),
            mlp: PositionWiseFeedForwardConfig::new(d_model, self.d_ff)
                .with_dropout(self.dropout)
                .with_activation(ActivationConfig::Relu)
                .init(device),
            norm_2: norm(),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }

    /// The memories `[batch, length, d_model]` before the first batch, zeros. They are of the input
    /// of each layer, and of the output of the last, which the reference keeps too.
    fn memories(&self, batch: usize, length: usize, device: &Device) -> Vec<Tensor<3>> {
        let empty = |_| Tensor::zeros([batch, length, self.words.d_model], device);
        (0..=self.layers).map(empty).collect()
    }
}

/// A language model whose layers attend to their inputs in the previous batch too.
#[derive(Module, Debug)]
pub(crate) struct TransformerXl {
    words: Adaptive,
    content_bias: Param<Tensor<2>>,
    position_bias: Param<Tensor<2>>,
    dropout: Dropout,
    layers: Vec<Layer>,
    d_model: usize,
}

impl TransformerXl {
    /// Hidden states `[batch, seq, d_model]` from the vectors of words `x` of the same shape and
    /// from `memories: [batch, length, d_model]`, and the memories for the next batch.
    fn forward(&self, x: Tensor<3>, memories: Vec<Tensor<3>>) -> (Tensor<3>, Vec<Tensor<3>>) {
        let (device, [_, seq, _]) = (x.device(), x.dims());
        let [_, before, _] = memories[0].dims();
        let positions = self.dropout.forward(self.sinusoids(before + seq, &device));
        let future = Tensor::<2, Bool>::tril_mask([seq, before + seq], before as i64, &device);
        let biases = [&self.content_bias, &self.position_bias]
            .map(|bias| bias.val().unsqueeze_dim::<3>(1).unsqueeze::<4>());

        let mut x = self.dropout.forward(x);
        let mut after = Vec::with_capacity(memories.len());
        let mut memories = memories.into_iter();
        for (layer, memory) in self.layers.iter().zip(&mut memories) {
            after.push(remembered(memory.clone(), x.clone().detach()));
            let context = Tensor::cat(vec![memory, x.clone()], 1);
            let future = future.clone().unsqueeze();
            x = layer.forward(x, context, positions.clone(), biases.clone(), future);
        }
        after.extend(memories.map(|memory| remembered(memory, x.clone().detach())));
        (self.dropout.forward(x), after)
    }

    /// Sinusoids `[1, length, d_model]` of the distances `length - 1` to 0.
    fn sinusoids(&self, length: usize, device: &Device) -> Tensor<3> {
        let half = self.d_model / 2;
        let exponents = Tensor::<1, Int>::arange(0..half as i64, device).float();
        let inverse = (exponents * (-(10_000f64.ln()) / half as f64)).exp();
        let distance = Tensor::<1, Int>::arange(0..length as i64, device).float();
        let distance = (-distance + (length - 1) as f64).unsqueeze_dim::<2>(1);
        let angles = distance * inverse.unsqueeze();
        Tensor::cat(vec![angles.clone().sin(), angles.cos()], 1).unsqueeze()
    }
}

/// The end of `memory: [batch, length, d_model]` followed by `x: [batch, seq, d_model]`, `length`
/// long.
fn remembered(memory: Tensor<3>, x: Tensor<3>) -> Tensor<3> {
    let ([_, length, _], [_, seq, _]) = (memory.dims(), x.dims());
    Tensor::cat(vec![memory, x], 1).narrow(1, seq, length)
}

/// Attention and feed-forward block, each before a normalisation.
#[derive(Module, Debug)]
struct Layer {
    attention: RelativeAttention,
    norm_1: LayerNorm,
    mlp: PositionWiseFeedForward,
    norm_2: LayerNorm,
    dropout: Dropout,
}

impl Layer {
    /// `[batch, seq, d_model]` from `x` of the same shape, which is the end of `context: [batch,
    /// keys, d_model]`; the other arguments are those of [`RelativeAttention::forward`].
    fn forward(
        &self,
        x: Tensor<3>,
        context: Tensor<3>,
        positions: Tensor<3>,
        biases: [Tensor<4>; 2],
        future: Tensor<4, Bool>,
    ) -> Tensor<3> {
        let [_, seq, _] = x.dims();
        let attended = self
            .attention
            .forward(seq, context, positions, biases, future);
        let x = self.norm_1.forward(x + self.dropout.forward(attended));
        let fed = self.dropout.forward(self.mlp.forward(x.clone()));
        self.norm_2.forward(x + fed)
    }
}

/// Attention whose scores depend on the content and on the distance of a key.
#[derive(Module, Debug)]
struct RelativeAttention {
    qkv: Linear,
    positions: Linear,
    output: Linear,
    dropout: Dropout,
    heads: usize,
}

impl RelativeAttention {
    /// `[batch, seq, d_model]`: the last `seq` tokens of `context: [batch, keys, d_model]` attend
    /// to all of it. `positions: [1, keys, d_model]`, biases of content and position `[1, heads,
    /// 1, d_head]`; `future: [1, 1, seq, keys]` is true where a key is hidden.
    fn forward(
        &self,
        seq: usize,
        context: Tensor<3>,
        positions: Tensor<3>,
        [content_bias, position_bias]: [Tensor<4>; 2],
        future: Tensor<4, Bool>,
    ) -> Tensor<3> {
        let [query, key, value]: [Tensor<3>; 3] = self
            .qkv
            .forward(context)
            .chunk(3, 2)
            .try_into()
            .expect("the projection is three times as wide as the heads");
        let [_, keys, width] = query.dims();
        let query = split_heads(query.narrow(1, keys - seq, seq), self.heads);
        let key = split_heads(key, self.heads);
        let value = split_heads(value, self.heads);
        let distance = split_heads(self.positions.forward(positions), self.heads);

        let by_content = (query.clone() + content_bias).matmul(key.transpose());
        let by_distance = (query + position_bias).matmul(distance.transpose());
        let scale = ((width / self.heads) as f64).sqrt();
        let scores = (by_content + shifted(by_distance)).div_scalar(scale);
        let weights = softmax(scores.mask_fill(future, f64::NEG_INFINITY), 3);
        let attended = self.dropout.forward(weights).matmul(value);
        self.output.forward(join_heads(attended))
    }
}

/// `x: [batch, heads, seq, keys]` with row i moved to the left by `seq - 1 - i`, which brings the
/// score of each distance to the key at that distance.
fn shifted(x: Tensor<4>) -> Tensor<4> {
    let [batch, heads, seq, keys] = x.dims();
    let zeros = Tensor::zeros([batch, heads, seq, 1], &x.device());
    Tensor::cat(vec![zeros, x], 3)
        .reshape([batch, heads, keys + 1, seq])
        .narrow(2, 1, keys)
        .reshape([batch, heads, seq, keys])
}

fn train_on<O: Observer>(
    config: &TransformerXlConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    let (tokens, d_model) = (batch * seq, config.words.d_model);
    let shares = config.words.shares(tokens);
    let carried = RefCell::new(config.memories(batch, seq, device));
    supervised(
        config.init(device),
        job,
        device,
        steps,
        observer,
        |device| {
            (
                config.words.words(tokens, device),
                config.words.words(tokens, device),
            )
        },
        |network, (words, next)| {
            let shares = network.words.split(&shares, &words.device());
            let x = network.words.embed(words, &shares) * (d_model as f64).sqrt();
            let x = x.reshape([batch, seq, d_model]);
            let (hidden, memories) = network.forward(x, carried.take());
            carried.replace(memories);
            network.words.loss(hidden.flatten(0, 1), next, &shares)
        },
    )
}

impl Network for TransformerXl {
    // The tables of words are the output layer too, and so is what belongs to them.
    const OUTPUT_LAYERS: &'static [&'static str] = &["words"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let base = Variant {
            name: "transformer-xl-base",
            family: "Transformer-XL",
            file,
            paper: "Dai, Yang, Yang, Carbonell, Le, Salakhutdinov 2019, Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, arXiv 1901.02860",
            reference: "kimiyoung/transformer-xl pytorch/mem_transformer.py, run_wt103_base.sh",
            counts: Counts {
                trainable: 151_107_538,
                tensors: 182,
                buffers: 0,
            },
            input: Input {
                seq: Some(150),
                ..Input::default()
            },
            batch: 15,
            optimizer: OptimizerKind::Adam,
            recipe: "WikiText-103, 15 sequences of 150 tokens a card (60 on 4) with a memory of as many, adaptive softmax, Adam, dropout 0.1",
            differences: &[
                "words fall into the clusters of the adaptive softmax as Zipf's law says (80, 5, 12 and 2 %), where the reference asks the data",
                "on wgpu and vulkan burn copies two of the four slices of the word table, 180,000 of 267,735 words, which torch only views: 295 MB more; on CUDA, where rows are padded, it views them too",
                "the inverse frequencies of the positions, 205 values, are computed in each step instead of kept",
                "gradient clipping is left out: it needs no memory that outlives an operation",
            ],
        };
        let large = Variant {
            name: "transformer-xl-large",
            reference: "kimiyoung/transformer-xl pytorch/mem_transformer.py, run_wt103_large.sh",
            counts: Counts {
                trainable: 285_170_506,
                tensors: 215,
                buffers: 0,
            },
            input: Input {
                seq: Some(384),
                ..Input::default()
            },
            batch: 16,
            recipe: "WikiText-103, sequences of 384 tokens with a memory of as many, 128 of them on all cards, here 16, adaptive softmax, Adam, dropout 0.2",
            differences: &[
                "words fall into the clusters of the adaptive softmax as Zipf's law says (80, 5, 12 and 2 %), where the reference asks the data",
                "the inverse frequencies of the positions, 512 values, are computed in each step instead of kept",
                "gradient clipping is left out: it needs no memory that outlives an operation",
            ],
            ..base.clone()
        };
        vec![base, large]
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "transformer-xl-base" => TransformerXlConfig::base(),
            "transformer-xl-large" => TransformerXlConfig::large(),
            "transformer-xl-mini" => TransformerXlConfig::tiny(1),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    /// Computed by hand: with two queries and three keys, the first row moves by one.
    #[test]
    fn scores_by_distance_move_to_their_keys() {
        let device = test_support::flex();
        let x = Tensor::<4>::from_data([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]], &device);
        let moved = shifted(x).into_data();
        // The attention masks the keys after the query's own.
        let expected = Tensor::<4>::from_data([[[[2.0, 3.0, 0.0], [4.0, 5.0, 6.0]]]], &device);
        moved.assert_eq(&expected.into_data(), true);
    }

    #[test]
    fn words_keep_their_places_and_leave_a_memory() {
        let device = test_support::flex();
        let config = TransformerXlConfig::tiny(1);
        let (hidden, memories) = config.init(&device).forward(
            Tensor::zeros([3, 4, 16], &device),
            config.memories(3, 5, &device),
        );
        assert_eq!(hidden.dims(), [3, 4, 16]);
        assert_eq!(memories.len(), 3);
        assert_eq!(memories[1].dims(), [3, 5, 16]);
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(3),
            input: Input {
                seq: Some(5),
                ..Input::default()
            },
            ..Request::default()
        };
        for narrowing in [1, 4] {
            test_support::assert_loss_decreases(
                "transformer-xl-base",
                &request,
                |job, device, _, losses| {
                    train_on(
                        &TransformerXlConfig::tiny(narrowing),
                        job,
                        device,
                        8,
                        losses,
                    )
                },
            );
        }
    }
}
