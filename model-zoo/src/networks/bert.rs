//! BERT with its heads: classification of a text or of each word, answers as spans, masked words, and
//! pre-training. See `variants` for paper, reference and differences.
//!
//! The file is long because a network is one file: its modules, its training steps and its published
//! sizes.

use burn::module::{Module, Param};
use burn::nn::activation::ActivationConfig;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, LayerNorm, LayerNormConfig,
    Linear, LinearConfig,
};
use burn::tensor::activation::gelu;
use burn::tensor::{Bool, Device, Int, Tensor, s};

use super::Network;
use crate::blocks::cross_entropy;
use crate::blocks::tokens::{check_positions, positions, tied_scores, words};
use crate::blocks::transformer::encoder;
use crate::{Counts, Error, Input, InputSize, Job, Observer, OptimizerKind, Variant, supervised};

/// The configuration of a BERT; the fields are those of a `config.json`.
#[derive(Clone, Debug)]
pub struct BertConfig {
    /// Words in the vocabulary: 30,522 (uncased English).
    pub vocab: usize,
    /// Width of the model.
    pub d_model: usize,
    /// Encoder layers.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of the feed-forward block's hidden layer.
    pub d_ff: usize,
    /// Learned positions, which limit the length of a sequence: 512.
    pub positions: usize,
    /// Positions at the beginning of their table that no word has; those of RoBERTa's padding word
    /// and before: none.
    pub reserved: usize,
    /// Segments; none if the network has no table of them, as DistilBERT: 2.
    pub segments: Option<usize>,
    /// Dropout on embeddings, attention weights and residual branches: 0.1.
    pub dropout: f64,
    /// Epsilon of the normalisations: 1e-12.
    pub epsilon: f64,
    /// Activation of the feed-forward block: exact GELU.
    pub activation: ActivationConfig,
}

impl BertConfig {
    /// BERT base.
    pub fn base(vocab: usize) -> Self {
        Self {
            vocab,
            d_model: 768,
            layers: 12,
            heads: 12,
            d_ff: 3072,
            positions: 512,
            reserved: 0,
            segments: Some(2),
            dropout: 0.1,
            epsilon: 1e-12,
            activation: ActivationConfig::Gelu,
        }
    }

    /// BERT large.
    pub fn large(vocab: usize) -> Self {
        Self {
            d_model: 1024,
            layers: 24,
            heads: 16,
            d_ff: 4096,
            ..Self::base(vocab)
        }
    }

    /// The longest sequence.
    pub(crate) fn longest(&self) -> usize {
        self.positions - self.reserved
    }

    fn norm(&self, device: &Device) -> LayerNorm {
        LayerNormConfig::new(self.d_model)
            .with_epsilon(self.epsilon)
            .init(device)
    }

    /// The encoder and its pooler on `device`.
    pub(crate) fn init(&self, device: &Device) -> Bert {
        let pooler = LinearConfig::new(self.d_model, self.d_model).init(device);
        Bert {
            pooler: Some(pooler),
            ..self.encoder(device)
        }
    }

