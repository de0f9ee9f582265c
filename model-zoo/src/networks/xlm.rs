//! XLM, trained to translate without parallel texts. One round is four optimizer steps: denoising
//! of each language, then back-translation in each direction. See `variants` for paper, reference
//! and differences.

use burn::module::{Module, Param};
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{
    TransformerDecoder, TransformerDecoderConfig, TransformerDecoderInput, TransformerEncoder,
    TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, LayerNorm, LayerNormConfig,
};
use burn::tensor::{Device, Int, Tensor};

use super::Network;
use crate::blocks::cross_entropy;
use crate::blocks::tokens::{positions, tied_scores, words};
use crate::blocks::transformer::{decoder, encoder};
use crate::{
    Counts, Error, Input, InputSize, Job, Observer, OptimizerKind, Phase, Trainer, Variant,
};

/// The configuration of an [`Xlm`].
#[derive(Clone, Debug)]
pub(crate) struct XlmConfig {
    /// Words in the vocabulary of both languages: 64,139.
    pub vocab: usize,
    /// Languages: 2.
    pub languages: usize,
    /// Learned positions, which limit the length of a sequence: 512.
    pub positions: usize,
    /// Width of the model: 1,024.
    pub d_model: usize,
    /// Layers of the encoder and of the decoder: 6.
    pub layers: usize,
    /// Attention heads: 8.
    pub heads: usize,
    /// Width of the feed-forward block's hidden layer: 4,096.
    pub d_ff: usize,
    /// Dropout on embeddings, attention weights and residual branches: 0.1.
    pub dropout: f64,
    /// Epsilon of the normalisations: 1e-12.
    pub epsilon: f64,
}

impl XlmConfig {
    /// The published English-French model.
    pub fn new(vocab: usize) -> Self {
        Self {
            vocab,
            languages: 2,
            positions: 512,
            d_model: 1024,
            layers: 6,
            heads: 8,
            d_ff: 4096,
            dropout: 0.1,
            epsilon: 1e-12,
        }
    }

    /// A network for sentences of 8 words.
    fn tiny(vocab: usize) -> Self {
        Self {
            positions: 16,
            d_model: 16,
            layers: 2,
            heads: 2,
            d_ff: 32,
            ..Self::new(vocab)
        }
    }

