//! A batch: images, and the targets that the reference computes without a gradient.

use burn::tensor::{Device, Distribution, Int, Tensor};

use super::MaskRcnnConfig;
use super::pyramid::ANCHORS;
use crate::{Batch, Job, Observer};

/// Levels of the pyramid that have regions.
pub(super) const LEVELS: usize = 4;

/// Distance of the cells of a level, in pixels of the image: 4, 8, 16, 32, 64.
pub(super) fn stride(level: usize) -> usize {
    4 << level
}

/// One batch. Regions are in the order of their levels, and within a level of their images.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    /// Images, `[batch, 3, height, width]`.
    pub images: Tensor<4>,
    /// Indices `[anchors]` of the sampled anchors, those with an object first.
    pub anchors: Tensor<1, Int>,
    /// 1 for each sampled anchor with an object, else 0, `[anchors]`.
    pub anchor_objects: Tensor<1>,
    /// The boxes of the first half of the sampled anchors, `[anchors / 2, 4]`.
    pub anchor_boxes: Tensor<2>,
    /// Left, top, right, bottom of the regions, `[regions, 4]`.
    pub regions: Tensor<2>,
    /// The classes of the regions, `[regions]`.
    pub classes: Tensor<1, Int>,
    /// The boxes of the regions with an object, the first quarter of them, `[objects, 4]`.
    pub boxes: Tensor<2>,
    /// Left, top, right, bottom of the regions with an object, `[objects, 4]`.
    pub objects: Tensor<2>,
    /// The masks of the regions with an object, `[objects, 1, 28, 28]`.
    pub masks: Tensor<4>,
}

impl Targets {
    /// A batch with the sizes of `config` and `job`, whose anchors and regions are random.
    pub fn random(config: &MaskRcnnConfig, job: &Job, device: &Device) -> Self {
        let ([height, width], batch) = (job.image(), job.batch);
        let cells: usize = (0..=LEVELS)
            .map(|level| height.div_ceil(stride(level)) * width.div_ceil(stride(level)))
            .sum();
        let last = (batch * cells * ANCHORS) as f64;
        let anchors = batch * config.anchors;
        let regions = batch * config.regions;
        let objects = batch * config.objects;
        Self {
            images: Tensor::random([batch, 3, height, width], Distribution::Default, device),
            anchors: Tensor::random([anchors], Distribution::Uniform(0.0, last), device),
            anchor_objects: Tensor::ones([anchors], device),
            anchor_boxes: Tensor::zeros([anchors / 2, 4], device),
            regions: corners(regions, [height, width], device),
            classes: Tensor::zeros([regions], device),
            boxes: Tensor::zeros([objects, 4], device),
            objects: corners(objects, [height, width], device),
            masks: Tensor::ones([objects, 1, 28, 28], device),
        }
    }
}

/// `count` random boxes within an image: left, top, right, bottom, `[count, 4]`.
fn corners(count: usize, [height, width]: [usize; 2], device: &Device) -> Tensor<2> {
    let half = Tensor::<1>::from_floats([width as f32 / 2.0, height as f32 / 2.0], device);
    let random = || Tensor::<2>::random([count, 2], Distribution::Default, device);
    let first = random() * half.clone().unsqueeze::<2>();
    let second = first.clone() + random() * half.unsqueeze::<2>();
    Tensor::cat(vec![first, second], 1)
}

impl Batch for Targets {
    fn show<O: Observer>(&self, observer: &mut O) {
        observer.input(&self.images);
        observer.input(&self.anchors);
        observer.input(&self.anchor_objects);
        observer.input(&self.anchor_boxes);
        observer.input(&self.regions);
        observer.input(&self.classes);
        observer.input(&self.boxes);
        observer.input(&self.objects);
        observer.input(&self.masks);
    }
}
