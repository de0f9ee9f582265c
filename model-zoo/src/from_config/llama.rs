//! `model_type` llama: transformers `LlamaConfig`.

use burn::tensor::Device;

use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use super::{Architecture, divides, mismatch, usual_tokens};
use crate::networks::llama::{LlamaConfig, train_on};
use crate::{Defaults, Error, Input, Job, Observer, OptimizerKind};

/// A Llama with the dimensions of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnLlama(LlamaConfig);

impl Architecture for OwnLlama {
    const MODEL_TYPE: &'static str = "llama";

    fn read(fields: &Fields) -> Result<Self, Error> {
        fields.class_among(&["LlamaForCausalLM", "LlamaModel"])?;
        fields.only("hidden_act", "silu")?;
        fields.only("attention_bias", false)?;
        fields.only("mlp_bias", false)?;
        // Defaults are those of transformers, which are Llama of 7 billion parameters.
        let heads = fields.size("num_attention_heads", Limit::Width, 32)?;
        let config = LlamaConfig {
            vocab: fields.size("vocab_size", Limit::Rows, 32_000)?,
            d_model: fields.size("hidden_size", Limit::Width, 4096)?,
            layers: fields.size("num_hidden_layers", Limit::Depth, 32)?,
            heads,
            kv_heads: fields.size("num_key_value_heads", Limit::Width, heads)?,
            d_ff: fields.size("intermediate_size", Limit::Width, 11_008)?,
            dropout: fields.share("attention_dropout", 0.0)?,
            positions: fields.size("max_position_embeddings", Limit::Rows, 2048)?,
            epsilon: fields.epsilon("rms_norm_eps", 1e-6)?,
            tied: fields.flag("tie_word_embeddings", false)?,
            ..LlamaConfig::llama_2_7b(32_000, 2048)
        };
        divides("num_attention_heads", heads, "hidden_size", config.d_model)?;
        divides(
            "num_key_value_heads",
            config.kv_heads,
            "num_attention_heads",
            heads,
        )?;
        let d_head = config.d_model / heads;
        fields.only("head_dim", d_head)?;
        if !d_head.is_multiple_of(2) {
            let must = "such that each head has an even width, which rotations need";
            return Err(mismatch("hidden_size", must.into(), config.d_model));
        }
        Ok(Self(config))
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                seq: Some(usual_tokens(self.0.positions)),
                vocab: Some(self.0.vocab),
                ..Input::default()
            },
            batch: 1,
            optimizer: OptimizerKind::AdamW,
        }
    }

    fn positions(&self) -> Option<usize> {
        Some(self.0.positions)
    }

    fn check(&self, _job: &Job) -> Result<(), Error> {
        // The network computes rotations for as many positions as the sequence has.
        Ok(())
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = LlamaConfig {
            vocab: job.vocab(),
            positions: job.seq(),
            ..self.0.clone()
        };
        train_on(&config, job, device, steps, observer)
    }

    fn names() -> Names {
        Names {
            prefix: "model.",
            transposed: true,
            // Older files hold the wavelengths. A file may hold a tied output layer a second
            // time; an output layer that is not tied is a row of the table.
            redundant: &["rotary_emb.inv_freq", "lm_head.weight"],
            rows: rows(
                "
                words = model.embed_tokens
                layers.*.norm_1 = model.layers.*.input_layernorm
                layers.*.query = model.layers.*.self_attn.q_proj
                layers.*.key = model.layers.*.self_attn.k_proj
                layers.*.value = model.layers.*.self_attn.v_proj
                layers.*.output = model.layers.*.self_attn.o_proj
                layers.*.norm_2 = model.layers.*.post_attention_layernorm
                layers.*.gate_up.linear_inner = model.layers.*.mlp.gate_proj
                layers.*.gate_up.linear_outer = model.layers.*.mlp.up_proj
                layers.*.down = model.layers.*.mlp.down_proj
                norm = model.norm
                head = lm_head
                ",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropout_on_the_attention_weights_is_read() {
        let rate = |config: &str| {
            let llama = OwnLlama::read(&Fields::parse(config)?)?;
            Ok::<_, Error>(llama.0.dropout)
        };
        assert_eq!(rate("{}"), Ok(0.0));
        assert_eq!(rate(r#"{"attention_dropout": 0.1}"#), Ok(0.1));
        assert!(rate(r#"{"attention_dropout": 1}"#).is_err());
    }
}
