//! `model_type` distilbert: transformers `DistilBertConfig`.

use super::divides;
use super::encoder::{ACTIVATIONS, Family, OwnEncoder, Task, encoder_names};
use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use crate::Error;
use crate::networks::bert::BertConfig;

/// DistilBERT: BERT without segments. Its classifier has a hidden layer of its own, as large as
/// BERT's pooler, with ReLU, which changes no size.
#[derive(Clone, Debug)]
pub(super) struct DistilBert;

pub(super) type OwnDistilBert = OwnEncoder<DistilBert>;

impl Family for DistilBert {
    const MODEL_TYPE: &'static str = "distilbert";

    const TASKS: &'static [(&'static str, Task)] = &[
        ("DistilBertForSequenceClassification", Task::Classify),
        ("DistilBertModel", Task::Classify),
        ("DistilBertForTokenClassification", Task::ClassifyWords),
        ("DistilBertForQuestionAnswering", Task::Answer),
        ("DistilBertForMaskedLM", Task::MaskedWords),
    ];

    fn read(fields: &Fields) -> Result<BertConfig, Error> {
        // `attribute_map` of the class.
        let width = fields.spelled("dim", "hidden_size");
        let heads = fields.spelled("n_heads", "num_attention_heads");
        let layers = fields.spelled("n_layers", "num_hidden_layers");
        fields.only("sinusoidal_pos_embds", false)?;
        let rates = [
            fields.share("dropout", 0.1)?,
            fields.share("attention_dropout", 0.1)?,
        ];
        let base = BertConfig::base(30_522);
        let config = BertConfig {
            vocab: fields.size("vocab_size", Limit::Rows, 30_522)?,
            d_model: fields.size(width, Limit::Width, 768)?,
            layers: fields.size(layers, Limit::Depth, 6)?,
            heads: fields.size(heads, Limit::Width, 12)?,
            d_ff: fields.size("hidden_dim", Limit::Width, 3072)?,
            positions: fields.size("max_position_embeddings", Limit::Rows, 512)?,
            segments: None,
            dropout: rates[0].max(rates[1]),
            activation: fields.choice("activation", "gelu", &ACTIVATIONS)?,
            ..base
        };
        divides(heads, config.heads, width, config.d_model)?;
        Ok(config)
    }

    fn names() -> Names {
        let table = rows(
            "
            bert.word = distilbert.embeddings.word_embeddings
            bert.position = distilbert.embeddings.position_embeddings
            bert.norm = distilbert.embeddings.LayerNorm
            bert.encoder.layers.*.mha.query = distilbert.transformer.layer.*.attention.q_lin
            bert.encoder.layers.*.mha.key = distilbert.transformer.layer.*.attention.k_lin
            bert.encoder.layers.*.mha.value = distilbert.transformer.layer.*.attention.v_lin
            bert.encoder.layers.*.mha.output = distilbert.transformer.layer.*.attention.out_lin
            bert.encoder.layers.*.norm_1 = distilbert.transformer.layer.*.sa_layer_norm
            bert.encoder.layers.*.pwff.linear_inner = distilbert.transformer.layer.*.ffn.lin1
            bert.encoder.layers.*.pwff.linear_outer = distilbert.transformer.layer.*.ffn.lin2
            bert.encoder.layers.*.norm_2 = distilbert.transformer.layer.*.output_layer_norm
            bert.pooler = pre_classifier
            classifier = classifier
            word_classifier = classifier
            span = qa_outputs
            transform = vocab_transform
            norm = vocab_layer_norm
            bias = vocab_projector.bias
            ",
        );
        encoder_names("distilbert.", table)
    }
}
