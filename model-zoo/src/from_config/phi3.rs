//! `model_type` phi3: transformers `Phi3Config`.

use super::decoder::{Class, Family, OwnDecoder, decoder_names};
use super::fields::Fields;
use super::mismatch;
use super::mistral::all_local;
use super::names::{Names, rows};
use crate::Error;
use crate::blocks::decoder::{DecoderConfig, Norms};

/// Phi-3 and Phi-4 mini.
#[derive(Clone, Debug)]
pub(super) struct Phi3;

pub(super) type OwnPhi3 = OwnDecoder<Phi3>;

const CLASS: Class = Class {
    models: ["Phi3ForCausalLM", "Phi3Model"],
    vocab: 32_064,
    widths: [3072, 8192],
    nullable: &["num_key_value_heads"],
    positions: 4096,
    epsilon: 1e-5,
    divided: false,
    ..Class::LLAMA
};

impl Family for Phi3 {
    const MODEL_TYPE: &'static str = "phi3";

    fn read(fields: &Fields) -> Result<DecoderConfig, Error> {
        let config = CLASS.read(fields)?;
        let share = rotated_share(fields)?;
        // The class rounds down, and so does its network.
        let d_rotary = (config.d_head as f64 * share) as usize;
        if d_rotary == 0 || !d_rotary.is_multiple_of(2) {
            let must = "such that an even number of a head's channels is rotated".into();
            return Err(mismatch("partial_rotary_factor", must, d_rotary));
        }
        let config = DecoderConfig {
            d_rotary,
            residual_dropout: fields.share("resid_pdrop", 0.0)?,
            fused: true,
            ..config
        };
        all_local(config, fields, None)
    }

    fn names() -> Names {
        let mut names = decoder_names(Norms::Before);
        names.rows.extend(rows(
            "
            layers.*.attention.qkv = model.layers.*.self_attn.qkv_proj
            layers.*.mlp.gate_up = model.layers.*.mlp.gate_up_proj
            ",
        ));
        names
    }
}

/// The share of a head's channels that is rotated: `partial_rotary_factor`, in `rope_parameters` or
/// beside it.
fn rotated_share(fields: &Fields) -> Result<f64, Error> {
    const FIELD: &str = "partial_rotary_factor";
    let inner = match fields.object("rope_scaling")? {
        Some(scaling) => Some(scaling),
        None => fields.object("rope_parameters")?,
    };
    match inner {
        Some(inner) if inner.has(FIELD) => inner.share_of_all(FIELD),
        _ => fields.share_of_all(FIELD),
    }
}
