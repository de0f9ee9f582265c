//! The cells that the architecture search found.

use burn::module::Module;
use burn::nn::PaddingConfig2d;
use burn::nn::pool::{AvgPool2d, AvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::tensor::{Device, Tensor};

use super::convolutions::{Halved, Pointwise, Separable};
use crate::blocks::drop_path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A cell that keeps the resolution.
    Normal,
    /// A cell that halves the resolution. The cell after it reads the reduction's output and the
    /// output before the reduction's last input.
    Reduction,
    /// A reduction at the beginning. The cell after it reads the last two outputs, as after a
    /// normal cell.
    Stem,
}

/// How a cell brings the output before the last to its own width and to the resolution of the last.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fit {
    /// The cell reads it unchanged.
    Unchanged,
    /// It has the same resolution; a 1x1 convolution changes the width.
    Same,
    /// It has twice the resolution; [`Halved`] changes resolution and width.
    Halved,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CellConfig {
    /// Channels of the last output and of the output before it.
    pub entering: [usize; 2],
    /// Channels of each of its paths.
    pub width: usize,
    /// Whether it halves the resolution.
    pub kind: Kind,
    /// How it reads the output before the last.
    pub fit: Fit,
}

impl CellConfig {
    /// Channels of the cell's output.
    pub fn leaving(&self) -> usize {
        match self.kind {
            Kind::Normal => 6 * self.width,
            Kind::Reduction | Kind::Stem => 4 * self.width,
        }
    }

    /// The cell on `device`; it keeps each of its paths with probability `keep`.
    pub fn init(&self, keep: f64, device: &Device) -> Cell {
        let ([last, before], width) = (self.entering, self.width);
        let left_width = match self.fit {
            Fit::Unchanged => before,
            Fit::Same | Fit::Halved => width,
        };
        let right = |kernel, stride| Separable::new([width, width], kernel, stride, device);
        let left = |kernel, stride| Separable::new([left_width, width], kernel, stride, device);
        let branches = match self.kind {
            Kind::Normal => vec![right(5, 1), left(3, 1), left(5, 1), left(3, 1), right(3, 1)],
            Kind::Reduction | Kind::Stem => {
                vec![right(5, 2), left(7, 2), left(7, 2), left(5, 2), right(3, 1)]
            }
        };
        let stride = if self.kind == Kind::Normal { 1 } else { 2 };
        Cell {
            right: Pointwise::new([last, width], device),
            left: match self.fit {
                Fit::Unchanged => None,
                Fit::Same => Some(Left::Same(Pointwise::new([before, width], device))),
                Fit::Halved => Some(Left::Halved(Halved::new([before, width], device))),
            },
            branches,
            average: average(stride),
            average_after: average(1),
            max: MaxPool2dConfig::new([3, 3])
                .with_strides([stride, stride])
                .with_padding(PaddingConfig2d::Same)
                .init(),
            normal: self.kind == Kind::Normal,
            reduces: self.kind == Kind::Reduction,
            keep,
        }
    }
}

/// A 3x3 average-pooling that does not count the padding.
fn average(stride: usize) -> AvgPool2d {
    AvgPool2dConfig::new([3, 3])
        .with_strides([stride, stride])
        .with_padding(PaddingConfig2d::Same)
        .with_count_include_pad(false)
        .init()
}

/// A normal cell or a reduction (figure 4 of the paper).
#[derive(Module, Debug)]
pub(super) struct Cell {
    right: Pointwise,
    left: Option<Left>,
    /// The separable convolutions, in the order of the figure.
    branches: Vec<Separable>,
    average: AvgPool2d,
    /// The pooling of a reduction whose input is already halved.
    average_after: AvgPool2d,
    max: MaxPool2d,
    normal: bool,
    /// Whether the kind is [`Kind::Reduction`].
    pub reduces: bool,
    keep: f64,
}

impl Cell {
    /// The output `[batch, leaving, height', width']` from the last output and the output before
    /// it, each `[batch, entering, height, width]`, where `before` may have twice the resolution.
    pub fn forward(&self, last: Tensor<4>, before: Tensor<4>) -> Tensor<4> {
        let left = match &self.left {
            None => before,
            Some(Left::Same(fit)) => fit.forward(before),
            Some(Left::Halved(fit)) => fit.forward(before),
        };
        let right = self.right.forward(last);
        let drop = |x| drop_path(x, self.keep);
        let branch = |index: usize, x: &Tensor<4>| drop(self.branches[index].forward(x.clone()));
        let average = |x: &Tensor<4>| drop(self.average.forward(x.clone()));
        let max = |x: &Tensor<4>| drop(self.max.forward(x.clone()));

        let outputs = if self.normal {
            vec![
                left.clone(),
                branch(0, &right) + branch(1, &left),
                branch(2, &left) + branch(3, &left),
                average(&right) + left.clone(),
                average(&left) + average(&left),
                branch(4, &right) + right,
            ]
        } else {
            let first = branch(0, &right) + branch(1, &left);
            let second = max(&right) + branch(2, &left);
            let third = average(&right) + branch(3, &left);
            let fourth = drop(self.average_after.forward(first.clone())) + second.clone();
            let fifth = branch(4, &first) + max(&right);
            vec![second, third, fourth, fifth]
        };
        Tensor::cat(outputs, 1)
    }
}

#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)]
enum Left {
    Same(Pointwise),
    Halved(Halved),
}
