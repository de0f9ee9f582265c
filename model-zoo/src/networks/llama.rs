//! Llama 2 and TinyLlama, decoder-only language models. See `variants` for paper, reference and
//! differences.

use burn::module::Module;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig, RmsNorm,
    RmsNormConfig, RotaryEncoding, RotaryEncodingConfig, SwiGlu, SwiGluConfig,
};
use burn::tensor::{Bool, Device, Int, Tensor};

use super::Network;
use crate::blocks::attention::{attend, causal_mask, join_heads, split_heads};
use crate::blocks::text_steps::language_model;
use crate::blocks::tokens::tied_scores;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant};

/// The configuration of a [`Llama`]; the fields are those of a `config.json`.
#[derive(Clone, Debug)]
pub(crate) struct LlamaConfig {
    /// Words in the vocabulary: 32,000.
    pub vocab: usize,
    /// Width of the model.
    pub d_model: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values, each for `heads / kv_heads` heads of the queries.
    pub kv_heads: usize,
    /// Width of the feed-forward block's hidden layer.
    pub d_ff: usize,
    /// Dropout on the attention weights: none.
    pub dropout: f64,
    /// Positions for which the network computes rotations, which it keeps.
    pub positions: usize,
    /// Base of the rotations' wavelengths: 10,000.
    pub theta: f32,
    /// Epsilon of the normalisations: 1e-5.
    pub epsilon: f64,
    /// Whether the embedding table is the output layer too.
    pub tied: bool,
}

impl LlamaConfig {
    /// Llama 2 of 7 billion parameters.
    pub fn llama_2_7b(vocab: usize, positions: usize) -> Self {
        Self {
            vocab,
            d_model: 4096,
            layers: 32,
            heads: 32,
            kv_heads: 32,
            d_ff: 11_008,
            dropout: 0.0,
            positions,
            theta: 10_000.0,
            epsilon: 1e-5,
            tied: false,
        }
    }

    /// TinyLlama of 1.1 billion parameters.
    pub fn tiny_llama(vocab: usize, positions: usize) -> Self {
        Self {
            d_model: 2048,
            layers: 22,
            kv_heads: 4,
            d_ff: 5632,
            ..Self::llama_2_7b(vocab, positions)
        }
    }

    fn norm(&self, device: &Device) -> RmsNorm {
        RmsNormConfig::new(self.d_model)
            .with_epsilon(self.epsilon)
            .init(device)
    }

    fn linear(&self, from: usize, to: usize, device: &Device) -> Linear {
        LinearConfig::new(from, to).with_bias(false).init(device)
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Llama {
        // The scale of the reference: tied output scores are small at the start.
        let small = Initializer::Normal {
            mean: 0.0,
            std: 0.02,
        };
        Llama {
            words: EmbeddingConfig::new(self.vocab, self.d_model)
                .with_initializer(small)
                .init(device),
            rotary: RotaryEncodingConfig::new(self.positions, self.d_model / self.heads)
                .with_theta(self.theta)
                .init(device),
            layers: (0..self.layers).map(|_| self.block(device)).collect(),
            norm: self.norm(device),
            head: (!self.tied).then(|| self.linear(self.d_model, self.vocab, device)),
        }
    }

    fn block(&self, device: &Device) -> Block {
        let kv_width = self.d_model / self.heads * self.kv_heads;
        Block {
            norm_1: self.norm(device),
            query: self.linear(self.d_model, self.d_model, device),
            key: self.linear(self.d_model, kv_width, device),
            value: self.linear(self.d_model, kv_width, device),
            output: self.linear(self.d_model, self.d_model, device),
            dropout: DropoutConfig::new(self.dropout).init(),
            norm_2: self.norm(device),
            gate_up: SwiGluConfig::new(self.d_model, self.d_ff).init(device),
            down: self.linear(self.d_ff, self.d_model, device),
            heads: self.heads,
            kv_heads: self.kv_heads,
        }
    }
}

/// A decoder-only language model with rotary positions and gated feed-forward blocks.
#[derive(Module, Debug)]
pub(crate) struct Llama {
    words: Embedding,
    rotary: RotaryEncoding,
    layers: Vec<Block>,
    norm: RmsNorm,
    head: Option<Linear>,
}

impl Llama {
    /// Scores `[batch * seq, vocab]` of the words that follow each of `words: [batch, seq]`.
    pub fn forward(&self, words: Tensor<2, Int>) -> Tensor<2> {
        let [_, seq] = words.dims();
        let future = causal_mask(seq, &words.device());
        let mut x = self.words.forward(words);
        for layer in &self.layers {
            x = layer.forward(x, &self.rotary, future.clone());
        }
        let x = self.norm.forward(x).flatten(0, 1);
        match &self.head {
            Some(head) => head.forward(x),
            None => tied_scores(x, &self.words),
        }
    }
}

/// Attention and gated feed-forward block, each after a normalisation.
#[derive(Module, Debug)]
struct Block {
    norm_1: RmsNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    dropout: Dropout,
    norm_2: RmsNorm,
    gate_up: SwiGlu,
    down: Linear,
    heads: usize,
    kv_heads: usize,
}

impl Block {
    /// `[batch, seq, d_model]` from `x` of the same shape; `future` is the mask of
    /// [`causal_mask`].
    fn forward(&self, x: Tensor<3>, rotary: &RotaryEncoding, future: Tensor<4, Bool>) -> Tensor<3> {
        let x = x.clone() + self.attend(self.norm_1.forward(x), rotary, future);
        let inner = self.gate_up.forward(self.norm_2.forward(x.clone()));
        x + self.down.forward(inner)
    }

