//! `model_type` resnet: transformers `ResNetConfig`.

use burn::tensor::Device;

use super::fields::{Fields, Limit};
use super::names::{Names, Row, rows};
use super::{Architecture, mismatch};
use crate::classify::classify;
use crate::networks::resnet::{ResNet, ResNetConfig};
use crate::{Defaults, Error, Input, Job, Observer, OptimizerKind};

/// A ResNet for ImageNet with the dimensions of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnResNet {
    config: ResNetConfig,
    classes: usize,
}

impl Architecture for OwnResNet {
    const MODEL_TYPE: &'static str = "resnet";

    fn read(fields: &Fields) -> Result<Self, Error> {
        fields.class_among(&["ResNetForImageClassification", "ResNetModel"])?;
        fields.only("hidden_act", "relu")?;
        fields.only("num_channels", 3)?;
        fields.only("downsample_in_first_stage", false)?;
        fields.only("downsample_in_bottleneck", false)?;
        // Defaults are those of transformers, which are ResNet-50.
        let classes = fields.classes()?;
        let kinds = [("bottleneck", true), ("basic", false)];
        let bottleneck = fields.choice("layer_type", "bottleneck", &kinds)?;
        let channels = fields.sizes("hidden_sizes", Limit::Width, 4, &[256, 512, 1024, 2048])?;
        let config = ResNetConfig {
            blocks: fields.sizes("depths", Limit::Depth, 4, &[3, 4, 6, 3])?,
            width: fields.size("embedding_size", Limit::Width, 64)?,
            channels: Some(channels.clone()),
            bottleneck,
            imagenet: true,
            dilated: [false; 4],
            classes: Some(classes),
        };
        if channels.len() != config.blocks.len() {
            let must = format!("as many numbers as depths, {}", config.blocks.len());
            return Err(mismatch("hidden_sizes", must, channels.len()));
        }
        // A bottleneck has a quarter of the channels inside, without the rest.
        if let (true, Some(&few)) = (bottleneck, channels.iter().find(|&&channels| channels < 4)) {
            return Err(mismatch(
                "hidden_sizes",
                "at least 4 in a bottleneck".into(),
                few,
            ));
        }
        Ok(Self { config, classes })
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                image: Some([224, 224]),
                classes: Some(self.classes),
                ..Input::default()
            },
            batch: 32,
            optimizer: OptimizerKind::Momentum,
        }
    }

    fn check(&self, _job: &Job) -> Result<(), Error> {
        // Every convolution is padded by half its kernel, so one pixel is enough.
        Ok(())
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = ResNetConfig {
            classes: Some(job.classes()),
            ..self.config.clone()
        };
        let network = config.init(device);
        classify(network, job, device, steps, observer, ResNet::forward)
    }

    fn names() -> Names {
        let mut table = rows(
            "
            conv1 = resnet.embedder.embedder.convolution
            bn1 = resnet.embedder.embedder.normalization
            fc = classifier.1
            ",
        );
        table.extend((0..4).flat_map(stage));
        Names {
            prefix: "resnet.",
            transposed: true,
            redundant: &["num_batches_tracked"],
            rows: table,
        }
    }
}

/// The rows of stage `stage`, counted from 0 as in transformers. Our module numbers stages from 1.
fn stage(stage: usize) -> Vec<Row> {
    let ours = format!("layer{}.*", stage + 1);
    let theirs = format!("resnet.encoder.stages.{stage}.layers.*");
    rows(&format!(
        "
        {ours}.conv1 = {theirs}.layer.0.convolution
        {ours}.bn1 = {theirs}.layer.0.normalization
        {ours}.conv2 = {theirs}.layer.1.convolution
        {ours}.bn2 = {theirs}.layer.1.normalization
        {ours}.conv3 = {theirs}.layer.2.convolution
        {ours}.bn3 = {theirs}.layer.2.normalization
        {ours}.downsample.Projection.conv = {theirs}.shortcut.convolution
        {ours}.downsample.Projection.bn = {theirs}.shortcut.normalization
        "
    ))
}