    fn embed(&self, device: &Device) -> Embed {
        let table = |rows| {
            // The scale of the reference: output scores are small at the start.
            EmbeddingConfig::new(rows, self.d_model)
                .with_initializer(Initializer::Normal {
                    mean: 0.0,
                    std: (self.d_model as f64).powf(-0.5),
                })
                .init(device)
        };
        Embed {
            words: table(self.vocab),
            positions: table(self.positions),
            languages: table(self.languages),
            norm: LayerNormConfig::new(self.d_model)
                .with_epsilon(self.epsilon)
                .init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            bias: Initializer::Zeros.init([self.vocab], device),
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Xlm {
        let Self {
            d_model,
            d_ff,
            heads,
            layers,
            ..
        } = *self;
        let encoding = TransformerEncoderConfig::new(d_model, d_ff, heads, layers)
            .with_dropout(self.dropout)
            .with_layer_norm_eps(self.epsilon);
        let decoding = TransformerDecoderConfig::new(d_model, d_ff, heads, layers)
            .with_dropout(self.dropout)
            .with_layer_norm_eps(self.epsilon);
        Xlm {
            source: self.embed(device),
            encoder: encoder(&encoding, device),
            target: self.embed(device),
            decoder: decoder(&decoding, device),
        }
    }
}

/// An encoder and a decoder, each with its own embedding tables.
#[derive(Module, Debug)]
pub(crate) struct Xlm {
    source: Embed,
    encoder: TransformerEncoder,
    target: Embed,
    decoder: TransformerDecoder,
}

impl Xlm {
    /// Hidden states `[batch, seq, d_model]` of the words that follow each of `previous: [batch,
    /// seq]` in the language `to`, for `source: [batch, src_seq]` in the language `from`.
    fn forward(
        &self,
        (source, from): (Tensor<2, Int>, usize),
        (previous, to): (Tensor<2, Int>, usize),
    ) -> Tensor<3> {
        let [batch, seq] = previous.dims();
        let future = generate_autoregressive_mask(batch, seq, &previous.device());
        let source = self.source.forward(source, from);
        let encoded = self.encoder.forward(TransformerEncoderInput::new(source));
        let target = self.target.forward(previous, to);
        let input = TransformerDecoderInput::new(target, encoded).target_mask_attn(future);
        self.decoder.forward(input)
    }

    /// The loss `[1]` of `sentence: [batch, seq]` as the translation of `source: [batch, src_seq]`;
    /// each comes with its language.
    fn loss(
        &self,
        source: (Tensor<2, Int>, usize),
        sentence: (Tensor<2, Int>, usize),
    ) -> Tensor<1> {
        let next = sentence.0.clone().flatten(0, 1);
        let hidden = self.forward(source, sentence);
        cross_entropy(self.target.scores(hidden.flatten(0, 1)), next)
    }

    /// A translation `[batch, length]` of `source: [batch, src_seq]` to the language `to`, without
    /// gradients and dropout.
    fn translate(
        &self,
        source: (Tensor<2, Int>, usize),
        to: usize,
        length: usize,
    ) -> Tensor<2, Int> {
        let network = self.valid();
        let (source, from) = (source.0.inner(), source.1);
        let [batch, _] = source.dims();
        let previous = words(batch, length, &source.device());
        let hidden = network.forward((source, from), (previous, to));
        // As in one step of the reference: the scores of one word of each sentence.
        let last = hidden.narrow(1, length - 1, 1).squeeze_dim(1);
        let chosen = network.target.scores(last).argmax(1);
        chosen.expand([batch, length])
    }
}

/// The embeddings of words, positions and languages; that of words is the output layer too.
#[derive(Module, Debug)]
struct Embed {
    words: Embedding,
    positions: Embedding,
    languages: Embedding,
    norm: LayerNorm,
    dropout: Dropout,
    bias: Param<Tensor<1>>,
}

impl Embed {
    /// `[batch, seq, d_model]` from `words: [batch, seq]` of `language`.
    fn forward(&self, words: Tensor<2, Int>, language: usize) -> Tensor<3> {
        let (shape, device) = (words.dims(), words.device());
        let languages = Tensor::full(shape, language as i64, &device);
        let x = self.words.forward(words)
            + self.positions.forward(positions(shape[1], &device))
            + self.languages.forward(languages);
        self.dropout.forward(self.norm.forward(x))
    }

    /// Scores `[tokens, vocab]` of `hidden: [tokens, d_model]`.
    fn scores(&self, hidden: Tensor<2>) -> Tensor<2> {
        tied_scores(hidden, &self.words) + self.bias.val().unsqueeze()
    }
}

/// Most words of the translation of `length` words: `int(1.3 * length + 5)` of the reference.
fn translated(length: usize) -> usize {
    length * 13 / 10 + 5
}

fn train_on<O: Observer>(
    config: &XlmConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    let noisy_and_clean = |device: &Device| (words(batch, seq, device), words(batch, seq, device));
    let sentences = |device: &Device| (words(batch, seq, device),);

    let mut trainer = Trainer::new(config.init(device), job);
    observer.module("", trainer.module());
    observer.end(Phase::Init)?;
    for _ in 0..steps {
        for language in 0..config.languages {
            let denoise =
                |network: &Xlm, (noisy, clean)| network.loss((noisy, language), (clean, language));
            trainer = trainer.train(job, device, observer, noisy_and_clean, denoise)?;
        }
        for language in 0..config.languages {
            let other = (language + 1) % config.languages;
            let translate_back = |network: &Xlm, (sentence,): (Tensor<2, Int>,)| {
                let there = (sentence.clone(), language);
                let translation = network.translate(there, other, translated(seq));
                network.loss((translation, other), (sentence, language))
            };
            trainer = trainer.train(job, device, observer, sentences, translate_back)?;
        }
        observer.step_ends()?;
    }
    Ok(())
}

impl Network for Xlm {
    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "xlm-mt-en-fr",
            family: "XLM",
            file,
            paper: "Lample, Conneau 2019, Cross-lingual Language Model Pretraining, arXiv 1901.07291",
            reference: "facebookresearch/XLM xlm/model/transformer.py, xlm/trainer.py",
            counts: Counts {
                // Encoder 141,848,203 in 102, decoder 167,050,891 in 162.
                trainable: 308_899_094,
                tensors: 264,
                buffers: 0,
            },
            input: Input {
                seq: Some(62),
                vocab: Some(64_139),
                ..Input::default()
            },
            batch: 32,
            optimizer: OptimizerKind::Adam,
            recipe: "Unsupervised English-French translation; denoising of each language and back-translation in each direction, an optimizer step each, 32 sentences of about 2,000 tokens, Adam, dropout 0.1",
            differences: &[
                "all four steps have --batch sentences of --seq tokens; the reference counts batches in tokens (2,000) and its noise drops 10 % of the words",
                "the translation that back-translation starts from is one pass at its full length instead of one word after the other; the keys and values that the reference keeps meanwhile, 230 MB at these sizes while no activations are alive, are left out",
                "the bias of the encoder's output layer, 64,139 values, gets no gradient, and so no optimizer state here; the reference makes 0.5 MB of it at the start",
                "gradient clipping is left out: it needs no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        let (seq, positions) = (job.seq(), XlmConfig::new(job.vocab()).positions);
        if translated(seq) <= positions {
            return Ok(());
        }
        Err(Error::Size {
            what: InputSize::Seq.into(),
            must: format!(
                "short enough that 1.3 times it and 5 are at most {positions}, since a translation of it has positions too"
            ),
            got: seq.to_string(),
        })
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "xlm-mt-en-fr" => XlmConfig::new(job.vocab()),
            "xlm-mini" => XlmConfig::tiny(job.vocab()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    /// Expected: the counts of the reference, each side with its output bias.
    #[test]
    fn both_sides_have_the_published_counts() {
        let Xlm {
            source,
            encoder,
            target,
            decoder,
        } = XlmConfig::new(64_139).init(&test_support::flex());
        let both = |(a, b), (c, d)| (a + c, b + d);
        let (source, encoder) = (
            test_support::parameters(&source),
            test_support::parameters(&encoder),
        );
        assert_eq!(both(source, encoder), (141_848_203, 102));
        let (target, decoder) = (
            test_support::parameters(&target),
            test_support::parameters(&decoder),
        );
        assert_eq!(both(target, decoder), (167_050_891, 162));
    }

    #[test]
    fn a_translation_has_its_full_length() {
        let device = test_support::flex().autodiff();
        let network = XlmConfig::tiny(40).init(&device);
        let translation = network.translate((words(3, 8, &device), 0), 1, 12);
        assert_eq!(translation.dims(), [3, 12]);
    }

    #[test]
    fn a_sentence_whose_translation_has_no_position_is_refused() {
        test_support::longest("xlm-mt-en-fr", 390);
    }
}
