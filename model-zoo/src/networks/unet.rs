//! The classic U-Net, with unpadded convolutions, cropped skip connections and no normalisation.
//! See `variants` for paper, reference and differences.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::pool::MaxPool2d;
use burn::nn::{Dropout, DropoutConfig, Relu};
use burn::tensor::{Device, Distribution, Tensor, s};

use super::Network;
use crate::blocks::{cross_entropy_per_pixel, max_pool};
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// Poolings on the way down.
const DEPTH: usize = 4;

/// The configuration of a [`UNet`].
#[derive(Clone, Debug)]
pub(crate) struct UNetConfig {
    /// Channels of the image.
    pub channels: usize,
    /// Channels at full resolution; each pooling doubles them.
    pub width: usize,
    /// Classes of the output.
    pub classes: usize,
}

impl UNetConfig {
    /// The published network.
    fn published(classes: usize) -> Self {
        Self {
            channels: 1,
            width: 64,
            classes,
        }
    }

    fn tiny(classes: usize) -> Self {
        Self {
            width: 2,
            ..Self::published(classes)
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> UNet {
        let width = |level: usize| self.width << level;
        let entering = |level: usize| match level {
            0 => self.channels,
            _ => width(level - 1),
        };
        UNet {
            down: (0..=DEPTH)
                .map(|level| DoubleConv::new([entering(level), width(level)], device))
                .collect(),
            pool: max_pool(2, 2, 0),
            dropout: DropoutConfig::new(0.5).init(),
            up: (0..DEPTH)
                .rev()
                .map(|level| Up::new(width(level), device))
                .collect(),
            last: Conv2dConfig::new([self.width, self.classes], [1, 1]).init(device),
        }
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct UNet {
    down: Vec<DoubleConv>,
    pool: MaxPool2d,
    dropout: Dropout,
    up: Vec<Up>,
    last: Conv2d,
}

impl UNet {
    /// Class scores `[batch, classes, height - 184, width - 184]` of `images: [batch, channels,
    /// height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let mut skips = Vec::with_capacity(DEPTH);
        let mut x = images;
        for (level, down) in self.down.iter().enumerate() {
            if level > 0 {
                skips.push(x.clone());
                x = self.pool.forward(x);
            }
            x = down.forward(x);
            if level + 1 >= DEPTH {
                // "At the end of the contracting path", section 3.1.
                x = self.dropout.forward(x);
            }
        }
        for (up, skip) in self.up.iter().zip(skips.into_iter().rev()) {
            x = up.forward(x, skip);
        }
        self.last.forward(x)
    }
}

/// Two unpadded 3x3 convolutions.
#[derive(Module, Debug)]
struct DoubleConv {
    conv1: Conv2d,
    conv2: Conv2d,
    relu: Relu,
}

impl DoubleConv {
    fn new([entering, leaving]: [usize; 2], device: &Device) -> Self {
        Self {
            conv1: Conv2dConfig::new([entering, leaving], [3, 3]).init(device),
            conv2: Conv2dConfig::new([leaving, leaving], [3, 3]).init(device),
            relu: Relu::new(),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.relu.forward(self.conv1.forward(x));
        self.relu.forward(self.conv2.forward(x))
    }
}

/// Doubles the resolution, and concatenates the map of the same resolution on the way down.
#[derive(Module, Debug)]
struct Up {
    up: ConvTranspose2d,
    convs: DoubleConv,
}

impl Up {
    fn new(width: usize, device: &Device) -> Self {
        Self {
            up: ConvTranspose2dConfig::new([2 * width, width], [2, 2])
                .with_stride([2, 2])
                .init(device),
            convs: DoubleConv::new([2 * width, width], device),
        }
    }

    fn forward(&self, x: Tensor<4>, skip: Tensor<4>) -> Tensor<4> {
        let x = self.up.forward(x);
        let [_, _, height, width] = x.dims();
        let [_, _, skip_height, skip_width] = skip.dims();
        let (top, left) = ((skip_height - height) / 2, (skip_width - width) / 2);
        let skip = skip.slice(s![.., .., top..top + height, left..left + width]);
        self.convs.forward(Tensor::cat(vec![skip, x], 1))
    }
}

/// Height or width of the output for that of the image; `None` if it is odd before a pooling, or
/// if a convolution has no output.
fn output_size(image: usize) -> Option<usize> {
    let convs = |size: usize| size.checked_sub(4).filter(|&size| size > 0);
    let mut size = image;
    for _ in 0..DEPTH {
        size = convs(size).filter(|size| size % 2 == 0)? / 2;
    }
    size = convs(size)?;
    for _ in 0..DEPTH {
        size = convs(2 * size)?;
    }
    Some(size)
}

/// Trains the network that `config` describes.
fn train<O: Observer>(
    config: &UNetConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let [height, width] = job.image();
    let size = |image| output_size(image).expect("a size that `check` accepts");
    let images = [job.batch, config.channels, height, width];
    let labels = [job.batch, 1, size(height), size(width)];
    supervised(
        config.init(device),
        job,
        device,
        steps,
        observer,
        |device| {
            (
                Tensor::<4>::random(images, Distribution::Default, device),
                Tensor::zeros(labels, device),
            )
        },
        |network, (images, labels)| cross_entropy_per_pixel(network.forward(images), labels),
    )
}

impl Network for UNet {
    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "unet",
            family: "U-Net",
            file,
            paper: "Ronneberger, Fischer, Brox 2015, U-Net: Convolutional Networks for Biomedical Image Segmentation, arXiv 1505.04597",
            reference: "section 2 and figure 1 of the paper",
            counts: Counts {
                trainable: 31_030_658,
                tensors: 46,
                buffers: 0,
            },
            input: Input {
                image: Some([572, 572]),
                classes: Some(2),
                ..Input::default()
            },
            batch: 1,
            optimizer: OptimizerKind::Momentum,
            recipe: "one 572x572 tile with one channel, pixel-wise cross-entropy, SGD with momentum 0.99, dropout at the end of the contracting path",
            differences: &["the weight map of the loss is left out: 0.6 MiB at 572x572"],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        // 188 = 16 x 11 + 12 is the smallest size with an output.
        job.check_image(
            "at least 188x188 and 12 more than a multiple of 16 each way".into(),
            |image| image.into_iter().all(|size| output_size(size).is_some()),
        )
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "unet" => UNetConfig::published(job.classes()),
            "unet-mini" => UNetConfig::tiny(job.classes()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    /// Figure 1 of the paper.
    #[test]
    fn a_tile_of_572_gives_a_map_of_388() {
        assert_eq!(output_size(572), Some(388));
    }

    #[test]
    fn the_map_has_its_computed_size() {
        let device = test_support::flex();
        let scores = UNetConfig::tiny(2)
            .init(&device)
            .forward(Tensor::zeros([1, 1, 188, 204], &device));
        assert_eq!(scores.dims(), [1, 2, 4, 20]);
        assert_eq!((output_size(188), output_size(204)), (Some(4), Some(20)));
    }

    #[test]
    fn a_tile_that_does_not_halve_is_refused() {
        let accepted: Vec<_> = (1..=240)
            .filter(|&size| output_size(size).is_some())
            .collect();
        assert_eq!(accepted, [188, 204, 220, 236]);
        test_support::refusal("unet", [512, 572]);
    }
}
