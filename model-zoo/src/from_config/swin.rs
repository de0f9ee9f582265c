//! `model_type` swin: transformers `SwinConfig`.

use burn::tensor::Device;

use super::encoder::ACTIVATIONS;
use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use super::{Architecture, divides, mismatch};
use crate::classify::classify;
use crate::networks::swin::{Swin, SwinConfig};
use crate::{Defaults, Error, Input, Job, Observer, OptimizerKind};

/// The most stages: twice those of every published Swin.
const MAX_STAGES: usize = 8;

/// A Swin Transformer with the dimensions of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnSwin(SwinConfig);

impl Architecture for OwnSwin {
    const MODEL_TYPE: &'static str = "swin";

    fn read(fields: &Fields) -> Result<Self, Error> {
        fields.class_among(&["SwinForImageClassification", "SwinModel"])?;
        fields.only("num_channels", 3)?;
        // Defaults are those of transformers, which are Swin-T.
        let image = fields.sides("image_size", Limit::Width, 224)?;
        let base = SwinConfig::tiny(image, fields.classes()?);
        let depths = fields.sizes("depths", Limit::Depth, MAX_STAGES, &[2, 2, 6, 2])?;
        let heads = fields.sizes("num_heads", Limit::Width, MAX_STAGES, &[3, 6, 12, 24])?;
        if heads.len() != depths.len() {
            let must = format!("as many numbers as depths, {}", depths.len());
            return Err(mismatch("num_heads", must, heads.len()));
        }
        let width = fields.size("embed_dim", Limit::Width, base.width)?;
        for (stage, heads) in heads.iter().enumerate() {
            divides(
                "num_heads",
                *heads,
                "embed_dim in its stage",
                width << stage,
            )?;
        }
        Ok(Self(SwinConfig {
            patch: fields.sides("patch_size", Limit::Patch, 4)?,
            width,
            stages: depths.into_iter().zip(heads).map(Into::into).collect(),
            window: fields.size("window_size", Limit::Patch, base.window)?,
            mlp_ratio: fields.positive("mlp_ratio", base.mlp_ratio)?,
            qkv_bias: fields.flag("qkv_bias", true)?,
            dropout: fields.share("hidden_dropout_prob", 0.0)?,
            attention_dropout: fields.share("attention_probs_dropout_prob", 0.0)?,
            drop_path: fields.share("drop_path_rate", 0.1)?,
            positions: fields.flag("use_absolute_embeddings", false)?,
            epsilon: fields.epsilon("layer_norm_eps", 1e-5)?,
            activation: fields.choice("hidden_act", "gelu", &ACTIVATIONS)?,
            ..base
        }))
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                image: Some(self.0.image),
                classes: Some(self.0.classes),
                ..Input::default()
            },
            batch: 128,
            optimizer: OptimizerKind::AdamW,
        }
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        self.0.check(job)
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = SwinConfig {
            image: job.image(),
            classes: job.classes(),
            ..self.0.clone()
        };
        let network = config.init(device);
        classify(network, job, device, steps, observer, Swin::forward)
    }

    fn names() -> Names {
        let mut table = rows(
            "
            patches = swin.embeddings.patch_embeddings.projection
            norm = swin.embeddings.norm
            positions = swin.embeddings.position_embeddings
            last_norm = swin.layernorm
            head = classifier
            ",
        );
        for stage in 0..MAX_STAGES {
            let ours = format!("stages.{stage}");
            let theirs = format!("swin.encoder.layers.{stage}");
            let block = format!("{theirs}.blocks.*");
            table.extend(rows(&format!(
                "
                {ours}.layers.*.norm_1 = {block}.layernorm_before
                {ours}.layers.*.attention.query = {block}.attention.self.query
                {ours}.layers.*.attention.key = {block}.attention.self.key
                {ours}.layers.*.attention.value = {block}.attention.self.value
                {ours}.layers.*.attention.output = {block}.attention.output.dense
                {ours}.layers.*.attention.bias = {block}.attention.self.relative_position_bias_table
                {ours}.layers.*.norm_2 = {block}.layernorm_after
                {ours}.layers.*.wide = {block}.intermediate.dense
                {ours}.layers.*.narrow = {block}.output.dense
                {ours}.merge.norm = {theirs}.downsample.norm
                {ours}.merge.reduction = {theirs}.downsample.reduction
                "
            )));
        }
        Names {
            prefix: "swin.",
            transposed: true,
            // Older files hold the numbers of the distances.
            redundant: &["attention.self.relative_position_index"],
            rows: table,
        }
    }
}
