//! `model_type` olmo2: transformers `Olmo2Config`.

use super::decoder::{Class, Family, OwnDecoder, decoder_names};
use super::fields::Fields;
use super::names::Names;
use crate::Error;
use crate::blocks::decoder::{DecoderConfig, HeadNorm, Norms};

/// OLMo 2.
#[derive(Clone, Debug)]
pub(super) struct Olmo2;

pub(super) type OwnOlmo2 = OwnDecoder<Olmo2>;

const CLASS: Class = Class {
    models: ["Olmo2ForCausalLM", "Olmo2Model"],
    vocab: 50_304,
    nullable: &["num_key_value_heads"],
    epsilon: 1e-5,
    divided: false,
    ..Class::LLAMA
};

impl Family for Olmo2 {
    const MODEL_TYPE: &'static str = "olmo2";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        let bias = fields.flag("attention_bias", false)?;
        Ok(DecoderConfig {
            norms: Norms::After,
            head_norm: Some(HeadNorm::Projection),
            qkv_bias: bias,
            output_bias: bias,
            ..CLASS.read(fields)?
        })
    }

    fn names() -> Names {
        decoder_names(Norms::After)
    }
}
