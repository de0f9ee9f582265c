//! `model_type` qwen3: transformers `Qwen3Config`.

use super::decoder::{Class, Family, OwnDecoder};
use super::fields::Fields;
use super::qwen2::with_window;
use crate::Error;
use crate::blocks::decoder::{DecoderConfig, HeadNorm};

/// Qwen3.
#[derive(Clone, Debug)]
pub(super) struct Qwen3;

pub(super) type OwnQwen3 = OwnDecoder<Qwen3>;

const CLASS: Class = Class {
    models: ["Qwen3ForCausalLM", "Qwen3Model"],
    vocab: 151_936,
    widths: [4096, 22_016],
    kv_heads: Some(32),
    d_head: Some(128),
    nullable: &["num_key_value_heads"],
    positions: 32_768,
    divided: false,
    ..Class::LLAMA
};

impl Family for Qwen3 {
    const MODEL_TYPE: &'static str = "qwen3";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        let bias = fields.flag("attention_bias", false)?;
        let config = DecoderConfig {
            head_norm: Some(HeadNorm::Head),
            qkv_bias: bias,
            output_bias: bias,
            ..CLASS.read(fields)?
        };
        with_window(config, fields)
    }
}
