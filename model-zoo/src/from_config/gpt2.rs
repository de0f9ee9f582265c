//! `model_type` gpt2: transformers `GPT2Config`.

use burn::nn::activation::ActivationConfig;
use burn::tensor::Device;

use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use super::{Architecture, divides, usual_tokens};
use crate::blocks::tokens::check_positions;
use crate::networks::gpt2::{Gpt2Config, train_on};
use crate::{Defaults, Error, Input, InputSize, Job, Observer, OptimizerKind};

/// A GPT-2 with the dimensions of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnGpt2(Gpt2Config);

impl Architecture for OwnGpt2 {
    const MODEL_TYPE: &'static str = "gpt2";

    fn read(fields: &Fields) -> Result<Self, Error> {
        let activations = [
            ("gelu_new", ActivationConfig::GeluApproximate),
            ("gelu_pytorch_tanh", ActivationConfig::GeluApproximate),
            ("gelu", ActivationConfig::Gelu),
            ("relu", ActivationConfig::Relu),
        ];
        fields.class_among(&["GPT2LMHeadModel", "GPT2Model"])?;
        fields.only("tie_word_embeddings", true)?;
        fields.only("add_cross_attention", false)?;
        fields.only("scale_attn_weights", true)?;
        fields.only("reorder_and_upcast_attn", false)?;
        // `attribute_map` of the class.
        let width = fields.spelled("n_embd", "hidden_size");
        let positions = fields.spelled("n_positions", "max_position_embeddings");
        let heads = fields.spelled("n_head", "num_attention_heads");
        let layers = fields.spelled("n_layer", "num_hidden_layers");
        // Defaults are those of transformers, which are GPT-2 small.
        let d_model = fields.size(width, Limit::Width, 768)?;
        let d_ff = fields.optional_size("n_inner", Limit::Width, None)?;
        let dropouts = ["resid_pdrop", "embd_pdrop", "attn_pdrop"]
            .map(|field| fields.share(field, 0.1))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        let config = Gpt2Config {
            vocab: fields.size("vocab_size", Limit::Rows, 50_257)?,
            positions: fields.size(positions, Limit::Rows, 1024)?,
            d_model,
            layers: fields.size(layers, Limit::Depth, 12)?,
            heads: fields.size(heads, Limit::Width, 12)?,
            d_ff: d_ff.unwrap_or(4 * d_model),
            // The network has one rate. Where one of the three is 0, which is rare, it keeps
            // masks that it does not need.
            dropout: dropouts.into_iter().fold(0.0, f64::max),
            epsilon: fields.epsilon("layer_norm_epsilon", 1e-5)?,
            activation: fields.choice("activation_function", "gelu_new", &activations)?,
        };
        divides(heads, config.heads, width, config.d_model)?;
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

    fn check(&self, job: &Job) -> Result<(), Error> {
        check_positions(InputSize::Seq, job.seq(), self.0.positions)
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = Gpt2Config {
            vocab: job.vocab(),
            ..self.0.clone()
        };
        train_on(&config, job, device, steps, observer)
    }

    fn names() -> Names {
        Names {
            prefix: "transformer.",
            // The linear layers of GPT-2 in transformers are `Conv1D`, `[in, out]`.
            transposed: false,
            redundant: &[".attn.bias", "attn.masked_bias", "lm_head.weight"],
            rows: rows(
                "
                wte = transformer.wte
                wpe = transformer.wpe
                layers.*.norm_1 = transformer.h.*.ln_1
                layers.*.attention.qkv = transformer.h.*.attn.c_attn
                layers.*.attention.output = transformer.h.*.attn.c_proj
                layers.*.norm_2 = transformer.h.*.ln_2
                layers.*.mlp.linear_inner = transformer.h.*.mlp.c_fc
                layers.*.mlp.linear_outer = transformer.h.*.mlp.c_proj
                norm = transformer.ln_f
                ",
            ),
        }
    }
}
