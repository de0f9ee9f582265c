//! What the `model_type`s of BERT and its relatives share: heads, and most fields.

use std::marker::PhantomData;

use burn::nn::activation::ActivationConfig;
use burn::tensor::Device;

use super::fields::{Fields, Limit};
use super::names::{Names, Row, rows};
use super::{Architecture, divides, mismatch};
use crate::blocks::tokens::check_positions;
use crate::networks::bert::{
    BertConfig, train_answers, train_classifier, train_masked_words, train_pretraining,
    train_word_classifier,
};
use crate::{Defaults, Error, Input, InputSize, Job, Observer, OptimizerKind};

/// Tokens of a sequence in the published fine-tuning and in the first 90 % of the steps of the
/// published pre-training.
pub(super) const USUAL_TOKENS: usize = 128;

/// The task that an encoder is trained on: that of the class that wrote the file. A file without a
/// class or head is for classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// A class for a text: `ForSequenceClassification`.
    Classify,
    /// A class for each word: `ForTokenClassification`.
    ClassifyWords,
    /// The ends of an answer in a text: `ForQuestionAnswering`.
    Answer,
    /// Masked words: `ForMaskedLM`.
    MaskedWords,
    /// Masked words and next sentences: `ForPreTraining`.
    Pretrain,
}

/// A `model_type` of encoders. Each file of one implements it once.
pub(super) trait Family: Clone + std::fmt::Debug {
    /// The value of `model_type` in `config.json`.
    const MODEL_TYPE: &'static str;

    /// The classes of models and their tasks.
    const TASKS: &'static [(&'static str, Task)];

    /// The encoder with the dimensions that `fields` give.
    ///
    /// # Errors
    ///
    /// As [`Architecture::read`].
    fn read(fields: &Fields) -> Result<BertConfig, Error>;

    /// As [`Architecture::names`].
    fn names() -> Names;
}

/// An encoder of the family `F` with the dimensions and the head of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnEncoder<F> {
    config: BertConfig,
    task: Task,
    /// Classes of a classifier.
    classes: Option<usize>,
    family: PhantomData<F>,
}

impl<F> OwnEncoder<F> {
    /// The configuration with the vocabulary of `job`.
    fn for_job(&self, job: &Job) -> BertConfig {
        BertConfig {
            vocab: job.vocab(),
            ..self.config.clone()
        }
    }
}

/// The activations of the feed-forward block, by their names in `ACT2FN` of transformers.
pub(super) const ACTIVATIONS: [(&str, ActivationConfig); 4] = [
    ("gelu", ActivationConfig::Gelu),
    ("gelu_new", ActivationConfig::GeluApproximate),
    ("gelu_pytorch_tanh", ActivationConfig::GeluApproximate),
    ("relu", ActivationConfig::Relu),
];

/// What `BertConfig` and `RobertaConfig` read; the defaults are those of both, which are BERT base
/// but for the vocabulary.
///
/// # Errors
///
/// As [`Architecture::read`].
pub(super) fn read_bert(fields: &Fields, vocab: usize) -> Result<BertConfig, Error> {
    let base = BertConfig::base(vocab);
    fields.only("position_embedding_type", "absolute")?;
    fields.only("is_decoder", false)?;
    fields.only("add_cross_attention", false)?;
    let hidden_dropout = fields.share("hidden_dropout_prob", base.dropout)?;
    let attention_dropout = fields.share("attention_probs_dropout_prob", base.dropout)?;
    let config = BertConfig {
        vocab: fields.size("vocab_size", Limit::Rows, base.vocab)?,
        d_model: fields.size("hidden_size", Limit::Width, base.d_model)?,
        layers: fields.size("num_hidden_layers", Limit::Depth, base.layers)?,
        heads: fields.size("num_attention_heads", Limit::Width, base.heads)?,
        d_ff: fields.size("intermediate_size", Limit::Width, base.d_ff)?,
        positions: fields.size("max_position_embeddings", Limit::Rows, base.positions)?,
        segments: Some(fields.size("type_vocab_size", Limit::Rows, 2)?),
        // The network has one rate. Where one of the two is 0, which is rare, it keeps masks that it
        // does not need.
        dropout: hidden_dropout.max(attention_dropout),
        epsilon: fields.epsilon("layer_norm_eps", base.epsilon)?,
        activation: fields.choice("hidden_act", "gelu", &ACTIVATIONS)?,
        ..base
    };
    divides(
        "num_attention_heads",
        config.heads,
        "hidden_size",
        config.d_model,
    )?;
    Ok(config)
}

