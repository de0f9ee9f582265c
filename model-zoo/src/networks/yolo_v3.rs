//! YOLOv3, an object detector on Darknet-53. See `variants` for paper, reference and differences.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::interpolate::{Interpolate2d, Interpolate2dConfig};
use burn::tensor::activation::{leaky_relu, sigmoid};
use burn::tensor::{Device, Distribution, Tensor, s};

use super::Network;
use crate::blocks::{ConvNorm, binary_cross_entropy, conv};
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// Boxes of each cell of an output map.
const ANCHORS: usize = 3;

/// The configuration of a [`YoloV3`].
#[derive(Clone, Debug)]
pub(crate) struct YoloV3Config {
    /// Channels of the first convolution's output; each of the five groups doubles them.
    pub width: usize,
    /// Residual blocks of each group.
    pub blocks: [usize; 5],
    /// Classes of the objects.
    pub classes: usize,
}

impl YoloV3Config {
    /// The published network, on Darknet-53.
    fn published(classes: usize) -> Self {
        Self {
            width: 32,
            blocks: [1, 2, 8, 8, 4],
            classes,
        }
    }

    fn tiny(classes: usize) -> Self {
        Self {
            width: 2,
            blocks: [1, 1, 1, 1, 1],
            classes,
        }
    }

    /// Numbers that describe one box: position (2), size (2), objectness, and a score of each
    /// class.
    fn numbers(&self) -> usize {
        5 + self.classes
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> YoloV3 {
        let width = |group: usize| self.width << group;
        let outputs = ANCHORS * self.numbers();
        let head = |entering, width| Head::new(entering, width, outputs, device);
        let lateral = |group| Unit::new([width(group), width(group - 1)], 1, 1, device);
        YoloV3 {
            stem: Unit::new([3, width(0)], 3, 1, device),
            groups: (0..5)
                .map(|group| Group::new(width(group), self.blocks[group], device))
                .collect(),
            coarse: head(width(5), width(4)),
            to_middle: lateral(4),
            middle: head(width(4) + width(3), width(3)),
            to_fine: lateral(3),
            fine: head(width(3) + width(2), width(2)),
            upsample: Interpolate2dConfig::new()
                .with_scale_factor(Some([2.0, 2.0]))
                .init(),
        }
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct YoloV3 {
    stem: Unit,
    groups: Vec<Group>,
    coarse: Head,
    to_middle: Unit,
    middle: Head,
    to_fine: Unit,
    fine: Head,
    upsample: Interpolate2d,
}

impl YoloV3 {
    /// Boxes `[batch, 3 x (5 + classes), height / n, width / n]` for n = 32, 16 and 8, from
    /// `images: [batch, 3, height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> [Tensor<4>; 3] {
        let mut x = self.stem.forward(images);
        let mut maps = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            x = group.forward(x);
            maps.push(x.clone());
        }
        let (coarse, x) = self.coarse.forward(x);
        let x = self.upsample.forward(self.to_middle.forward(x));
        let x = Tensor::cat(vec![x, maps.swap_remove(3)], 1);
        let (middle, x) = self.middle.forward(x);
        let x = self.upsample.forward(self.to_fine.forward(x));
        let x = Tensor::cat(vec![x, maps.swap_remove(2)], 1);
        let (fine, _) = self.fine.forward(x);
        [coarse, middle, fine]
    }
}

/// A convolution, batch normalisation and leaky ReLU.
#[derive(Module, Debug)]
struct Unit {
    conv: ConvNorm,
}

impl Unit {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, device: &Device) -> Self {
        Self {
            conv: ConvNorm::new(conv(channels, kernel, stride), device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        leaky_relu(self.conv.forward(x), 0.1)
    }
}

/// A unit that halves the resolution and doubles the channels, and residual blocks after it.
#[derive(Module, Debug)]
struct Group {
    down: Unit,
    blocks: Vec<Residual>,
}

impl Group {
    fn new(width: usize, blocks: usize, device: &Device) -> Self {
        Self {
            down: Unit::new([width, 2 * width], 3, 2, device),
            blocks: (0..blocks)
                .map(|_| Residual {
                    conv1: Unit::new([2 * width, width], 1, 1, device),
                    conv2: Unit::new([width, 2 * width], 3, 1, device),
                })
                .collect(),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let mut x = self.down.forward(x);
        for block in &self.blocks {
            let residual = block.conv2.forward(block.conv1.forward(x.clone()));
            x = x + residual;
        }
        x
    }
}

#[derive(Module, Debug)]
struct Residual {
    conv1: Unit,
    conv2: Unit,
}

/// The layers that compute the boxes of one resolution.
#[derive(Module, Debug)]
struct Head {
    convs: Vec<Unit>,
    widen: Unit,
    boxes: Conv2d,
}

impl Head {
    fn new(entering: usize, width: usize, outputs: usize, device: &Device) -> Self {
        let narrow = |entering| Unit::new([entering, width], 1, 1, device);
        let widen = || Unit::new([width, 2 * width], 3, 1, device);
        Self {
            convs: vec![
                narrow(entering),
                widen(),
                narrow(2 * width),
                widen(),
                narrow(2 * width),
            ],
            widen: widen(),
            boxes: Conv2dConfig::new([2 * width, outputs], [1, 1]).init(device),
        }
    }

