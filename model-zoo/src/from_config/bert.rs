//! `model_type` bert: transformers `BertConfig`.

use super::encoder::{Family, OwnEncoder, Task, bert_names, read_bert};
use super::fields::Fields;
use super::names::Names;
use crate::Error;
use crate::networks::bert::BertConfig;

/// BERT.
#[derive(Clone, Debug)]
pub(super) struct Bert;

pub(super) type OwnBert = OwnEncoder<Bert>;

impl Family for Bert {
    const MODEL_TYPE: &'static str = "bert";

    const TASKS: &'static [(&'static str, Task)] = &[
        ("BertForSequenceClassification", Task::Classify),
        ("BertModel", Task::Classify),
        ("BertForTokenClassification", Task::ClassifyWords),
        ("BertForQuestionAnswering", Task::Answer),
        ("BertForMaskedLM", Task::MaskedWords),
        ("BertForPreTraining", Task::Pretrain),
    ];

    fn read(fields: &Fields) -> Result<BertConfig, Error> {
        read_bert(fields, 30_522)
    }

    fn names() -> Names {
        bert_names(
            "bert.",
            "
            bert.pooler = bert.pooler.dense
            classifier = classifier
            word_classifier = classifier
            transform = cls.predictions.transform.dense
            norm = cls.predictions.transform.LayerNorm
            bias = cls.predictions.bias
            next_sentence = cls.seq_relationship
            ",
        )
    }
}
