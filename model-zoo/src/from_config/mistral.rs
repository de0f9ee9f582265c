//! `model_type` mistral: transformers `MistralConfig`.

use super::decoder::{Class, Family, OwnDecoder};
use super::fields::{Fields, Limit};
use crate::Error;
use crate::blocks::decoder::{DecoderConfig, LayerConfig};

/// Mistral.
#[derive(Clone, Debug)]
pub(super) struct Mistral;

pub(super) type OwnMistral = OwnDecoder<Mistral>;

const CLASS: Class = Class {
    models: ["MistralForCausalLM", "MistralModel"],
    widths: [4096, 14_336],
    kv_heads: Some(8),
    nullable: &["head_dim"],
    positions: 131_072,
    divided: false,
    ..Class::LLAMA
};

impl Family for Mistral {
    const MODEL_TYPE: &'static str = "mistral";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        all_local(CLASS.read(fields)?, fields, Some(4096))
    }
}

/// `config` with the window of `sliding_window` in every layer, if there is one; `usual` is that of
/// a file without the field.
pub(super) fn all_local(
    config: DecoderConfig,
    fields: &Fields,
    usual: Option<usize>,
) -> Result<DecoderConfig, Error> {
    let window = fields.optional_size("sliding_window", Limit::Rows, usual)?;
    let layer = |layer: LayerConfig| LayerConfig {
        local: window.is_some(),
        ..layer
    };
    Ok(DecoderConfig {
        layers: config.layers.into_iter().map(layer).collect(),
        window,
        ..config
    })
}