    fn attend(&self, x: Tensor<3>, rotary: &RotaryEncoding, future: Tensor<4, Bool>) -> Tensor<3> {
        let query = split_heads(self.query.forward(x.clone()), self.heads);
        let key = split_heads(self.key.forward(x.clone()), self.kv_heads);
        let value = split_heads(self.value.forward(x), self.kv_heads);
        let heads = [
            rotary.forward(query),
            self.for_each_query(rotary.forward(key)),
            self.for_each_query(value),
        ];
        self.output
            .forward(join_heads(attend(heads, Some(future), &self.dropout)))
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

/// Trains the network that `config` describes to predict the next words.
pub(crate) fn train_on<O: Observer>(
    config: &LlamaConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let network = config.init(device);
    language_model(network, job, device, steps, observer, Llama::forward)
}

impl Network for Llama {
    const OUTPUT_LAYERS: &'static [&'static str] = &["head"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let llama = Variant {
            name: "llama-2-7b",
            family: "Llama",
            file,
            paper: "Touvron et al. 2023, Llama 2: Open Foundation and Fine-Tuned Chat Models, arXiv 2307.09288",
            reference: "transformers LlamaForCausalLM",
            counts: Counts {
                trainable: 6_738_415_616,
                tensors: 291,
                buffers: 0,
            },
            input: Input {
                seq: Some(4096),
                vocab: Some(32_000),
                ..Input::default()
            },
            batch: 1,
            optimizer: OptimizerKind::AdamW,
            recipe: "Language modelling on sequences of 4,096 tokens, AdamW; the published batch is divided among many cards, here one sequence",
            differences: &[
                "attention scores are computed as a tensor; burn has no fused attention that can be differentiated",
                "the rotary encoding turns pairs of neighbouring channels, as Meta's own code does and transformers' does not, and makes a tensor twice as large as the queries, freed at once",
                "gradient clipping and weight decay are left out: they need no memory that outlives an operation",
            ],
        };
        let tiny_llama = Variant {
            name: "tinyllama-1.1b",
            paper: "Zhang, Zeng, Wang, Lu 2024, TinyLlama: An Open-Source Small Language Model, arXiv 2401.02385",
            counts: Counts {
                trainable: 1_100_048_384,
                tensors: 201,
                buffers: 0,
            },
            input: Input {
                seq: Some(2048),
                ..llama.input
            },
            recipe: "Language modelling on sequences of 2,048 tokens, AdamW; the published batch is divided among many cards, here one sequence",
            ..llama.clone()
        };
        vec![tiny_llama, llama]
    }

    fn check(_variant: &Variant, _job: &Job) -> Result<(), Error> {
        // The network computes rotations for as many positions as the sequence has.
        Ok(())
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "llama-2-7b" => LlamaConfig::llama_2_7b(job.vocab(), job.seq()),
            "tinyllama-1.1b" => LlamaConfig::tiny_llama(job.vocab(), job.seq()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tokens::words;
    use crate::{Request, test_support};

    fn tiny() -> LlamaConfig {
        LlamaConfig {
            d_model: 16,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            d_ff: 32,
            ..LlamaConfig::tiny_llama(50, 8)
        }
    }

    #[test]
    fn each_word_has_scores() {
        let device = test_support::flex();
        let scores = tiny().init(&device).forward(words(2, 8, &device));
        assert_eq!(scores.dims(), [16, 50]);
    }

    #[test]
    fn a_tied_output_layer_costs_no_parameters() {
        let device = test_support::flex();
        let tied = LlamaConfig {
            tied: true,
            ..tiny()
        };
        let (network, untied) = (tied.init(&device), tiny().init(&device));
        assert_eq!(untied.num_params() - network.num_params(), 16 * 50);
        assert_eq!(network.forward(words(2, 8, &device)).dims(), [16, 50]);
    }

    #[test]
    fn dropout_is_on_the_attention_weights() {
        let device = test_support::flex();
        for dropout in [0.0, 0.1] {
            let config = LlamaConfig { dropout, ..tiny() };
            assert_eq!(config.block(&device).dropout.prob, dropout);
        }
    }

    /// Query heads 0 and 1 share the first key head, 2 and 3 the second.
    #[test]
    fn neighbouring_queries_share_a_key() {
        let device = test_support::flex();
        let block = tiny().block(&device);
        let keys = Tensor::<1, Int>::arange(0..2, &device)
            .float()
            .reshape([1, 2, 1, 1]);
        let shared = block.for_each_query(keys).into_data();
        shared.assert_eq(
            &Tensor::<4>::from_data([[[[0.0]], [[0.0]], [[1.0]], [[1.0]]]], &device).into_data(),
            true,
        );
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(2),
            input: Input {
                seq: Some(8),
                ..Input::default()
            },
            ..Request::default()
        };
        test_support::assert_loss_decreases(
            "tinyllama-1.1b",
            &request,
            |job, device, _, losses| train_on(&tiny(), job, device, 4, losses),
        );
    }
}