    /// The encoder without a pooler, for heads that use the hidden states of all words.
    fn encoder(&self, device: &Device) -> Bert {
        let table = |rows| EmbeddingConfig::new(rows, self.d_model).init(device);
        let layers =
            TransformerEncoderConfig::new(self.d_model, self.d_ff, self.heads, self.layers)
                .with_dropout(self.dropout)
                .with_activation(self.activation.clone())
                .with_layer_norm_eps(self.epsilon);
        Bert {
            word: table(self.vocab),
            position: table(self.positions),
            segment: self.segments.map(table),
            norm: self.norm(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            encoder: encoder(&layers, device),
            pooler: None,
        }
    }

    /// The network with a classifier of `classes` on its pooled output.
    pub(crate) fn classifier(&self, classes: usize, device: &Device) -> Classifier {
        Classifier {
            bert: self.init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            classifier: LinearConfig::new(self.d_model, classes).init(device),
        }
    }

    /// The network with a classifier of `classes` on each word.
    fn word_classifier(&self, classes: usize, device: &Device) -> WordClassifier {
        WordClassifier {
            bert: self.encoder(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            word_classifier: LinearConfig::new(self.d_model, classes).init(device),
        }
    }

    /// The network with a score for each word to be the first and the last of an answer.
    fn answers(&self, device: &Device) -> Answers {
        Answers {
            bert: self.encoder(device),
            span: LinearConfig::new(self.d_model, 2).init(device),
        }
    }

    /// The network with its masked-word head.
    fn masked_words(&self, device: &Device) -> Pretraining {
        Pretraining {
            bert: self.encoder(device),
            transform: LinearConfig::new(self.d_model, self.d_model).init(device),
            norm: self.norm(device),
            bias: Initializer::Zeros.init([self.vocab], device),
            next_sentence: None,
        }
    }

    /// The network with both heads of its pre-training.
    pub(crate) fn pretraining(&self, device: &Device) -> Pretraining {
        Pretraining {
            bert: self.init(device),
            next_sentence: Some(LinearConfig::new(self.d_model, 2).init(device)),
            ..self.masked_words(device)
        }
    }
}

/// The encoder, and its pooler if the head needs one.
#[derive(Module, Debug)]
pub(crate) struct Bert {
    word: Embedding,
    position: Embedding,
    segment: Option<Embedding>,
    norm: LayerNorm,
    dropout: Dropout,
    encoder: TransformerEncoder,
    pooler: Option<Linear>,
}

impl Bert {
    /// Hidden states `[batch, seq, d_model]` of `words`, `segments` and `padding`, which is true
    /// where there is no word, each `[batch, seq]`.
    pub fn forward(
        &self,
        words: Tensor<2, Int>,
        segments: Tensor<2, Int>,
        padding: Tensor<2, Bool>,
    ) -> Tensor<3> {
        let [_, seq] = words.dims();
        let positions = positions(seq, &words.device());
        let x = self.word.forward(words);
        let x = match &self.segment {
            Some(segment) => x + segment.forward(segments),
            None => x,
        };
        let x = x + self.position.forward(positions);
        let x = self.dropout.forward(self.norm.forward(x));
        let input = TransformerEncoderInput::new(x).mask_pad(padding);
        self.encoder.forward(input)
    }

    /// `[batch, d_model]` from the first token of `hidden: [batch, seq, d_model]`.
    pub fn pool(&self, hidden: Tensor<3>) -> Tensor<2> {
        let first = hidden.slice(s![.., 0..1, ..]).squeeze_dim(1);
        match &self.pooler {
            Some(pooler) => pooler.forward(first).tanh(),
            None => first,
        }
    }
}

/// BERT with a classifier on its pooled output.
#[derive(Module, Debug)]
pub(crate) struct Classifier {
    bert: Bert,
    dropout: Dropout,
    classifier: Linear,
}

impl Classifier {
    /// Class scores `[batch, classes]`; the arguments are those of [`Bert::forward`].
    pub fn forward(
        &self,
        words: Tensor<2, Int>,
        segments: Tensor<2, Int>,
        padding: Tensor<2, Bool>,
    ) -> Tensor<2> {
        let hidden = self.bert.forward(words, segments, padding);
        let pooled = self.dropout.forward(self.bert.pool(hidden));
        self.classifier.forward(pooled)
    }
}

/// BERT with a classifier on each word, for instance for names (`BertForTokenClassification`).
#[derive(Module, Debug)]
struct WordClassifier {
    bert: Bert,
    dropout: Dropout,
    word_classifier: Linear,
}

impl WordClassifier {
    /// Class scores `[batch * seq, classes]`; the arguments are those of [`Bert::forward`].
    fn forward(
        &self,
        words: Tensor<2, Int>,
        segments: Tensor<2, Int>,
        padding: Tensor<2, Bool>,
    ) -> Tensor<2> {
        let hidden = self.bert.forward(words, segments, padding);
        let scores = self.word_classifier.forward(self.dropout.forward(hidden));
        scores.flatten(0, 1)
    }
}

/// BERT that marks the answer to a question in a text (`BertForQuestionAnswering`).
#[derive(Module, Debug)]
struct Answers {
    bert: Bert,
    span: Linear,
}

impl Answers {
    /// Scores `[batch, seq]` of the first words of answers, and of their last words; the arguments
    /// are those of [`Bert::forward`].
    fn forward(
        &self,
        words: Tensor<2, Int>,
        segments: Tensor<2, Int>,
        padding: Tensor<2, Bool>,
    ) -> [Tensor<2>; 2] {
        let hidden = self.bert.forward(words, segments, padding);
        let scores = self.span.forward(hidden);
        [0, 1].map(|end| {
            scores
                .clone()
                .slice(s![.., .., end..end + 1])
                .squeeze_dim(2)
        })
    }
}

/// BERT with its masked-word head and, in pre-training, its next-sentence head.
#[derive(Module, Debug)]
pub(crate) struct Pretraining {
    bert: Bert,
    transform: Linear,
    norm: LayerNorm,
    bias: Param<Tensor<1>>,
    next_sentence: Option<Linear>,
}

impl Pretraining {
    /// Word scores `[masked, vocab]`, and next-sentence scores `[batch, 2]` if it has that head. `masked` has the
    /// indices of the masked words among all `batch * seq` words; the other arguments are those
    /// of [`Bert::forward`].
    pub fn forward(
        &self,
        words: Tensor<2, Int>,
        segments: Tensor<2, Int>,
        padding: Tensor<2, Bool>,
        masked: Tensor<1, Int>,
    ) -> (Tensor<2>, Option<Tensor<2>>) {
        let hidden = self.bert.forward(words, segments, padding);
        let head = self.next_sentence.as_ref();
        let next = head.map(|head| head.forward(self.bert.pool(hidden.clone())));
        let gathered = hidden.flatten::<2>(0, 1).select(0, masked);
        let gathered = self.norm.forward(gelu(self.transform.forward(gathered)));
        let scores = tied_scores(gathered, &self.bert.word) + self.bias.val().unsqueeze();
        (scores, next)
    }
}

/// Masked words of a sequence of `seq` words: 15 % (section 3.1 of the paper), which is the 20 of
/// 128 and the 77 of 512 words in `run_pretraining.py`.
fn masked_words(seq: usize) -> usize {
    (seq * 15).div_ceil(100)
}

/// Fine-tunes the network that `config` describes, published or not, to classify. The other
/// arguments are those of [`Network::train`].
///
/// # Errors
///
/// The error of the observer, if it stops the step.
pub fn train_classifier<O: Observer>(
    config: &BertConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    supervised(
        config.classifier(job.classes(), device),
        job,
        device,
        steps,
        observer,
        |device| {
            (
                words(batch, seq, device),
                words(batch, seq, device),
                Tensor::<2, Int>::zeros([batch, seq], device).bool(),
                Tensor::<1, Int>::zeros([batch], device),
            )
        },
        |network, (words, segments, padding, labels)| {
            cross_entropy(network.forward(words, segments, padding), labels)
        },
    )
}

/// Trains the network that `config` describes to classify each word.
pub(crate) fn train_word_classifier<O: Observer>(
    config: &BertConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    supervised(
        config.word_classifier(job.classes(), device),
        job,
        device,
        steps,
        observer,
        |device| {
            (
                words(batch, seq, device),
                words(batch, seq, device),
                Tensor::<2, Int>::zeros([batch, seq], device).bool(),
                Tensor::<2, Int>::zeros([batch, seq], device),
            )
        },
        |network, (words, segments, padding, labels)| {
            let scores = network.forward(words, segments, padding);
            cross_entropy(scores, labels.flatten(0, 1))
        },
    )
}

/// Trains the network that `config` describes to mark answers.
pub(crate) fn train_answers<O: Observer>(
    config: &BertConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    supervised(
        config.answers(device),
        job,
        device,
        steps,
        observer,
        |device| {
            (
                words(batch, seq, device),
                words(batch, seq, device),
                Tensor::<2, Int>::zeros([batch, seq], device).bool(),
                Tensor::<1, Int>::zeros([batch], device),
                Tensor::<1, Int>::zeros([batch], device),
            )
        },
        |network, (words, segments, padding, first, last)| {
            let [firsts, lasts] = network.forward(words, segments, padding);
            (cross_entropy(firsts, first) + cross_entropy(lasts, last)).div_scalar(2.0)
        },
    )
}

/// Pre-trains the network that `config` describes on masked words and next sentences.
pub(crate) fn train_pretraining<O: Observer>(
    config: &BertConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    train_on_masked_words(config.pretraining(device), job, device, steps, observer)
}

/// Trains the network that `config` describes on masked words alone.
pub(crate) fn train_masked_words<O: Observer>(
    config: &BertConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    train_on_masked_words(config.masked_words(device), job, device, steps, observer)
}

fn train_on_masked_words<O: Observer>(
    network: Pretraining,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    let masked = batch * masked_words(seq);
    supervised(
        network,
        job,
        device,
        steps,
        observer,
        |device| {
            (
                words(batch, seq, device),
                words(batch, seq, device),
                Tensor::<2, Int>::zeros([batch, seq], device).bool(),
                Tensor::<1, Int>::zeros([masked], device),
                Tensor::<1, Int>::zeros([masked], device),
                Tensor::<1, Int>::zeros([batch], device),
            )
        },
        |network, (words, segments, padding, masked, hidden_words, is_next)| {
            let (scores, next) = network.forward(words, segments, padding, masked);
            let loss = cross_entropy(scores, hidden_words);
            match next {
                Some(next) => loss + cross_entropy(next, is_next),
                None => loss,
            }
        },
    )
}

impl Network for Bert {
    const OUTPUT_LAYERS: &'static [&'static str] =
        &["classifier", "word_classifier", "next_sentence", "span"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let tuned = |name, trainable, tensors| Variant {
            name,
            family: "BERT",
            file,
            paper: "Devlin, Chang, Lee, Toutanova 2018, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding, arXiv 1810.04805",
            reference: "google-research/bert modeling.py; transformers BertForSequenceClassification",
            counts: Counts {
                trainable,
                tensors,
                buffers: 0,
            },
            input: Input {
                seq: Some(128),
                classes: Some(2),
                vocab: Some(30_522),
                ..Input::default()
            },
            batch: 32,
            optimizer: OptimizerKind::AdamW,
            recipe: "GLUE fine-tuning, 32 sequences of 128 tokens, cross-entropy on the pooled output, Adam with decoupled weight decay, dropout 0.1",
            differences: &[
                "gradient clipping and weight decay are left out: they need no memory that outlives an operation",
            ],
        };
        let pretrained = |name, trainable, tensors| Variant {
            reference: "google-research/bert modeling.py, run_pretraining.py; transformers BertForPreTraining",
            input: Input {
                seq: Some(128),
                vocab: Some(30_522),
                ..Input::default()
            },
            recipe: "32 sequences of 128 tokens a card (256 on 8), 15 % of the words masked and predicted, next-sentence prediction, Adam with decoupled weight decay, dropout 0.1",
            ..tuned(name, trainable, tensors)
        };
        vec![
            tuned("bert-base", 109_483_778, 201),
            tuned("bert-large", 335_143_938, 393),
            pretrained("bert-base-pretraining", 110_106_428, 206),
            pretrained("bert-large-pretraining", 336_226_108, 398),
        ]
    }

    fn check(variant: &Variant, job: &Job) -> Result<(), Error> {
        check_positions(InputSize::Seq, job.seq(), published(variant, job).longest())
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = published(variant, job);
        match variant.input.classes {
            Some(_) => train_classifier(&config, job, device, steps, observer),
            None => train_pretraining(&config, job, device, steps, observer),
        }
    }
}

/// The published configuration of `variant`.
fn published(variant: &Variant, job: &Job) -> BertConfig {
    match variant.name {
        "bert-base" | "bert-base-pretraining" => BertConfig::base(job.vocab()),
        "bert-large" | "bert-large-pretraining" => BertConfig::large(job.vocab()),
        other => unreachable!("{other} is not a variant of this file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    fn tiny() -> BertConfig {
        BertConfig {
            d_model: 16,
            layers: 2,
            heads: 2,
            d_ff: 32,
            positions: 8,
            ..BertConfig::base(50)
        }
    }

    fn request() -> Request {
        Request {
            batch: Some(2),
            input: Input {
                seq: Some(8),
                ..Input::default()
            },
            ..Request::default()
        }
    }

    /// Expected: the counts of transformers `BertModel`, which has no head.
    #[test]
    fn encoder_and_pooler_have_the_published_counts() {
        let device = test_support::flex();
        let base = BertConfig::base(30_522).init(&device);
        assert_eq!(test_support::parameters(&base), (109_482_240, 199));
        let large = BertConfig::large(30_522).init(&device);
        assert_eq!(test_support::parameters(&large), (335_141_888, 391));
    }

    #[test]
    fn scores_have_the_shapes_of_the_heads() {
        let device = test_support::flex();
        let text = || words(3, 8, &device);
        let padding = || text().equal_elem(1);
        let scores = tiny()
            .classifier(5, &device)
            .forward(text(), text(), padding());
        assert_eq!(scores.dims(), [3, 5]);
        let masked = Tensor::zeros([4], &device);
        let (scores, next) = tiny()
            .pretraining(&device)
            .forward(text(), text(), padding(), masked);
        assert_eq!((scores.dims(), next.unwrap().dims()), ([4, 50], [3, 2]));
        let labels = tiny()
            .word_classifier(5, &device)
            .forward(text(), text(), padding());
        assert_eq!(labels.dims(), [3 * 8, 5]);
        let [firsts, lasts] = tiny().answers(&device).forward(text(), text(), padding());
        assert_eq!((firsts.dims(), lasts.dims()), ([3, 8], [3, 8]));
    }

    #[test]
    fn trains() {
        test_support::assert_loss_decreases("bert-base", &request(), |job, device, _, losses| {
            train_classifier(&tiny(), job, device, 4, losses)
        });
        test_support::assert_loss_decreases(
            "bert-base-pretraining",
            &request(),
            |job, device, _, losses| train_pretraining(&tiny(), job, device, 4, losses),
        );
        test_support::assert_loss_decreases("bert-base", &request(), |job, device, _, losses| {
            train_word_classifier(&tiny(), job, device, 4, losses)
        });
        test_support::assert_loss_decreases("bert-base", &request(), |job, device, _, losses| {
            train_answers(&tiny(), job, device, 4, losses)
        });
        test_support::assert_loss_decreases("bert-base", &request(), |job, device, _, losses| {
            train_masked_words(&tiny(), job, device, 4, losses)
        });
    }

    #[test]
    fn as_many_words_are_masked_as_in_the_reference() {
        assert_eq!([128, 512].map(masked_words), [20, 77]);
    }

    #[test]
    fn a_sequence_longer_than_the_positions_is_refused() {
        test_support::longest("bert-base", 512);
    }
}
