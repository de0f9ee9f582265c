//! A batch: images, and what the reference decides about them without a gradient.

use burn::tensor::{Device, Distribution, Int, Tensor};

use super::MaskRcnnConfig;
use super::pyramid::ANCHORS;
use crate::{Batch, Job, Watcher};

/// Levels of the pyramid that regions are taken from.
pub(super) const LEVELS: usize = 4;

/// Distance of the places of a level, in pixels of the image: 4, 8, 16, 32, 64.
pub(super) fn stride(level: usize) -> usize {
    4 << level
}

/// One batch. Regions come level by level, and in a level image by image.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    /// `[batch, 3, height, width]`.
    pub images: Tensor<4>,
    /// Indices of the anchors that are looked at, those with an object first.
    pub anchors: Tensor<1, Int>,
    /// Whether each of them has an object.
    pub anchor_objects: Tensor<1>,
    /// The boxes of the first half of them.
    pub anchor_boxes: Tensor<2>,
    /// Left, top, right, bottom of the regions that are classified, `[regions, 4]`.
    pub regions: Tensor<2>,
    /// Their classes.
    pub classes: Tensor<1, Int>,
    /// The boxes of the regions with an object: the first quarter.
    pub boxes: Tensor<2>,
    /// Left, top, right, bottom of the regions with an object, `[objects, 4]`.
    pub objects: Tensor<2>,
    /// Their masks, `[objects, 1, 28, 28]`.
    pub masks: Tensor<4>,
}

impl Targets {
    /// A batch with places drawn at random, of the sizes that `config` and `job` say.
    pub fn random(config: &MaskRcnnConfig, job: &Job, device: &Device) -> Self {
        let ([height, width], batch) = (job.image(), job.batch);
        let places: usize = (0..=LEVELS)
            .map(|level| height.div_ceil(stride(level)) * width.div_ceil(stride(level)))
            .sum();
        let last = (batch * places * ANCHORS) as f64;
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

/// `count` boxes within an image, `[count, 4]`.
fn corners(count: usize, [height, width]: [usize; 2], device: &Device) -> Tensor<2> {
    let half = Tensor::<1>::from_floats([width as f32 / 2.0, height as f32 / 2.0], device);
    let random = || Tensor::<2>::random([count, 2], Distribution::Default, device);
    let first = random() * half.clone().unsqueeze::<2>();
    let second = first.clone() + random() * half.unsqueeze::<2>();
    Tensor::cat(vec![first, second], 1)
}

impl Batch for Targets {
    fn show<W: Watcher>(&self, watcher: &mut W) {
        watcher.input(&self.images);
        watcher.input(&self.anchors);
        watcher.input(&self.anchor_objects);
        watcher.input(&self.anchor_boxes);
        watcher.input(&self.regions);
        watcher.input(&self.classes);
        watcher.input(&self.boxes);
        watcher.input(&self.objects);
        watcher.input(&self.masks);
    }
}
