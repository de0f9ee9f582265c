//! `model_type` qwen2: transformers `Qwen2Config`.

use super::decoder::{Class, Family, OwnDecoder, with_layer_types};
use super::fields::{Fields, Limit};
use crate::Error;
use crate::blocks::decoder::DecoderConfig;

/// Qwen2 and Qwen2.5.
#[derive(Clone, Debug)]
pub(super) struct Qwen2;

pub(super) type OwnQwen2 = OwnDecoder<Qwen2>;

const CLASS: Class = Class {
    models: ["Qwen2ForCausalLM", "Qwen2Model"],
    vocab: 151_936,
    widths: [4096, 22_016],
    kv_heads: Some(32),
    nullable: &["num_key_value_heads"],
    positions: 32_768,
    divided: false,
    ..Class::LLAMA
};

impl Family for Qwen2 {
    const MODEL_TYPE: &'static str = "qwen2";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        let config = DecoderConfig {
            qkv_bias: true,
            ..CLASS.read(fields)?
        };
        with_window(config, fields)
    }
}

/// `config` with the window of a Qwen: `use_sliding_window`, `sliding_window`, `max_window_layers`
/// and `layer_types`.
pub(super) fn with_window(config: DecoderConfig, fields: &Fields) -> Result<DecoderConfig, Error> {
    let is_used = fields.flag("use_sliding_window", false)?;
    let window = fields.optional_size("sliding_window", Limit::Rows, Some(4096))?;
    let window = window.filter(|_| is_used);
    let first = fields.index("max_window_layers", Limit::Depth, 28)?;
    let config = DecoderConfig { window, ..config };
    with_layer_types(config, fields, |layer| window.is_some() && layer >= first)
}
