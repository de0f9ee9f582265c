//! NASNet-A Large (6 @ 4032), with the auxiliary classifier of its training. See `variants` for
//! paper, reference and differences.

mod cell;
mod convolutions;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, AvgPool2d, AvgPool2dConfig};
use burn::nn::{BatchNorm, Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use self::cell::{Cell, CellConfig, Fit, Kind};
use self::convolutions::{norm, point};
use super::Network;
use crate::blocks::cross_entropy;
use crate::classify::labelled_images;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// Weight of the auxiliary classifier's loss.
const AUXILIARY_WEIGHT: f64 = 0.4;

/// Probability with which the last cell keeps a path; it falls linearly from 1 before the first.
const KEEP_PATH: f64 = 0.7;

/// Stages of normal cells, with a reduction between each and the next.
const STAGES: usize = 3;

/// The configuration of a [`NasNet`].
#[derive(Clone, Debug)]
pub(crate) struct NasNetConfig {
    /// Channels of the first convolution's output.
    pub stem: usize,
    /// Channels of a path in the cells of the first stage; each reduction doubles them.
    pub width: usize,
    /// Normal cells of each stage.
    pub cells: usize,
    /// Channels of the auxiliary classifier's two convolutions.
    pub auxiliary: [usize; 2],
    /// Height and width of an image. A kernel of the auxiliary classifier is as large as its map.
    pub image: [usize; 2],
    /// Classes of the output.
    pub classes: usize,
}

impl NasNetConfig {
    /// The published network.
    fn published(image: [usize; 2], classes: usize) -> Self {
        Self {
            stem: 96,
            width: 168,
            cells: 6,
            auxiliary: [128, 768],
            image,
            classes,
        }
    }

    /// A network with one normal cell in each stage.
    fn tiny(image: [usize; 2], classes: usize) -> Self {
        Self {
            stem: 4,
            width: 8,
            cells: 1,
            auxiliary: [4, 8],
            image,
            classes,
        }
    }

    /// The cells in the order in which data meets them: two stems, then the stages.
    fn cells(&self) -> Vec<CellConfig> {
        let mut cells = Vec::new();
        // Channels of the last output and of the output before it.
        let mut entering = [self.stem; 2];
        let mut push = |kind, width, fit| {
            let cell = CellConfig {
                entering,
                width,
                kind,
                fit,
            };
            cells.push(cell);
            let [last, before] = entering;
            entering = match kind {
                Kind::Normal | Kind::Stem => [cell.leaving(), last],
                Kind::Reduction => [cell.leaving(), before],
            };
        };
        push(Kind::Stem, self.width / 4, Fit::Unchanged);
        push(Kind::Stem, self.width / 2, Fit::Halved);
        for stage in 0..STAGES {
            let width = self.width << stage;
            if stage > 0 {
                push(Kind::Reduction, width, Fit::Same);
            }
            for cell in 0..self.cells {
                // The output before the last has twice the resolution.
                let fit = if cell == 0 { Fit::Halved } else { Fit::Same };
                push(Kind::Normal, width, fit);
            }
        }
        cells
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> NasNet {
        let configs = self.cells();
        let total = configs.len() as f64;
        let cell = |(index, config): (usize, &CellConfig)| {
            let keep = 1.0 - (1.0 - KEEP_PATH) * (index + 1) as f64 / total;
            config.init(keep, device)
        };
        let cells: Vec<Cell> = configs.iter().enumerate().map(cell).collect();
        let last = configs.last().map_or(self.stem, CellConfig::leaving);
        let reduction = configs.iter().rfind(|cell| cell.kind == Kind::Reduction);
        let auxiliary_entering = reduction.map_or(self.stem, |cell| cell.entering[0]);
        let pooled = auxiliary_map(self.image).expect("a size that `check` accepts");
        let [narrow, wide] = self.auxiliary;
        NasNet {
            conv0: Conv2dConfig::new([3, self.stem], [3, 3])
                .with_stride([2, 2])
                .with_bias(false)
                .init(device),
            norm0: norm(self.stem, device),
            cells,
            avgpool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            dropout: DropoutConfig::new(0.5).init(),
            classifier: LinearConfig::new(last, self.classes).init(device),
            auxiliary: Auxiliary {
                avgpool: AvgPool2dConfig::new([5, 5]).with_strides([3, 3]).init(),
                conv1: point([auxiliary_entering, narrow], device),
                norm1: norm(narrow, device),
                conv2: Conv2dConfig::new([narrow, wide], pooled)
                    .with_bias(false)
                    .init(device),
                norm2: norm(wide, device),
                classifier: LinearConfig::new(wide, self.classes).init(device),
            },
        }
    }
}

/// Height and width of the input of the auxiliary classifier's second convolution; `None` if the
/// image is too small.
fn auxiliary_map(image: [usize; 2]) -> Option<[usize; 2]> {
    let side = |pixels: usize| {
        let stem = pixels.checked_sub(3)? / 2 + 1;
        let map = (0..STAGES).fold(stem, |size, _| size.div_ceil(2));
        Some(map.checked_sub(5)? / 3 + 1)
    };
    Some([side(image[0])?, side(image[1])?])
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct NasNet {
    conv0: Conv2d,
    norm0: BatchNorm,
    cells: Vec<Cell>,
    avgpool: AdaptiveAvgPool2d,
    dropout: Dropout,
    classifier: Linear,
    auxiliary: Auxiliary,
}

impl NasNet {
    /// Class scores `[batch, classes]` of `images: [batch, 3, height, width]`, by the classifier
    /// and by the auxiliary one.
    pub fn forward(&self, images: Tensor<4>) -> [Tensor<2>; 2] {
        let x = self.norm0.forward(self.conv0.forward(images));
        let (mut last, mut before) = (x.clone(), x);
        let mut auxiliary = last.clone();
        for cell in &self.cells {
            let output = cell.forward(last.clone(), before.clone());
            if cell.reduces {
                auxiliary = last;
            } else {
                before = last;
            }
            last = output;
        }
        let auxiliary = self.auxiliary.forward(auxiliary);
        let x = self.avgpool.forward(relu(last)).flatten(1, 3);
        [self.classifier.forward(self.dropout.forward(x)), auxiliary]
    }
}

/// The auxiliary classifier, which reads the input of the last reduction.
#[derive(Module, Debug)]
struct Auxiliary {
    avgpool: AvgPool2d,
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
    classifier: Linear,
}

impl Auxiliary {
    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = self.avgpool.forward(relu(x));
        let x = relu(self.norm1.forward(self.conv1.forward(x)));
        let x = relu(self.norm2.forward(self.conv2.forward(x)));
        self.classifier.forward(x.flatten(1, 3))
    }
}

fn train<O: Observer>(
    config: &NasNetConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    supervised(
        config.init(device),
        job,
        device,
        steps,
        observer,
        |device| labelled_images(job, device),
        |network, (images, labels)| {
            let [scores, auxiliary] = network.forward(images);
            cross_entropy(scores, labels.clone())
                + cross_entropy(auxiliary, labels).mul_scalar(AUXILIARY_WEIGHT)
        },
    )
}

impl Network for NasNet {
    const OUTPUT_LAYERS: &'static [&'static str] = &["classifier"];

    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "nasnet-a-large",
            family: "NASNet",
            file,
            paper: "Zoph, Vasudevan, Shlens, Le 2018, Learning Transferable Architectures for Scalable Image Recognition, arXiv 1707.07012",
            reference: "tensorflow/models research/slim/nets/nasnet/nasnet.py, in the layer order of timm models/nasnet.py",
            // 88,753,150 in 1,018 tensors and 196,668 without the auxiliary classifier.
            counts: Counts {
                trainable: 93_320_934,
                tensors: 1_026,
                buffers: 198_460,
            },
            input: Input {
                image: Some([331, 331]),
                classes: Some(1000),
                ..Input::default()
            },
            batch: 16,
            optimizer: OptimizerKind::RmsProp,
            recipe: "ImageNet, 331x331, 16 images a replica (1,600 on 100), cross-entropy with label smoothing 0.1 plus 0.4 of the auxiliary classifier's, RMSProp with decay and momentum 0.9, weight decay 5e-5, dropout 0.5, paths kept with 0.7",
            differences: &[
                "the moving average of the weights is left out: 356 MiB",
                "paths are dropped as often as at the end of the training, when it is most often",
                "label smoothing, gradient clipping and weight decay are left out: they need no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        // 67 pixels become 33, 17, 9 and 5 before the auxiliary classifier's 5x5 pooling.
        job.check_image("at least 67x67".into(), |image| {
            auxiliary_map(image).is_some()
        })
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "nasnet-a-large" => NasNetConfig::published(job.image(), job.classes()),
            "nasnet-mini" => NasNetConfig::tiny(job.image(), job.classes()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    #[test]
    fn scores_have_a_row_for_each_image() {
        let device = test_support::flex();
        let network = NasNetConfig::tiny([67, 91], 10).init(&device);
        for scores in network.forward(Tensor::zeros([2, 3, 67, 91], &device)) {
            assert_eq!(scores.dims(), [2, 10]);
        }
    }

    /// Expected: the size in the reference.
    #[test]
    fn the_auxiliary_classifier_covers_six_by_six() {
        assert_eq!(auxiliary_map([331, 331]), Some([6, 6]));
        assert_eq!(auxiliary_map([66, 331]), None);
        assert_eq!(auxiliary_map([67, 331]), Some([1, 6]));
    }

    #[test]
    fn an_image_too_small_for_the_auxiliary_classifier_is_refused() {
        let error = test_support::refusal("nasnet-a-large", [331, 64]);
        assert_eq!(
            error.to_string(),
            "image size must be at least 67x67, not 331x64"
        );
    }
}
