//! `model_type` gemma2: transformers `Gemma2Config`.

use super::decoder::{Class, Family, OwnDecoder, decoder_names, with_layer_types};
use super::fields::{Fields, Limit};
use super::gemma;
use super::names::Names;
use crate::Error;
use crate::blocks::decoder::{DecoderConfig, Norms};

/// Gemma 2.
#[derive(Clone, Debug)]
pub(super) struct Gemma2;

pub(super) type OwnGemma2 = OwnDecoder<Gemma2>;

/// The defaults of `Gemma2Config`.
pub(super) const CLASS: Class = Class {
    models: ["Gemma2ForCausalLM", "Gemma2Model"],
    vocab: 256_000,
    widths: [2304, 9216],
    layers: 26,
    heads: 8,
    kv_heads: Some(4),
    d_head: Some(256),
    nullable: &[],
    activation: ("hidden_activation", "gelu_pytorch_tanh"),
    positions: 8192,
    tied: true,
    ..Class::LLAMA
};

impl Family for Gemma2 {
    const MODEL_TYPE: &'static str = "gemma2";

    const FILE: &'static str = "gemma";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        let config = DecoderConfig {
            norms: Norms::Around,
            window: fields.optional_size("sliding_window", Limit::Rows, Some(4096))?,
            score_cap: fields.optional_positive("attn_logit_softcapping", Some(50.0))?,
            logit_cap: fields.optional_positive("final_logit_softcapping", Some(30.0))?,
            ..gemma::read(&CLASS, fields)?
        };
        with_layer_types(config, fields, |layer| layer.is_multiple_of(2))
    }

    fn names() -> Names {
        decoder_names(Norms::Around)
    }
}
