//! `model_type` modernbert: transformers `ModernBertConfig`.

use burn::tensor::Device;

use super::encoder::{ACTIVATIONS, USUAL_TOKENS};
use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use super::{Architecture, divides, mismatch};
use crate::networks::modernbert::{ModernBertConfig, Task, train_on};
use crate::{Defaults, Error, Input, Job, Observer, OptimizerKind};

/// A ModernBERT with the dimensions and the head of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnModernBert {
    config: ModernBertConfig,
    task: Task,
    /// Classes of a classifier.
    classes: Option<usize>,
}

/// The classes of models and their tasks.
const TASKS: [(&str, Task); 4] = [
    ("ModernBertForSequenceClassification", Task::Classify),
    ("ModernBertForTokenClassification", Task::ClassifyWords),
    ("ModernBertForMaskedLM", Task::MaskedWords),
    ("ModernBertModel", Task::Classify),
];

impl Architecture for OwnModernBert {
    const MODEL_TYPE: &'static str = "modernbert";

    fn read(fields: &Fields) -> Result<Self, Error> {
        // Defaults are those of transformers, which are ModernBERT base.
        let base = ModernBertConfig::base(50_368);
        let layers = fields.size("num_hidden_layers", Limit::Depth, base.local.len())?;
        let every = fields.size("global_attn_every_n_layers", Limit::Depth, 3)?;
        let known = [("full_attention", false), ("sliding_attention", true)];
        let local = fields.words("layer_types", &known)?;
        let local = local.unwrap_or_else(|| ModernBertConfig::pattern(layers, every));
        if local.len() != layers {
            let must = format!("as many words as num_hidden_layers, {layers}");
            return Err(mismatch("layer_types", must, local.len()));
        }
        let pooling = [("cls", false), ("mean", true)];
        let config = ModernBertConfig {
            vocab: fields.size("vocab_size", Limit::Rows, base.vocab)?,
            d_model: fields.size("hidden_size", Limit::Width, base.d_model)?,
            local,
            heads: fields.size("num_attention_heads", Limit::Width, base.heads)?,
            d_ff: fields.size("intermediate_size", Limit::Width, base.d_ff)?,
            positions: fields.size("max_position_embeddings", Limit::Rows, base.positions)?,
            window: fields.size("local_attention", Limit::Rows, base.window)?,
            dropout: fields.share("embedding_dropout", base.dropout)?,
            attention_dropout: fields.share("attention_dropout", base.attention_dropout)?,
            mlp_dropout: fields.share("mlp_dropout", base.mlp_dropout)?,
            head_dropout: fields.share("classifier_dropout", base.head_dropout)?,
            epsilon: fields.epsilon("norm_eps", base.epsilon)?,
            norm_bias: fields.flag("norm_bias", base.norm_bias)?,
            attention_bias: fields.flag("attention_bias", base.attention_bias)?,
            mlp_bias: fields.flag("mlp_bias", base.mlp_bias)?,
            head_bias: fields.flag("classifier_bias", base.head_bias)?,
            word_bias: fields.flag("decoder_bias", base.word_bias)?,
            activation: fields.choice("hidden_activation", "gelu", &ACTIVATIONS)?,
            head_activation: fields.choice("classifier_activation", "gelu", &ACTIVATIONS)?,
            mean: fields.choice("classifier_pooling", "cls", &pooling)?,
        };
        let (heads, d_model) = (config.heads, config.d_model);
        divides("num_attention_heads", heads, "hidden_size", d_model)?;
        if !(d_model / heads).is_multiple_of(2) {
            let must = "such that a head has an even number of channels".into();
            return Err(mismatch("num_attention_heads", must, heads));
        }
        let task = fields.head(Task::Classify, &TASKS)?;
        let classes = match task {
            Task::Classify | Task::ClassifyWords => Some(fields.classes()?),
            Task::MaskedWords => {
                fields.only("tie_word_embeddings", true)?;
                fields.only("sparse_prediction", false)?;
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

    fn check(&self, _job: &Job) -> Result<(), Error> {
        // The network computes rotations for as many positions as the sequence has.
        Ok(())
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = ModernBertConfig {
            vocab: job.vocab(),
            ..self.config.clone()
        };
        train_on(&config, self.task, job, device, steps, observer)
    }

    fn names() -> Names {
        Names {
            prefix: "model.",
            transposed: true,
            // The second copy of the tied table.
            redundant: &["decoder.weight"],
            rows: rows(
                "
                bert.words = model.embeddings.tok_embeddings
                bert.norm = model.embeddings.norm
                bert.layers.*.norm_1 = model.layers.*.attn_norm
                bert.layers.*.attention.qkv = model.layers.*.attn.Wqkv
                bert.layers.*.attention.output = model.layers.*.attn.Wo
                bert.layers.*.norm_2 = model.layers.*.mlp_norm
                bert.layers.*.mlp.inner = model.layers.*.mlp.Wi
                bert.layers.*.mlp.outer = model.layers.*.mlp.Wo
                bert.final_norm = model.final_norm
                head.dense = head.dense
                head.norm = head.norm
                classifier = classifier
                bias = decoder.bias
                ",
            ),
        }
    }
}
