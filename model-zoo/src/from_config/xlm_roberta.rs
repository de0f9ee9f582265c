//! `model_type` xlm-roberta: transformers `XLMRobertaConfig`.

use super::encoder::{Family, OwnEncoder, Task};
use super::fields::Fields;
use super::names::Names;
use super::roberta;
use crate::Error;
use crate::networks::bert::BertConfig;

/// XLM-RoBERTa.
#[derive(Clone, Debug)]
pub(super) struct XlmRoberta;

pub(super) type OwnXlmRoberta = OwnEncoder<XlmRoberta>;

impl Family for XlmRoberta {
    const MODEL_TYPE: &'static str = "xlm-roberta";

    const TASKS: &'static [(&'static str, Task)] = &[
        ("XLMRobertaForSequenceClassification", Task::Classify),
        ("XLMRobertaModel", Task::Classify),
        ("XLMRobertaForTokenClassification", Task::ClassifyWords),
        ("XLMRobertaForQuestionAnswering", Task::Answer),
        ("XLMRobertaForMaskedLM", Task::MaskedWords),
    ];

    fn read(fields: &Fields) -> Result<BertConfig, Error> {
        roberta::read(fields, 30_522)
    }

    fn names() -> Names {
        roberta::names()
    }
}