impl<F: Family> Architecture for OwnEncoder<F> {
    const MODEL_TYPE: &'static str = F::MODEL_TYPE;

    const FILE: &'static str = "bert";

    fn read(fields: &Fields) -> Result<Self, Error> {
        let config = F::read(fields)?;
        let task = fields.head(Task::Classify, F::TASKS)?;
        let classes = match task {
            Task::Classify | Task::ClassifyWords => Some(fields.classes()?),
            Task::Answer => match fields.classes()? {
                2 => None,
                other => {
                    let must = "2, the ends of an answer".into();
                    return Err(mismatch("num_labels", must, other));
                }
            },
            Task::MaskedWords | Task::Pretrain => {
                fields.only("tie_word_embeddings", true)?;
                None
            }
        };
        Ok(Self {
            config,
            task,
            classes,
            family: PhantomData,
        })
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                seq: Some(USUAL_TOKENS.min(self.config.longest())),
                vocab: Some(self.config.vocab),
                classes: self.classes,
                ..Input::default()
            },
            batch: 32,
            optimizer: OptimizerKind::AdamW,
        }
    }

    fn positions(&self) -> Option<usize> {
        Some(self.config.longest())
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        check_positions(InputSize::Seq, job.seq(), self.config.longest())
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = self.for_job(job);
        match self.task {
            Task::Classify => train_classifier(&config, job, device, steps, observer),
            Task::ClassifyWords => train_word_classifier(&config, job, device, steps, observer),
            Task::Answer => train_answers(&config, job, device, steps, observer),
            Task::MaskedWords => train_masked_words(&config, job, device, steps, observer),
            Task::Pretrain => train_pretraining(&config, job, device, steps, observer),
        }
    }

    fn names() -> Names {
        F::names()
    }
}

/// The names of the encoder of BERT and RoBERTa below `prefix`, which ends with a dot, and those of
/// the `heads`.
pub(super) fn bert_names(prefix: &'static str, heads: &str) -> Names {
    let layer = format!("{prefix}encoder.layer.*");
    let mut table = rows(&format!(
        "
        bert.word = {prefix}embeddings.word_embeddings
        bert.position = {prefix}embeddings.position_embeddings
        bert.segment = {prefix}embeddings.token_type_embeddings
        bert.norm = {prefix}embeddings.LayerNorm
        bert.encoder.layers.*.mha.query = {layer}.attention.self.query
        bert.encoder.layers.*.mha.key = {layer}.attention.self.key
        bert.encoder.layers.*.mha.value = {layer}.attention.self.value
        bert.encoder.layers.*.mha.output = {layer}.attention.output.dense
        bert.encoder.layers.*.norm_1 = {layer}.attention.output.LayerNorm
        bert.encoder.layers.*.pwff.linear_inner = {layer}.intermediate.dense
        bert.encoder.layers.*.pwff.linear_outer = {layer}.output.dense
        bert.encoder.layers.*.norm_2 = {layer}.output.LayerNorm
        span = qa_outputs
        "
    ));
    table.extend(rows(heads));
    encoder_names(prefix, table)
}

/// The names of `table`, of a network whose names begin with `prefix`.
pub(super) fn encoder_names(prefix: &'static str, rows: Vec<Row>) -> Names {
    Names {
        prefix,
        transposed: true,
        redundant: &[
            "embeddings.position_ids",
            // The second copy of a tied table.
            "cls.predictions.decoder.weight",
            "cls.predictions.decoder.bias",
            "lm_head.decoder.weight",
            "lm_head.decoder.bias",
            "vocab_projector.weight",
            // Files of the published networks have the parts of pre-training, whatever class they
            // name.
            "pooler.dense.weight",
            "pooler.dense.bias",
            "cls.seq_relationship.weight",
            "cls.seq_relationship.bias",
        ],
        rows,
    }
}
