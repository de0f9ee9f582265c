//! The Transformer, base and big, for translation. The normalisations follow the residual sums,
//! none follows the stacks, and source, target and output share one embedding table. See `variants`
//! for paper, reference and differences.

use burn::module::Module;
use burn::nn::activation::ActivationConfig;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{
    TransformerDecoder, TransformerDecoderConfig, TransformerDecoderInput, TransformerEncoder,
    TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, PositionalEncoding,
    PositionalEncodingConfig,
};
use burn::tensor::{Device, Int, Tensor};

use super::Network;
use crate::blocks::text_steps::{PAD, translation};
use crate::blocks::tokens::{check_positions, tied_scores};
use crate::blocks::transformer::{decoder, encoder};
use crate::{Counts, Error, Input, InputSize, Job, Observer, OptimizerKind, Variant};

/// Positions that the network accepts: the largest wavelength of the paper's sinusoids.
const POSITIONS: usize = 10_000;

/// The configuration of a [`Transformer`].
#[derive(Clone, Debug)]
pub(crate) struct TransformerConfig {
    /// Words in the vocabulary that both languages share: 32,768.
    pub vocab: usize,
    /// Width of the model: 512 or 1024.
    pub d_model: usize,
    /// Width of the feed-forward block's hidden layer: 2048 or 4096.
    pub d_ff: usize,
    /// Attention heads: 8 or 16.
    pub heads: usize,
    /// Layers of the encoder and of the decoder: 6.
    pub layers: usize,
    /// Dropout on embeddings, attention weights and residual branches: 0.1 or 0.3.
    pub dropout: f64,
    /// Tokens of the longest sentence: the network computes sinusoids for as many.
    pub longest: usize,
}

impl TransformerConfig {
    /// The base model of table 3.
    pub fn base(vocab: usize, longest: usize) -> Self {
        Self {
            vocab,
            d_model: 512,
            d_ff: 2048,
            heads: 8,
            layers: 6,
            dropout: 0.1,
            longest,
        }
    }

    fn tiny(vocab: usize, longest: usize) -> Self {
        Self {
            d_model: 16,
            d_ff: 32,
            heads: 2,
            layers: 2,
            ..Self::base(vocab, longest)
        }
    }

    /// The big model of table 3.
    pub fn big(vocab: usize, longest: usize) -> Self {
        Self {
            d_model: 1024,
            d_ff: 4096,
            heads: 16,
            dropout: 0.3,
            ..Self::base(vocab, longest)
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Transformer {
        let Self {
            d_model,
            d_ff,
            heads,
            layers,
            dropout,
            ..
        } = *self;
        let encoding = TransformerEncoderConfig::new(d_model, d_ff, heads, layers)
            .with_dropout(dropout)
            .with_activation(ActivationConfig::Relu);
        let decoding = TransformerDecoderConfig::new(d_model, d_ff, heads, layers)
            .with_dropout(dropout)
            .with_activation(ActivationConfig::Relu);
        Transformer {
            // The scale of tensor2tensor: output scores are small at the start.
            words: EmbeddingConfig::new(self.vocab, d_model)
                .with_initializer(Initializer::Normal {
                    mean: 0.0,
                    std: (d_model as f64).powf(-0.5),
                })
                .init(device),
            positions: PositionalEncodingConfig::new(d_model)
                .with_max_sequence_size(self.longest)
                .init(device),
            dropout: DropoutConfig::new(dropout).init(),
            encoder: encoder(&encoding, device),
            decoder: decoder(&decoding, device),
        }
    }
}

/// An encoder and a decoder with one embedding table, which is the output layer too.
#[derive(Module, Debug)]
pub(crate) struct Transformer {
    words: Embedding,
    positions: PositionalEncoding,
    dropout: Dropout,
    encoder: TransformerEncoder,
    decoder: TransformerDecoder,
}

impl Transformer {
    /// Scores `[batch * seq, vocab]` of the next words, from `source: [batch, src_seq]` and the
    /// previous words of the target, `previous: [batch, seq]`.
    pub fn forward(&self, source: Tensor<2, Int>, previous: Tensor<2, Int>) -> Tensor<2> {
        let source_padding = source.clone().equal_elem(PAD as i64);
        let target_padding = previous.clone().equal_elem(PAD as i64);
        let [batch, seq] = previous.dims();
        let future = generate_autoregressive_mask(batch, seq, &previous.device());

        let encoded = self.encoder.forward(
            TransformerEncoderInput::new(self.embed(source)).mask_pad(source_padding.clone()),
        );
        let decoded = self.decoder.forward(
            TransformerDecoderInput::new(self.embed(previous), encoded)
                .memory_mask_pad(source_padding)
                .target_mask_pad(target_padding)
                .target_mask_attn(future),
        );
        tied_scores(decoded.flatten(0, 1), &self.words)
    }

    /// `[batch, seq, d_model]` from the word ids `words: [batch, seq]`.
    fn embed(&self, words: Tensor<2, Int>) -> Tensor<3> {
        let x = self.words.forward(words);
        let [_, _, d_model] = x.dims();
        let scaled = x * (d_model as f64).sqrt();
        self.dropout.forward(self.positions.forward(scaled))
    }
}

fn train_on<O: Observer>(
    config: &TransformerConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let network = config.init(device);
    translation(network, job, device, steps, observer, Transformer::forward)
}

impl Network for Transformer {
    fn variants(file: &'static str) -> Vec<Variant> {
        let variant = |name, trainable, recipe| Variant {
            name,
            family: "Transformer",
            file,
            paper: "Vaswani et al. 2017, Attention Is All You Need, arXiv 1706.03762",
            reference: "tensorflow/tensor2tensor models/transformer.py; fairseq, torch.nn.Transformer (attention biases)",
            counts: Counts {
                trainable,
                tensors: 253,
                buffers: 0,
            },
            input: Input {
                seq: Some(32),
                src_seq: Some(32),
                vocab: Some(32_768),
                ..Input::default()
            },
            batch: 98,
            optimizer: OptimizerKind::Adam,
            recipe,
            differences: &[
                "batches are sentences of one length instead of about 3,100 source and 3,100 target tokens: 98 of 32 tokens",
                "burn's label smoothing keeps the smoothed targets, one more tensor of the size of the scores; fairseq computes the same from two sums",
                "gradient clipping is left out: it needs no memory that outlives an operation",
            ],
        };
        vec![
            variant(
                "transformer-base",
                60_915_712,
                "WMT 2014 translation, about 3,100 source and 3,100 target tokens a card (25,000 on 8), label smoothing 0.1, dropout 0.1, Adam",
            ),
            variant(
                "transformer-big",
                209_911_808,
                "WMT 2014 translation, about 3,100 source and 3,100 target tokens a card (25,000 on 8), label smoothing 0.1, dropout 0.3, Adam",
            ),
        ]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        check_positions(InputSize::Seq, job.seq(), POSITIONS)?;
        check_positions(InputSize::SrcSeq, job.src_seq(), POSITIONS)
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let longest = job.seq().max(job.src_seq());
        let config = match variant.name {
            "transformer-base" => TransformerConfig::base(job.vocab(), longest),
            "transformer-big" => TransformerConfig::big(job.vocab(), longest),
            "transformer-mini" => TransformerConfig::tiny(job.vocab(), longest),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tokens::words;
    use crate::test_support;

    #[test]
    fn each_target_word_has_scores() {
        let device = test_support::flex();
        let scores = TransformerConfig::tiny(40, 7)
            .init(&device)
            .forward(words(2, 7, &device), words(2, 5, &device));
        assert_eq!(scores.dims(), [10, 40]);
    }
}
