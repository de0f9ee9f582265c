//! The feature pyramid, and the head that proposes regions on each of its levels.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::MaxPool2d;
use burn::tensor::activation::relu;
use burn::tensor::module::interpolate;
use burn::tensor::ops::{InterpolateMode, InterpolateOptions};
use burn::tensor::{Device, Tensor};

use crate::blocks::{conv, max_pool};

/// Anchors of each cell of a level: three shapes of one size.
pub(super) const ANCHORS: usize = 3;

/// A feature pyramid on the four stages of a residual network.
#[derive(Module, Debug)]
pub(super) struct Pyramid {
    inner_blocks: Vec<Conv2d>,
    layer_blocks: Vec<Conv2d>,
    coarsest: MaxPool2d,
}

impl Pyramid {
    /// A pyramid of `width` channels on stages with `entering` channels.
    pub fn new(entering: [usize; 4], width: usize, device: &Device) -> Self {
        let layer = |entering, kernel| {
            conv([entering, width], kernel, 1)
                .with_bias(true)
                .init(device)
        };
        Self {
            inner_blocks: entering.map(|entering| layer(entering, 1)).to_vec(),
            layer_blocks: entering.map(|_| layer(width, 3)).to_vec(),
            coarsest: max_pool(1, 2, 0),
        }
    }

    /// Five maps `[batch, width, rows, columns]` from the outputs of the backbone's `stages`. The
    /// finest is first, and each has half the resolution of the one before.
    pub fn forward(&self, stages: [Tensor<4>; 4]) -> Vec<Tensor<4>> {
        let mut levels = Vec::with_capacity(stages.len() + 1);
        let mut above: Option<Tensor<4>> = None;
        let blocks = self.inner_blocks.iter().zip(&self.layer_blocks);
        for (stage, (inner, layer)) in stages.into_iter().zip(blocks).rev() {
            let mut x = inner.forward(stage);
            if let Some(above) = above {
                let [_, _, height, width] = x.dims();
                x = x + nearest(above, [height, width]);
            }
            levels.push(layer.forward(x.clone()));
            above = Some(x);
        }
        levels.reverse();
        let coarsest = levels.last().expect("a pyramid has levels").clone();
        levels.push(self.coarsest.forward(coarsest));
        levels
    }
}

fn nearest(x: Tensor<4>, size: [usize; 2]) -> Tensor<4> {
    let options = InterpolateOptions::new(InterpolateMode::Nearest).with_output_size(size);
    interpolate(x, options)
}

/// The head that computes scores and boxes of the anchors of each cell; all levels share it.
#[derive(Module, Debug)]
pub(super) struct ProposalHead {
    conv: Conv2d,
    cls_logits: Conv2d,
    bbox_pred: Conv2d,
}

impl ProposalHead {
    /// A head for levels of `width` channels.
    pub fn new(width: usize, device: &Device) -> Self {
        let point = |channels| Conv2dConfig::new([width, channels], [1, 1]).init(device);
        Self {
            conv: conv([width, width], 3, 1).with_bias(true).init(device),
            cls_logits: point(ANCHORS),
            bbox_pred: point(4 * ANCHORS),
        }
    }

    /// For all anchors of the batch, image by image, the scores `[anchors]` of an object and its
    /// box `[anchors, 4]`.
    pub fn forward(&self, levels: &[Tensor<4>]) -> (Tensor<1>, Tensor<2>) {
        let mut scores = Vec::with_capacity(levels.len());
        let mut boxes = Vec::with_capacity(levels.len());
        for level in levels {
            let x = relu(self.conv.forward(level.clone()));
            scores.push(rows::<1>(self.cls_logits.forward(x.clone())));
            boxes.push(rows::<4>(self.bbox_pred.forward(x)));
        }
        (
            Tensor::cat(scores, 1).flatten(0, 2),
            Tensor::cat(boxes, 1).flatten(0, 1),
        )
    }
}

/// `map: [batch, anchors x numbers, height, width]` as `[batch, cells x anchors, numbers]`.
fn rows<const NUMBERS: usize>(map: Tensor<4>) -> Tensor<3> {
    let [batch, channels, height, width] = map.dims();
    map.permute([0, 2, 3, 1])
        .reshape([batch, height * width * channels / NUMBERS, NUMBERS])
}
