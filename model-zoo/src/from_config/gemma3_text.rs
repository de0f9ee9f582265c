//! `model_type` gemma3_text: transformers `Gemma3TextConfig`.

use super::decoder::{Class, Family, OwnDecoder, decoder_names, with_layer_types};
use super::fields::{Fields, Limit};
use super::names::Names;
use super::{gemma, gemma2};
use crate::Error;
use crate::blocks::decoder::{DecoderConfig, HeadNorm, LayerConfig, Norms};

/// Gemma 3, the text alone.
#[derive(Clone, Debug)]
pub(super) struct Gemma3;

pub(super) type OwnGemma3 = OwnDecoder<Gemma3>;

const CLASS: Class = Class {
    models: ["Gemma3ForCausalLM", "Gemma3TextModel"],
    vocab: 262_208,
    positions: 131_072,
    ..gemma2::CLASS
};

impl Family for Gemma3 {
    const MODEL_TYPE: &'static str = "gemma3_text";

    const FILE: &'static str = "gemma";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        let config = DecoderConfig {
            norms: Norms::Around,
            head_norm: Some(HeadNorm::Head),
            window: fields.optional_size("sliding_window", Limit::Rows, Some(4096))?,
            // Gemma3Attention has attn_logit_softcapping too, and never uses it.
            logit_cap: fields.optional_positive("final_logit_softcapping", None)?,
            ..gemma::read(&CLASS, fields)?
        };
        let pattern = fields.size("sliding_window_pattern", Limit::Depth, 6)?;
        let config =
            with_layer_types(config, fields, |layer| !(layer + 1).is_multiple_of(pattern))?;
        // Local layers have other wavelengths, and a table of them.
        let layer = |layer: LayerConfig| match layer.local {
            true => LayerConfig::local(10_000.0),
            false => LayerConfig::full(1_000_000.0),
        };
        Ok(DecoderConfig {
            layers: config.layers.into_iter().map(layer).collect(),
            ..config
        })
    }

    fn names() -> Names {
        decoder_names(Norms::Around)
    }
}
