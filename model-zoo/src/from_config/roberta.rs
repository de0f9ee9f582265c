//! `model_type` roberta: transformers `RobertaConfig`.

use super::encoder::{Family, OwnEncoder, Task, bert_names, read_bert};
use super::fields::{Fields, Limit};
use super::mismatch;
use super::names::Names;
use crate::Error;
use crate::networks::bert::BertConfig;

/// RoBERTa. Its classifier has a hidden layer of its own, as large as BERT's pooler.
#[derive(Clone, Debug)]
pub(super) struct Roberta;

pub(super) type OwnRoberta = OwnEncoder<Roberta>;

impl Family for Roberta {
    const MODEL_TYPE: &'static str = "roberta";

    const TASKS: &'static [(&'static str, Task)] = &[
        ("RobertaForSequenceClassification", Task::Classify),
        ("RobertaModel", Task::Classify),
        ("RobertaForTokenClassification", Task::ClassifyWords),
        ("RobertaForQuestionAnswering", Task::Answer),
        ("RobertaForMaskedLM", Task::MaskedWords),
    ];

    fn read(fields: &Fields) -> Result<BertConfig, Error> {
        read(fields, 50_265)
    }

    fn names() -> Names {
        names()
    }
}

/// What RoBERTa and XLM-RoBERTa share. Positions count from the one after that of the padding word.
pub(super) fn read(fields: &Fields, vocab: usize) -> Result<BertConfig, Error> {
    let config = read_bert(fields, vocab)?;
    let reserved = fields.index("pad_token_id", Limit::Rows, 1)? + 1;
    if reserved >= config.positions {
        let must = format!("more than the {reserved} positions up to that of the padding word");
        return Err(mismatch("max_position_embeddings", must, config.positions));
    }
    Ok(BertConfig { reserved, ..config })
}

/// The names of both.
pub(super) fn names() -> Names {
    bert_names(
        "roberta.",
        "
        bert.pooler = classifier.dense
        classifier = classifier.out_proj
        word_classifier = classifier
        transform = lm_head.dense
        norm = lm_head.layer_norm
        bias = lm_head.bias
        ",
    )
}
