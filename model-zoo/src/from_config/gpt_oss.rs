//! `model_type` gpt_oss: transformers `GptOssConfig`.

use super::decoder::{Class, Family, OwnDecoder, decoder_names, experts, with_layer_types};
use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use crate::Error;
use crate::blocks::decoder::{
    ClampedGate, DecoderConfig, ExpertWeights, ExpertsConfig, LayerConfig, Norms,
};

/// GPT-OSS.
#[derive(Clone, Debug)]
pub(super) struct GptOss;

pub(super) type OwnGptOss = OwnDecoder<GptOss>;

const CLASS: Class = Class {
    models: ["GptOssForCausalLM", "GptOssModel"],
    vocab: 201_088,
    widths: [2880, 2880],
    layers: 36,
    heads: 64,
    kv_heads: Some(8),
    d_head: Some(64),
    nullable: &[],
    positions: 131_072,
    epsilon: 1e-5,
    divided: false,
    ..Class::LLAMA
};

impl Family for GptOss {
    const MODEL_TYPE: &'static str = "gpt_oss";

    const FILE: &'static str = "llama";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        // The loss of the router would keep its scores.
        fields.only("output_router_logits", false)?;
        let bias = fields.flag("attention_bias", true)?;
        let named = fields.spelled("num_local_experts", "num_experts");
        let [count, active] = experts(fields, named, [128, 4])?;
        let config = CLASS.read(fields)?;
        let experts = ExpertsConfig {
            count,
            active,
            d_ff: config.d_ff,
            weights: ExpertWeights::Taken,
            clamped: Some(ClampedGate {
                alpha: fields.positive("swiglu_alpha", 1.702)?,
                limit: fields.positive("swiglu_limit", 7.0)?,
            }),
        };
        let config = DecoderConfig {
            sinks: true,
            qkv_bias: bias,
            output_bias: bias,
            experts: Some(experts),
            window: fields.optional_size("sliding_window", Limit::Rows, Some(128))?,
            ..config
        };
        let config = with_layer_types(config, fields, |layer| layer.is_multiple_of(2))?;
        let layer = |layer: LayerConfig| LayerConfig {
            experts: true,
            ..layer
        };
        Ok(DecoderConfig {
            layers: config.layers.into_iter().map(layer).collect(),
            ..config
        })
    }

    fn names() -> Names {
        let mut names = decoder_names(Norms::Before);
        names.rows.extend(rows(
            "
            layers.*.attention.sinks = model.layers.*.self_attn.sinks
            layers.*.experts.router = model.layers.*.mlp.router
            layers.*.experts.gate_up = model.layers.*.mlp.experts.gate_up_proj
            layers.*.experts.gate_up_bias = model.layers.*.mlp.experts.gate_up_proj_bias
            layers.*.experts.down = model.layers.*.mlp.experts.down_proj
            layers.*.experts.down_bias = model.layers.*.mlp.experts.down_proj_bias
            ",
        ));
        names
    }
}
