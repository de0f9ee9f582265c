//! Mask R-CNN on ResNet-50 with a feature pyramid. See `variants` for paper, reference and
//! differences.

mod pyramid;
mod regions;
mod targets;

use burn::module::Module;
use burn::nn::loss::SmoothL1LossConfig;
use burn::tensor::{Device, Int, Tensor};

use self::pyramid::{ProposalHead, Pyramid};
use self::regions::{BoxHead, MaskHead, roi_align};
use self::targets::{LEVELS, Targets, stride};
use super::Network;
use super::resnet::{ResNet, ResNetConfig};
use crate::blocks::{binary_cross_entropy, cross_entropy};
use crate::trainer::frozen_where;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// The frozen paths: stem, first stage and all batch normalisations keep their ImageNet weights.
const FROZEN: [&str; 2] = [r"^body\.(conv1|layer1)\.", r"^body\.(.*\.)?bn\d?\."];

/// The configuration of a [`MaskRcnn`] and of its training.
#[derive(Clone, Debug)]
pub(crate) struct MaskRcnnConfig {
    /// The backbone.
    pub body: ResNetConfig,
    /// Channels of the pyramid.
    pub width: usize,
    /// Width of the two hidden layers of the box head.
    pub hidden: usize,
    /// Classes of the objects; the first is the background.
    pub classes: usize,
    /// Sampled anchors of each image, half of them with an object.
    pub anchors: usize,
    /// Regions of each image that the box head reads.
    pub regions: usize,
    /// Regions of each image with an object, which have a box and a mask.
    pub objects: usize,
}

impl MaskRcnnConfig {
    /// The published network.
    fn published(classes: usize) -> Self {
        Self {
            body: ResNetConfig::published("resnet-50", None),
            width: 256,
            hidden: 1024,
            classes,
            anchors: 256,
            regions: 512,
            objects: 128,
        }
    }

    /// A network on a backbone with one block in each stage.
    fn tiny(classes: usize) -> Self {
        Self {
            body: ResNetConfig {
                blocks: vec![1, 1, 1, 1],
                width: 4,
                ..ResNetConfig::published("resnet-50", None)
            },
            width: 8,
            hidden: 16,
            classes,
            anchors: 8,
            regions: 8,
            objects: 4,
        }
    }

    /// The network on `device`, with [`FROZEN`] frozen.
    pub fn init(&self, device: &Device) -> MaskRcnn {
        let entering = [0, 1, 2, 3].map(|stage| self.body.channels(stage));
        let network = MaskRcnn {
            body: self.body.init(device),
            fpn: Pyramid::new(entering, self.width, device),
            rpn: ProposalHead::new(self.width, device),
            box_head: BoxHead::new(self.width, self.hidden, self.classes, device),
            mask_head: MaskHead::new(self.width, self.classes, device),
        };
        frozen_where(network, &FROZEN)
    }
}

/// The network.
#[derive(Module, Debug)]
pub(crate) struct MaskRcnn {
    body: ResNet,
    fpn: Pyramid,
    rpn: ProposalHead,
    box_head: BoxHead,
    mask_head: MaskHead,
}

impl MaskRcnn {
    /// The sum `[1]` of the five losses of a batch.
    fn loss(&self, targets: Targets) -> Tensor<1> {
        let levels = self.fpn.forward(self.body.stages(targets.images));
        // torchvision has this beta for the boxes of both heads.
        let smooth_l1 = SmoothL1LossConfig::new().with_beta(1.0 / 9.0).init();

        let (scores, boxes) = self.rpn.forward(&levels);
        let [sampled] = targets.anchors.dims();
        let scores = scores.select(0, targets.anchors.clone());
        let objectness = binary_cross_entropy(scores, targets.anchor_objects).mean();
        let with_object = targets.anchors.narrow(0, 0, sampled / 2);
        let proposals = smooth_l1
            .forward(boxes.select(0, with_object), targets.anchor_boxes)
            .sum()
            .div_scalar(sampled as f64);

        let (scores, boxes) = self
            .box_head
            .forward(align(&levels, targets.regions, BoxHead::BINS));
        let [regions, classes] = scores.dims();
        let [objects, _] = targets.boxes.dims();
        let of_objects = targets.classes.clone().narrow(0, 0, objects);
        let class = cross_entropy(scores, targets.classes);
        let boxes = boxes
            .narrow(0, 0, objects)
            .reshape([objects * classes, 4])
            .select(0, rows_of(of_objects.clone(), classes));
        let position = smooth_l1
            .forward(boxes, targets.boxes)
            .sum()
            .div_scalar(regions as f64);

        let masks = self
            .mask_head
            .forward(align(&levels, targets.objects, MaskHead::BINS));
        let [_, _, height, width] = masks.dims();
        let masks = masks
            .reshape([objects * classes, 1, height, width])
            .select(0, rows_of(of_objects, classes));
        let mask = binary_cross_entropy(masks, targets.masks).mean();

        objectness + proposals + class + position + mask
    }
}

