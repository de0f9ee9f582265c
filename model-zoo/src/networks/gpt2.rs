//! GPT-2, a decoder-only language model. See `variants` for paper, reference and differences.

use burn::module::Module;
use burn::nn::activation::ActivationConfig;
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, LayerNorm};
use burn::tensor::{Device, Int, Tensor};

use super::Network;
use crate::blocks::attention::causal_mask;
use crate::blocks::pre_norm::{PreNormConfig, PreNormLayer};
use crate::blocks::text_steps::language_model;
use crate::blocks::tokens::{check_positions, positions, tied_scores};
use crate::{Counts, Error, Input, InputSize, Job, Observer, OptimizerKind, Variant};

/// The configuration of a [`Gpt2`]; the fields are those of a `config.json`.
#[derive(Clone, Debug)]
pub(crate) struct Gpt2Config {
    /// Words in the vocabulary: 50,257.
    pub vocab: usize,
    /// Learned positions, which limit the length of a sequence: 1,024.
    pub positions: usize,
    /// Width of the model.
    pub d_model: usize,
    /// Layers.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of the feed-forward block's hidden layer: four times the model's.
    pub d_ff: usize,
    /// Dropout on embeddings, attention weights and residual branches: 0.1.
    pub dropout: f64,
    /// Epsilon of the normalisations: 1e-5.
    pub epsilon: f64,
    /// Activation of the feed-forward block: GELU in its tanh form.
    pub activation: ActivationConfig,
}

impl Gpt2Config {
    /// The published network called `name`.
    fn published(name: &str, vocab: usize) -> Self {
        let (d_model, layers, heads) = match name {
            "gpt2" => (768, 12, 12),
            "gpt2-medium" => (1024, 24, 16),
            "gpt2-large" => (1280, 36, 20),
            "gpt2-xl" => (1600, 48, 25),
            other => unreachable!("{other} is not a variant of this file"),
        };
        Self {
            vocab,
            positions: 1024,
            d_model,
            layers,
            heads,
            d_ff: 4 * d_model,
            dropout: 0.1,
            epsilon: 1e-5,
            activation: ActivationConfig::GeluApproximate,
        }
    }

    fn layer(&self) -> PreNormConfig {
        PreNormConfig {
            d_model: self.d_model,
            heads: self.heads,
            d_ff: self.d_ff,
            dropout: self.dropout,
            epsilon: self.epsilon,
            activation: self.activation.clone(),
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Gpt2 {
        let layer = self.layer();
        let table = |rows| {
            // The scale of the reference: output scores are small at the start.
            EmbeddingConfig::new(rows, self.d_model)
                .with_initializer(Initializer::Normal {
                    mean: 0.0,
                    std: 0.02,
                })
                .init(device)
        };
        Gpt2 {
            wte: table(self.vocab),
            wpe: table(self.positions),
            dropout: DropoutConfig::new(self.dropout).init(),
            layers: (0..self.layers).map(|_| layer.init(device)).collect(),
            norm: layer.norm(device),
        }
    }
}

/// A decoder-only language model whose embedding table is its output layer too.
#[derive(Module, Debug)]
pub(crate) struct Gpt2 {
    wte: Embedding,
    wpe: Embedding,
    dropout: Dropout,
    layers: Vec<PreNormLayer>,
    norm: LayerNorm,
}

impl Gpt2 {
    /// Scores `[batch * seq, vocab]` of the words that follow each of `words: [batch, seq]`.
    pub fn forward(&self, words: Tensor<2, Int>) -> Tensor<2> {
        let (device, [_, seq]) = (words.device(), words.dims());
        let x = self.wte.forward(words) + self.wpe.forward(positions(seq, &device));
        let mut x = self.dropout.forward(x);
        let future = causal_mask(seq, &device);
        for layer in &self.layers {
            x = layer.forward(x, Some(future.clone()));
        }
        tied_scores(self.norm.forward(x).flatten(0, 1), &self.wte)
    }
}

/// Trains the network that `config` describes to predict the next words.
pub(crate) fn train_on<O: Observer>(
    config: &Gpt2Config,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let network = config.init(device);
    language_model(network, job, device, steps, observer, Gpt2::forward)
}

impl Network for Gpt2 {
    fn variants(file: &'static str) -> Vec<Variant> {
        let variant = |name, trainable, tensors| Variant {
            name,
            family: "GPT-2",
            file,
            paper: "Radford, Wu, Child, Luan, Amodei, Sutskever 2019, Language Models are Unsupervised Multitask Learners",
            reference: "openai/gpt-2 src/model.py; transformers GPT2LMHeadModel",
            counts: Counts {
                trainable,
                tensors,
                buffers: 0,
            },
            input: Input {
                seq: Some(1024),
                vocab: Some(50_257),
                ..Input::default()
            },
            batch: 1,
            optimizer: OptimizerKind::AdamW,
            recipe: "Language modelling on sequences of 1,024 tokens, AdamW, dropout 0.1; the batch of 0.5 M tokens is accumulated from as many sequences as a card holds, here one",
            differences: &[
                "gradient clipping and weight decay are left out: they need no memory that outlives an operation",
            ],
        };
        vec![
            variant("gpt2", 124_439_808, 148),
            variant("gpt2-medium", 354_823_168, 292),
            variant("gpt2-large", 774_030_080, 436),
            variant("gpt2-xl", 1_557_611_200, 580),
        ]
    }

    fn check(variant: &Variant, job: &Job) -> Result<(), Error> {
        let config = Gpt2Config::published(variant.name, job.vocab());
        check_positions(InputSize::Seq, job.seq(), config.positions)
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = Gpt2Config::published(variant.name, job.vocab());
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tokens::words;
    use crate::{Request, test_support};

    fn tiny() -> Gpt2Config {
        Gpt2Config {
            positions: 8,
            d_model: 16,
            layers: 2,
            heads: 2,
            d_ff: 64,
            ..Gpt2Config::published("gpt2", 50)
        }
    }

    #[test]
    fn each_word_has_scores() {
        let device = test_support::flex();
        let scores = tiny().init(&device).forward(words(2, 8, &device));
        assert_eq!(scores.dims(), [16, 50]);
    }

    /// A later word does not change the scores of the words before it.
    #[test]
    fn the_future_is_hidden() {
        let device = test_support::flex();
        let network = tiny().init(&device);
        let scores = |words: [[i64; 3]; 1]| {
            let scores = network.forward(Tensor::from_data(words, &device));
            scores.narrow(0, 0, 2).into_data()
        };
        scores([[1, 2, 3]]).assert_eq(&scores([[1, 2, 4]]), true);
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
        test_support::assert_loss_decreases("gpt2", &request, |job, device, _, losses| {
            train_on(&tiny(), job, device, 4, losses)
        });
    }

    #[test]
    fn a_sequence_longer_than_the_positions_is_refused() {
        test_support::longest("gpt2", 1024);
    }
}
