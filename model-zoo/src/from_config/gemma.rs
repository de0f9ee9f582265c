//! `model_type` gemma: transformers `GemmaConfig`.

use super::decoder::{Class, Family, OwnDecoder};
use super::fields::Fields;
use crate::Error;
use crate::blocks::decoder::{Activation, DecoderConfig};

/// Gemma.
#[derive(Clone, Debug)]
pub(super) struct Gemma;

pub(super) type OwnGemma = OwnDecoder<Gemma>;

const CLASS: Class = Class {
    models: ["GemmaForCausalLM", "GemmaModel"],
    vocab: 256_000,
    widths: [3072, 24_576],
    layers: 28,
    heads: 16,
    kv_heads: Some(16),
    d_head: Some(256),
    nullable: &[],
    activation: ("hidden_act", "gelu_pytorch_tanh"),
    positions: 8192,
    tied: true,
    divided: false,
    ..Class::LLAMA
};

impl Family for Gemma {
    const MODEL_TYPE: &'static str = "gemma";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        let config = read(&CLASS, fields)?;
        Ok(DecoderConfig {
            // The class takes the name of the exact GELU for that of the other.
            activation: match config.activation {
                Activation::Gelu => Activation::GeluTanh,
                other => other,
            },
            ..config
        })
    }
}

/// What Gemma, Gemma 2 and Gemma 3 share.
pub(super) fn read(class: &Class, fields: &Fields) -> Result<DecoderConfig, Error> {
    fields.only("use_bidirectional_attention", false)?;
    let bias = fields.flag("attention_bias", false)?;
    Ok(DecoderConfig {
        scaled_words: true,
        qkv_bias: bias,
        output_bias: bias,
        ..class.read(fields)?
    })
}
