//! `model_type` convnext: transformers `ConvNextConfig`.

use burn::tensor::Device;

use super::encoder::ACTIVATIONS;
use super::fields::{Fields, Limit};
use super::names::{Names, rows};
use super::{Architecture, mismatch};
use crate::classify::classify;
use crate::networks::convnext::{ConvNext, ConvNextConfig};
use crate::{Defaults, Error, Input, Job, Observer, OptimizerKind};

/// The most stages: twice those of every published ConvNeXt.
const MAX_STAGES: usize = 8;

/// A ConvNeXt with the dimensions of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnConvNext {
    config: ConvNextConfig,
    image: [usize; 2],
}

impl Architecture for OwnConvNext {
    const MODEL_TYPE: &'static str = "convnext";

    fn read(fields: &Fields) -> Result<Self, Error> {
        fields.class_among(&["ConvNextForImageClassification", "ConvNextModel"])?;
        fields.only("num_channels", 3)?;
        // Defaults are those of transformers, which are ConvNeXt-T.
        let widths = [96, 192, 384, 768];
        let widths = fields.sizes("hidden_sizes", Limit::Width, MAX_STAGES, &widths)?;
        let depths = fields.sizes("depths", Limit::Depth, MAX_STAGES, &[3, 3, 9, 3])?;
        let named = fields.spelled("num_stages", "num_hidden_layers");
        let stages = fields.size(named, Limit::Depth, 4)?;
        for (field, list) in [("hidden_sizes", &widths), ("depths", &depths)] {
            if list.len() != stages {
                let must = format!("as many numbers as {named}, {stages}");
                return Err(mismatch(field, must, list.len()));
            }
        }
        let begin = fields.at_least_zero("layer_scale_init_value", 1e-6)?;
        let config = ConvNextConfig {
            patch: fields.sides("patch_size", Limit::Patch, 4)?,
            stages: widths.into_iter().zip(depths).map(Into::into).collect(),
            drop_path: fields.share("drop_path_rate", 0.0)?,
            scale: (begin > 0.0).then_some(begin),
            epsilon: fields.epsilon("layer_norm_eps", 1e-12)?,
            activation: fields.choice("hidden_act", "gelu", &ACTIVATIONS)?,
            classes: fields.classes()?,
        };
        Ok(Self {
            config,
            image: fields.sides("image_size", Limit::Width, 224)?,
        })
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                image: Some(self.image),
                classes: Some(self.config.classes),
                ..Input::default()
            },
            batch: 128,
            optimizer: OptimizerKind::AdamW,
        }
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        self.config.check(job)
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = ConvNextConfig {
            classes: job.classes(),
            ..self.config.clone()
        };
        let network = config.init(device);
        classify(network, job, device, steps, observer, ConvNext::forward)
    }

    fn names() -> Names {
        let mut table = rows(
            "
            patches = convnext.embeddings.patch_embeddings
            patch_norm = convnext.embeddings.layernorm
            norm = convnext.layernorm
            head = classifier
            ",
        );
        for stage in 0..MAX_STAGES {
            let ours = format!("stages.{stage}");
            let theirs = format!("convnext.encoder.stages.{stage}");
            table.extend(rows(&format!(
                "
                {ours}.downsample.norm = {theirs}.downsampling_layer.0
                {ours}.downsample.conv = {theirs}.downsampling_layer.1
                {ours}.layers.*.depthwise = {theirs}.layers.*.dwconv
                {ours}.layers.*.norm = {theirs}.layers.*.layernorm
                {ours}.layers.*.wide = {theirs}.layers.*.pwconv1
                {ours}.layers.*.narrow = {theirs}.layers.*.pwconv2
                {ours}.layers.*.scale = {theirs}.layers.*.layer_scale_parameter
                "
            )));
        }
        Names {
            prefix: "convnext.",
            transposed: true,
            redundant: &[],
            rows: table,
        }
    }
}
