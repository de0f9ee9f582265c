//! `model_type` bert: transformers `BertConfig`.

use burn::nn::activation::ActivationConfig;
use burn::tensor::Device;

use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use super::{Architecture, divides, mismatch};
use crate::blocks::tokens::check_positions;
use crate::networks::bert::{
    BertConfig, train_answers, train_classifier, train_masked_words, train_pretraining,
    train_word_classifier,
};
use crate::{Defaults, Error, Input, InputSize, Job, Observer, OptimizerKind};

/// Tokens of a sequence in the published fine-tuning and in the first 90 % of the steps of the
/// published pre-training.
const USUAL_TOKENS: usize = 128;

/// The task that a BERT is trained on: that of the class that wrote the file. A file without a class
/// or head is for classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Classify,
    ClassifyWords,
    Answer,
    MaskedWords,
    Pretrain,
}

const TASKS: [(&str, Task); 6] = [
    ("BertForSequenceClassification", Task::Classify),
    ("BertModel", Task::Classify),
    ("BertForTokenClassification", Task::ClassifyWords),
    ("BertForQuestionAnswering", Task::Answer),
    ("BertForMaskedLM", Task::MaskedWords),
    ("BertForPreTraining", Task::Pretrain),
];

/// A BERT with the dimensions and the head of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnBert {
    config: BertConfig,
    task: Task,
    /// Classes of a classifier.
    classes: Option<usize>,
}

impl OwnBert {
    /// The configuration with the vocabulary of `job`.
    fn for_job(&self, job: &Job) -> BertConfig {
        BertConfig {
            vocab: job.vocab(),
            ..self.config.clone()
        }
    }
}

impl Architecture for OwnBert {
    const MODEL_TYPE: &'static str = "bert";

    fn read(fields: &Fields) -> Result<Self, Error> {
        // Defaults are those of transformers, which are BERT base.
        let base = BertConfig::base(30_522);
        let activations = [
            ("gelu", ActivationConfig::Gelu),
            ("gelu_new", ActivationConfig::GeluApproximate),
            ("gelu_pytorch_tanh", ActivationConfig::GeluApproximate),
            ("relu", ActivationConfig::Relu),
        ];
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
            segments: fields.size("type_vocab_size", Limit::Rows, base.segments)?,
            // The network has one rate. Where one of the two is 0, which is rare, it keeps masks
            // that it does not need.
            dropout: hidden_dropout.max(attention_dropout),
            epsilon: fields.epsilon("layer_norm_eps", base.epsilon)?,
            activation: fields.choice("hidden_act", "gelu", &activations)?,
        };
        divides(
            "num_attention_heads",
            config.heads,
            "hidden_size",
            config.d_model,
        )?;
        let task = fields.head(Task::Classify, &TASKS)?;
        let classes = match task {
            Task::Classify | Task::ClassifyWords => Some(fields.classes()?),
            Task::Answer => match fields.classes()? {
                2 => None,
                other => {
                    return Err(mismatch(
                        "num_labels",
                        "2, the ends of an answer".into(),
                        other,
                    ));
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
        })
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                seq: Some(USUAL_TOKENS.min(self.config.positions)),
                vocab: Some(self.config.vocab),
                classes: self.classes,
                ..Input::default()
            },
            batch: 32,
            optimizer: OptimizerKind::AdamW,
        }
    }

    fn positions(&self) -> Option<usize> {
        Some(self.config.positions)
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        check_positions(InputSize::Seq, job.seq(), self.config.positions)
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
        Names {
            prefix: "bert.",
            transposed: true,
            redundant: &[
                "embeddings.position_ids",
                "cls.predictions.decoder.weight",
                "cls.predictions.decoder.bias",
                // Files of the published networks have the parts of pre-training, whatever class
                // they name.
                "bert.pooler.dense.weight",
                "bert.pooler.dense.bias",
                "cls.seq_relationship.weight",
                "cls.seq_relationship.bias",
            ],
            rows: rows(
                "
                bert.word = bert.embeddings.word_embeddings
                bert.position = bert.embeddings.position_embeddings
                bert.segment = bert.embeddings.token_type_embeddings
                bert.norm = bert.embeddings.LayerNorm
                bert.encoder.layers.*.mha.query = bert.encoder.layer.*.attention.self.query
                bert.encoder.layers.*.mha.key = bert.encoder.layer.*.attention.self.key
                bert.encoder.layers.*.mha.value = bert.encoder.layer.*.attention.self.value
                bert.encoder.layers.*.mha.output = bert.encoder.layer.*.attention.output.dense
                bert.encoder.layers.*.norm_1 = bert.encoder.layer.*.attention.output.LayerNorm
                bert.encoder.layers.*.pwff.linear_inner = bert.encoder.layer.*.intermediate.dense
                bert.encoder.layers.*.pwff.linear_outer = bert.encoder.layer.*.output.dense
                bert.encoder.layers.*.norm_2 = bert.encoder.layer.*.output.LayerNorm
                bert.pooler = bert.pooler.dense
                classifier = classifier
                span = qa_outputs
                transform = cls.predictions.transform.dense
                norm = cls.predictions.transform.LayerNorm
                bias = cls.predictions.bias
                next_sentence = cls.seq_relationship
                ",
            ),
        }
    }
}
