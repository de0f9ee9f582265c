//! `model_type` smollm3: transformers `SmolLM3Config`.

use super::decoder::{Class, Family, OwnDecoder, with_layer_types};
use super::fields::{Fields, Limit};
use super::mismatch;
use crate::Error;
use crate::blocks::decoder::{DecoderConfig, LayerConfig};

/// SmolLM3.
#[derive(Clone, Debug)]
pub(super) struct SmolLm3;

pub(super) type OwnSmolLm3 = OwnDecoder<SmolLm3>;

const CLASS: Class = Class {
    models: ["SmolLM3ForCausalLM", "SmolLM3Model"],
    vocab: 128_256,
    widths: [2048, 11_008],
    layers: 36,
    heads: 16,
    kv_heads: Some(4),
    nullable: &["num_key_value_heads"],
    positions: 32_768,
    tied: true,
    divided: false,
    ..Class::LLAMA
};

impl Family for SmolLm3 {
    const MODEL_TYPE: &'static str = "smollm3";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        let bias = fields.flag("attention_bias", false)?;
        let config = CLASS.read(fields)?;
        let rotates = rotates(config.layers.len(), fields)?;
        let theta = |(layer, rotates): (LayerConfig, &bool)| LayerConfig {
            theta: layer.theta.filter(|_| *rotates),
            ..layer
        };
        let is_used = fields.flag("use_sliding_window", false)?;
        let window = fields.optional_size("sliding_window", Limit::Rows, None)?;
        let window = window.filter(|_| is_used);
        let config = DecoderConfig {
            layers: config.layers.into_iter().zip(&rotates).map(theta).collect(),
            qkv_bias: bias,
            output_bias: bias,
            mlp_bias: fields.flag("mlp_bias", false)?,
            window,
            ..config
        };
        with_layer_types(config, fields, |layer| window.is_some() && !rotates[layer])
    }
}

/// Whether each of `layers` layers rotates: `no_rope_layers`, which is 1 where one does, else all but
/// every `no_rope_layer_interval`-th.
fn rotates(layers: usize, fields: &Fields) -> Result<Vec<bool>, Error> {
    let interval = fields.size("no_rope_layer_interval", Limit::Depth, 4)?;
    match fields.flags("no_rope_layers")? {
        None => Ok((0..layers)
            .map(|layer| !(layer + 1).is_multiple_of(interval))
            .collect()),
        Some(flags) if flags.len() >= layers => Ok(flags),
        Some(flags) => {
            let must = format!("at least as many numbers as num_hidden_layers, {layers}");
            Err(mismatch("no_rope_layers", must, flags.len()))
        }
    }
}
