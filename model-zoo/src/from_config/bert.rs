//! `model_type` bert: transformers `BertConfig`.

use burn::nn::activation::ActivationConfig;
use burn::tensor::Device;

use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use super::{Architecture, divides};
use crate::blocks::tokens::check_positions;
use crate::networks::bert::{BertConfig, train_classifier, train_pretraining};
use crate::{Defaults, Error, Input, InputSize, Job, Observer, OptimizerKind};

/// Tokens of a sequence in the published fine-tuning and in the first 90 % of the steps of the
/// published pre-training.
const USUAL_TOKENS: usize = 128;

/// The task that a BERT is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Classify { classes: usize },
    Pretrain,
}

/// A BERT with the dimensions of a `config.json`. Its task is pre-training if the class that
/// wrote the file is `BertForPreTraining` or `BertForMaskedLM`, and classification otherwise.
/// Pre-training includes next-sentence prediction, as in the paper.
#[derive(Clone, Debug)]
pub(super) struct OwnBert {
    config: BertConfig,
    task: Task,
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
        let task = match fields.class() {
            "BertForPreTraining" | "BertForMaskedLM" => Task::Pretrain,
            _ => Task::Classify {
                classes: fields.classes()?,
            },
        };
        Ok(Self { config, task })
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                seq: Some(USUAL_TOKENS.min(self.config.positions)),
                vocab: Some(self.config.vocab),
                classes: match self.task {
                    Task::Classify { classes } => Some(classes),
                    Task::Pretrain => None,
                },
                ..Input::default()
            },
            batch: 32,
            optimizer: OptimizerKind::AdamW,
        }
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
        match self.task {
            Task::Classify { .. } => {
                train_classifier(&self.for_job(job), job, device, steps, observer)
            }
            Task::Pretrain => train_pretraining(&self.for_job(job), job, device, steps, observer),
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
                transform = cls.predictions.transform.dense
                norm = cls.predictions.transform.LayerNorm
                bias = cls.predictions.bias
                next_sentence = cls.seq_relationship
                ",
            ),
        }
    }
}