    /// The boxes, and the map that the next finer head reads, from `x: [batch, entering, height,
    /// width]`.
    fn forward(&self, x: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let mut x = x;
        for conv in &self.convs {
            x = conv.forward(x);
        }
        (self.boxes.forward(self.widen.forward(x.clone())), x)
    }
}

/// The loss `[1]` of the boxes of one map against their targets, both `[batch, 3 x numbers, height,
/// width]`: squared errors of position and size, cross-entropy of objectness and classes. Of a cell
/// without an object only the objectness counts.
fn loss(boxes: Tensor<4>, targets: Tensor<4>, numbers: usize) -> Tensor<1> {
    let [batch, _, height, width] = boxes.dims();
    let shape = [batch * ANCHORS, numbers, height, width];
    let (boxes, targets) = (boxes.reshape(shape), targets.reshape(shape));
    let part = |tensor: &Tensor<4>, range: std::ops::Range<usize>| {
        tensor.clone().slice(s![.., range, .., ..])
    };
    let object = part(&targets, 4..5);
    let square = |difference: Tensor<4>| (difference * object.clone()).square().sum();

    let position = square(sigmoid(part(&boxes, 0..2)) - part(&targets, 0..2));
    let size = square(part(&boxes, 2..4) - part(&targets, 2..4));
    let objectness = binary_cross_entropy(part(&boxes, 4..5), object.clone()).sum();
    let classes = binary_cross_entropy(part(&boxes, 5..numbers), part(&targets, 5..numbers));
    position + size + objectness + (classes * object).sum()
}

fn train<O: Observer>(
    config: &YoloV3Config,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let ([height, width], batch) = (job.image(), job.batch);
    let numbers = config.numbers();
    supervised(
        config.init(device),
        job,
        device,
        steps,
        observer,
        |device| {
            let images = [batch, 3, height, width];
            let images = Tensor::<4>::random(images, Distribution::Default, device);
            let targets = |n: usize| {
                let shape = [batch, ANCHORS * numbers, height / n, width / n];
                // Not `Tensor::full`: with autodiff burn 0.22.1 makes its values on the host.
                Tensor::<4>::ones(shape, device) * 0.5
            };
            (images, targets(32), targets(16), targets(8))
        },
        |network, (images, coarse, middle, fine)| {
            let [a, b, c] = network.forward(images);
            loss(a, coarse, numbers) + loss(b, middle, numbers) + loss(c, fine, numbers)
        },
    )
}

impl Network for YoloV3 {
    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "yolov3",
            family: "YOLO",
            file,
            paper: "Redmon, Farhadi 2018, YOLOv3: An Incremental Improvement, arXiv 1804.02767",
            reference: "pjreddie/darknet cfg/yolov3.cfg, src/yolo_layer.c",
            counts: Counts {
                trainable: 61_949_149,
                tensors: 222,
                buffers: 52_608,
            },
            input: Input {
                image: Some([608, 608]),
                classes: Some(80),
                ..Input::default()
            },
            batch: 4,
            optimizer: OptimizerKind::Momentum,
            recipe: "COCO at 608x608, the largest of the sizes drawn while training; batch 64 as 16 subdivisions of 4 (--accumulate 16), squares and cross-entropies summed, SGD with momentum 0.9, weight decay 5e-4; everything is trained, from ImageNet weights",
            differences: &[
                "the targets come with the batch, as large as the output; darknet builds them on the host from the boxes and sends the output's gradient, which is as large",
                "burn keeps a mask of each leaky ReLU; darknet's activations overwrite their input",
                "weight decay is left out: it needs no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        // The network doubles coarse maps and concatenates them with finer ones, so each halving
        // must be exact.
        job.check_image("a multiple of 32 each way".into(), |image| {
            image.into_iter().all(|size| size % 32 == 0)
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
            "yolov3" => YoloV3Config::published(job.classes()),
            "yolov3-mini" => YoloV3Config::tiny(job.classes()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    /// Section 2.3 of the paper: three boxes a cell at three scales, which are 10,647 at 416x416.
    #[test]
    fn there_are_as_many_boxes_as_published() {
        let device = test_support::flex();
        let maps = YoloV3Config::tiny(3)
            .init(&device)
            .forward(Tensor::zeros([1, 3, 416, 416], &device));
        let boxes = maps.map(|map| {
            let [_, channels, height, width] = map.dims();
            assert_eq!(channels, ANCHORS * 8);
            ANCHORS * height * width
        });
        assert_eq!(boxes.iter().sum::<usize>(), 10_647);
    }

    #[test]
    fn a_size_that_does_not_halve_is_refused() {
        let error = test_support::refusal("yolov3", [608, 600]);
        assert_eq!(
            error.to_string(),
            "image size must be a multiple of 32 each way, not 608x600"
        );
    }
}