/// The indices `[objects]` of the rows of the objects' own classes, where each object has a row for
/// each class.
fn rows_of(classes_of_objects: Tensor<1, Int>, classes: usize) -> Tensor<1, Int> {
    let [objects] = classes_of_objects.dims();
    let first = Tensor::<1, Int>::arange(0..objects as i64, &classes_of_objects.device());
    first.mul_scalar(classes as i64) + classes_of_objects
}

/// The features `[regions, channels, bins, bins]` of `regions: [regions, 4]`, a quarter of them
/// from each level.
fn align(levels: &[Tensor<4>], regions: Tensor<2>, bins: usize) -> Tensor<4> {
    let of_levels = regions.chunk(LEVELS, 0);
    let features = levels.iter().zip(of_levels).enumerate();
    let features = features.map(|(level, (map, regions))| {
        roi_align(map.clone(), regions.div_scalar(stride(level) as f64), bins)
    });
    Tensor::cat(features.collect(), 0)
}

fn train<O: Observer>(
    config: &MaskRcnnConfig,
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
        |device| Targets::random(config, job, device),
        |network, targets| network.loss(targets),
    )
}

impl Network for MaskRcnn {
    const OUTPUT_LAYERS: &'static [&'static str] = &["cls_score", "bbox_pred"];

    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "mask-rcnn-r50-fpn",
            family: "Mask R-CNN",
            file,
            paper: "He, Gkioxari, Dollar, Girshick 2017, Mask R-CNN, arXiv 1703.06870; Lin et al. 2017, Feature Pyramid Networks for Object Detection, arXiv 1612.03144",
            reference: "pytorch/vision torchvision/models/detection/mask_rcnn.py with its three trainable stages, references/detection",
            // With the frozen stem and first stage, 44,401,393 elements in 95 tensors.
            // torchvision counts the scale and shift of its batch normalisations as buffers
            // too, which makes twice as many.
            counts: Counts {
                trainable: 44_178_993,
                tensors: 84,
                buffers: 53_120,
            },
            input: Input {
                image: Some([800, 1344]),
                classes: Some(91),
                ..Input::default()
            },
            batch: 2,
            optimizer: OptimizerKind::Momentum,
            recipe: "COCO, shorter side 800, longer at most 1333 padded to 1344, 2 images a card (16 on 8), 256 anchors and 512 regions an image, SGD with momentum 0.9, weight decay 1e-4; stem, first stage and batch normalisations keep their ImageNet weights",
            differences: &[
                "proposals, matches and samples come with the batch: decoding, suppressing and matching need about 10 MiB an image at 800x1344, and as much for each annotated object, for a moment",
                "each of the four levels has a quarter of the regions: the features have the same size whatever the level",
                "RoIAlign gathers the pixels of a bin one by one: an index and a weight of each of its 16 pixels are kept, 12 MiB for two images, and a second gradient of a level exists for a moment",
                "the scale and the shift of frozen normalisations are frozen parameters here and buffers in the reference, which so counts 106,240 values in buffers",
                "weight decay is left out: it needs no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        // The reference pads its batches to such sizes.
        job.check_image("a multiple of 32 each way".into(), |image| {
            image.into_iter().all(|size| size % 32 == 0)
        })
    }

    fn frozen_paths(_variant: &Variant) -> &'static [&'static str] {
        &FROZEN
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "mask-rcnn-r50-fpn" => MaskRcnnConfig::published(job.classes()),
            "mask-rcnn-mini" => MaskRcnnConfig::tiny(job.classes()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use burn::optim::GradientsParams;

    use super::*;
    use crate::{Request, find, test_support};

    fn request() -> Request {
        Request {
            batch: Some(2),
            optimizer: Some(OptimizerKind::Adam),
            input: Input {
                image: Some([64, 96]),
                ..Input::default()
            },
            ..Request::default()
        }
    }

    /// Expected: the strides 4, 8, 16, 32 and 64 of torchvision's documentation.
    #[test]
    fn each_level_is_half_as_large() {
        let device = test_support::flex();
        let network = MaskRcnnConfig::tiny(3).init(&device);
        let stages = network.body.stages(Tensor::zeros([1, 3, 64, 128], &device));
        let sizes: Vec<_> = network
            .fpn
            .forward(stages)
            .iter()
            .map(|level| [level.dims()[2], level.dims()[3]])
            .collect();
        assert_eq!(sizes, [[16, 32], [8, 16], [4, 8], [2, 4], [1, 2]]);
    }

    /// Stem and first stage of the tiny network are frozen, so its body has 3 stages of 4
    /// convolutions with a gradient. Pyramid, proposal head, box head and mask head have 16, 6, 8
    /// and 12 tensors.
    #[test]
    fn frozen_parameters_get_no_gradient() {
        let device = test_support::flex().autodiff();
        let variant = find("mask-rcnn-r50-fpn").unwrap();
        let job = request().resolve(&variant).unwrap();
        let config = MaskRcnnConfig::tiny(3);
        let network = config.init(&device);
        let loss = network.loss(Targets::random(&config, &job, &device));
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        assert_eq!(gradients.len(), 3 * 4 + 16 + 6 + 8 + 12);
    }
}
