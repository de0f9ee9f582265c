//! `model_type` qwen3_moe: transformers `Qwen3MoeConfig`.

use super::decoder::{Class, Family, OwnDecoder, decoder_names, experts};
use super::fields::{Fields, Limit};
use super::mistral::all_local;
use super::names::{Names, rows};
use crate::Error;
use crate::blocks::decoder::{
    DecoderConfig, ExpertWeights, ExpertsConfig, HeadNorm, LayerConfig, Norms,
};

/// Qwen3 with experts.
#[derive(Clone, Debug)]
pub(super) struct Qwen3Moe;

pub(super) type OwnQwen3Moe = OwnDecoder<Qwen3Moe>;

const CLASS: Class = Class {
    models: ["Qwen3MoeForCausalLM", "Qwen3MoeModel"],
    vocab: 151_936,
    widths: [2048, 6144],
    layers: 24,
    kv_heads: Some(4),
    nullable: &[],
    positions: 32_768,
    divided: false,
    ..Class::LLAMA
};

impl Family for Qwen3Moe {
    const MODEL_TYPE: &'static str = "qwen3_moe";

    const FILE: &'static str = "qwen3";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        // The loss of the router would keep its scores.
        fields.only("output_router_logits", false)?;
        let bias = fields.flag("attention_bias", false)?;
        let weights = match fields.flag("norm_topk_prob", false)? {
            true => ExpertWeights::Normalised,
            false => ExpertWeights::All,
        };
        let named = fields.spelled("num_experts", "num_local_experts");
        let [count, active] = experts(fields, named, [128, 8])?;
        let config = DecoderConfig {
            head_norm: Some(HeadNorm::Head),
            qkv_bias: bias,
            output_bias: bias,
            experts: Some(ExpertsConfig {
                count,
                active,
                d_ff: fields.size("moe_intermediate_size", Limit::Width, 768)?,
                weights,
                clamped: None,
            }),
            ..CLASS.read(fields)?
        };
        let config = match fields.flag("use_sliding_window", false)? {
            true => all_local(config, fields, Some(4096))?,
            false => config,
        };
        let every = fields.size("decoder_sparse_step", Limit::Depth, 1)?;
        let dense = fields.indices("mlp_only_layers", Limit::Depth)?;
        let layer = |(index, layer): (usize, &LayerConfig)| LayerConfig {
            experts: !dense.contains(&index) && (index + 1).is_multiple_of(every),
            ..*layer
        };
        Ok(DecoderConfig {
            layers: config.layers.iter().enumerate().map(layer).collect(),
            ..config
        })
    }

    fn names() -> Names {
        let mut names = decoder_names(Norms::Before);
        names.rows.extend(rows(
            "
            layers.*.experts.router = model.layers.*.mlp.gate
            layers.*.experts.gate_up = \
                model.layers.*.mlp.experts.#.gate_proj.weight model.layers.*.mlp.experts.#.up_proj.weight
            layers.*.experts.down = model.layers.*.mlp.experts.#.down_proj.weight
            ",
        ));
        names
    }
}
