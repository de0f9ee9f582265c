//! `model_type` resnet: transformers `ResNetConfig`.

use burn::tensor::Device;

use super::fields::{Fields, Limit};
use super::names::{Names, Row, rows};
use super::{Architecture, mismatch};
use crate::classify::classify;
use crate::networks::resnet::{ResNet, ResNetConfig};
use crate::{Error, Input, Job, Observer, OptimizerKind, Recipe};

/// A ResNet for ImageNet with the dimensions of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnResNet {
    config: ResNetConfig,
    classes: usize,
}

impl Architecture for OwnResNet {
    const MODEL_TYPE: &'static str = "resnet";

    fn read(fields: &Fields) -> Result<Self, Error> {
        fields.only("hidden_act", "relu")?;
        fields.only("num_channels", 3)?;
        fields.only("downsample_in_first_stage", false)?;
        fields.only("downsample_in_bottleneck", false)?;
        // Defaults are those of transformers, which are ResNet-50.
        let classes = fields.classes()?;
        let config = ResNetConfig {
            blocks: fields.sizes("depths", Limit::Depth, 4, &[3, 4, 6, 3])?,
            width: fields.size("embedding_size", Limit::Width, 64)?,
            bottleneck: fields.choice(
                "layer_type",
                "bottleneck",
                &[("bottleneck", true), ("basic", false)],
            )?,
            imagenet: true,
            dilated: [false; 4],
            classes: Some(classes),
        };
        let widths = fields.sizes("hidden_sizes", Limit::Width, 4, &[256, 512, 1024, 2048])?;
        if widths.len() != config.blocks.len() {
            let must = format!("as many numbers as depths, {}", config.blocks.len());
            return Err(mismatch("hidden_sizes", must, widths.len()));
        }
        for (stage, width) in widths.into_iter().enumerate() {
            let ours = config.channels(stage);
            if width != ours {
                let must = format!("{ours} in stage {stage}, twice those of the stage before");
                return Err(mismatch("hidden_sizes", must, width));
            }
        }
        Ok(Self { config, classes })
    }

    fn recipe(&self) -> Recipe {
        Recipe {
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
        let mut table = rows(&[
            ("conv1", &["resnet.embedder.embedder.convolution"]),
            ("bn1", &["resnet.embedder.embedder.normalization"]),
            ("fc", &["classifier.1"]),
        ]);
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
    let row = |ours: String, theirs: String| {
        (
            format!("layer{}.*.{ours}", stage + 1),
            vec![format!("resnet.encoder.stages.{stage}.layers.*.{theirs}")],
        )
    };
    let layers = (0..3).flat_map(|layer| {
        [
            row(
                format!("conv{}", layer + 1),
                format!("layer.{layer}.convolution"),
            ),
            row(
                format!("bn{}", layer + 1),
                format!("layer.{layer}.normalization"),
            ),
        ]
    });
    let shortcut = [
        row(
            "downsample.Projection.conv".into(),
            "shortcut.convolution".into(),
        ),
        row(
            "downsample.Projection.bn".into(),
            "shortcut.normalization".into(),
        ),
    ];
    layers.chain(shortcut).collect()
}
