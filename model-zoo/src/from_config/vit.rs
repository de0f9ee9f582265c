//! `model_type` vit: transformers `ViTConfig`.

use burn::tensor::Device;

use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use super::{Architecture, divides, mismatch};
use crate::networks::vit::{VitConfig, train_on};
use crate::{Defaults, Error, Input, Job, Observer, OptimizerKind};

/// A Vision Transformer with the dimensions of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnVit(VitConfig);

impl OwnVit {
    /// The network with the dimensions that `fields` give, if its class is one of `classes`. With `distilled` it has a
    /// teacher's token.
    ///
    /// # Errors
    ///
    /// As [`Architecture::read`].
    pub fn read_as(fields: &Fields, classes: &[&str], distilled: bool) -> Result<Self, Error> {
        fields.class_among(classes)?;
        fields.only("hidden_act", "gelu")?;
        fields.only("num_channels", 3)?;
        fields.only("qkv_bias", true)?;
        // Defaults are those of transformers, which are ViT-B/16.
        let image = fields.sides("image_size", Limit::Width, 224)?;
        let base = VitConfig::base_16(image, fields.classes()?);
        let hidden_dropout = fields.share("hidden_dropout_prob", base.dropout)?;
        let attention_dropout = fields.share("attention_probs_dropout_prob", base.dropout)?;
        let config = VitConfig {
            patch: fields.sides("patch_size", Limit::Patch, 16)?,
            d_model: fields.size("hidden_size", Limit::Width, base.d_model)?,
            layers: fields.size("num_hidden_layers", Limit::Depth, base.layers)?,
            heads: fields.size("num_attention_heads", Limit::Width, base.heads)?,
            d_ff: fields.size("intermediate_size", Limit::Width, base.d_ff)?,
            // The network has one rate. Where one of the two is 0, which is rare, it keeps masks
            // that it does not need.
            dropout: hidden_dropout.max(attention_dropout),
            epsilon: fields.epsilon("layer_norm_eps", 1e-12)?,
            distilled,
            ..base
        };
        divides(
            "num_attention_heads",
            config.heads,
            "hidden_size",
            config.d_model,
        )?;
        for (patch, side) in config.patch.into_iter().zip(image) {
            if patch > side {
                let must = format!("at most image_size, {side}");
                return Err(mismatch("patch_size", must, patch));
            }
        }
        Ok(Self(config))
    }

    /// The names in transformers, which begin with `prefix`.
    pub fn names_as(prefix: &'static str) -> Names {
        Names {
            prefix,
            transposed: true,
            redundant: &["pooler.dense.weight", "pooler.dense.bias"],
            rows: rows(&TABLE.replace("vit.", prefix)),
        }
    }
}

impl Architecture for OwnVit {
    const MODEL_TYPE: &'static str = "vit";

    fn read(fields: &Fields) -> Result<Self, Error> {
        Self::read_as(fields, &["ViTForImageClassification", "ViTModel"], false)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                image: Some(self.0.image),
                classes: Some(self.0.classes),
                ..Input::default()
            },
            batch: 64,
            optimizer: OptimizerKind::AdamW,
        }
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        // transformers leaves out the pixels that do not fill a patch.
        self.0.check_patches(job)
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = VitConfig {
            image: job.image(),
            classes: job.classes(),
            ..self.0.clone()
        };
        train_on(&config, job, device, steps, observer)
    }

    fn names() -> Names {
        Self::names_as("vit.")
    }
}

/// The names of a Vision Transformer's parameters.
const TABLE: &str = "
    patches = vit.embeddings.patch_embeddings.projection
    class = vit.embeddings.cls_token
    positions = vit.embeddings.position_embeddings
    layers.*.norm_1 = vit.encoder.layer.*.layernorm_before
    layers.*.attention.qkv = vit.encoder.layer.*.attention.attention.query \
    vit.encoder.layer.*.attention.attention.key \
    vit.encoder.layer.*.attention.attention.value
    layers.*.attention.output = vit.encoder.layer.*.attention.output.dense
    layers.*.norm_2 = vit.encoder.layer.*.layernorm_after
    layers.*.mlp.linear_inner = vit.encoder.layer.*.intermediate.dense
    layers.*.mlp.linear_outer = vit.encoder.layer.*.output.dense
    norm = vit.layernorm
    head = classifier
";
