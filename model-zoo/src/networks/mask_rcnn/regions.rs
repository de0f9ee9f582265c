//! RoIAlign, and the heads that compute class, box and mask of each region.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, s};

use crate::blocks::conv;

/// Samples along each side of a bin (torchvision's `sampling_ratio`).
const SAMPLES: usize = 2;

/// RoIAlign: the features `[regions, channels, bins, bins]` of `regions` of `map: [batch, channels,
/// height, width]`. In each bin it takes the mean of four bilinear samples.
///
/// `regions: [regions, 4]` are left, top, right, bottom in pixels of the map, image by image, and
/// each image has as many. Each of the sixteen pixels of a bin is gathered separately, so that burn
/// keeps only its index and its weight for the backward pass.
pub(super) fn roi_align(map: Tensor<4>, regions: Tensor<2>, bins: usize) -> Tensor<4> {
    let [batch, channels, height, width] = map.dims();
    let [count, _] = regions.dims();
    let pixels = map
        .permute([0, 2, 3, 1])
        .reshape([batch * height * width, channels]);
    let first_pixel = first_pixels(count, batch, height * width, &pixels.device());
    let side = |column: usize| regions.clone().slice(s![.., column..column + 1]);
    let [left, top, right, bottom] = [0, 1, 2, 3].map(side);

    let mut sum: Option<Tensor<2>> = None;
    for row_sample in 0..SAMPLES {
        let rows = Samples::new(&top, &bottom, bins, row_sample, height);
        for column_sample in 0..SAMPLES {
            let columns = Samples::new(&left, &right, bins, column_sample, width);
            for (row, row_weight) in rows.neighbours() {
                for (column, column_weight) in columns.neighbours() {
                    let cells = [count, bins, bins];
                    let row = row.clone().mul_scalar(width as i64).unsqueeze_dim::<3>(2);
                    let column = column.unsqueeze_dim::<3>(1);
                    let index = row.expand(cells) + column.expand(cells);
                    let index = index + first_pixel.clone().expand(cells);
                    let weight = row_weight.clone().unsqueeze_dim::<3>(2).expand(cells)
                        * column_weight.unsqueeze_dim::<3>(1).expand(cells);
                    let picked = pixels.clone().select(0, index.flatten(0, 2));
                    let part = picked * weight.reshape([count * bins * bins, 1]);
                    sum = Some(match sum {
                        None => part,
                        Some(sum) => sum + part,
                    });
                }
            }
        }
    }
    sum.expect("a bin has samples")
        .div_scalar((SAMPLES * SAMPLES) as i64)
        .reshape([count, bins, bins, channels])
        .permute([0, 3, 1, 2])
}

/// The index of the first pixel of each region's image, `[regions, 1, 1]`.
fn first_pixels(count: usize, batch: usize, pixels: usize, device: &Device) -> Tensor<3, Int> {
    Tensor::<1, Int>::arange(0..batch as i64, device)
        .mul_scalar(pixels as i64)
        .reshape([batch, 1])
        .expand([batch, count / batch])
        .reshape([count, 1, 1])
}

/// One sample in each bin along one side of the regions.
struct Samples {
    /// The pixel before each sample `[regions, bins]`.
    before: Tensor<2>,
    /// The distance of the sample from that pixel, `[regions, bins]`.
    fraction: Tensor<2>,
    /// Pixels along this side of the map.
    size: usize,
}

impl Samples {
    fn new(from: &Tensor<2>, to: &Tensor<2>, bins: usize, sample: usize, size: usize) -> Self {
        let offset = (sample as f64 + 0.5) / SAMPLES as f64;
        let relative = Tensor::<1, Int>::arange(0..bins as i64, &from.device())
            .float()
            .add_scalar(offset)
            .div_scalar(bins as f64)
            .unsqueeze::<2>();
        let position =
            (from.clone() + (to.clone() - from.clone()) * relative).clamp(0.0, (size - 1) as f64);
        let before = position.clone().floor();
        Self {
            fraction: position - before.clone(),
            before,
            size,
        }
    }

    /// The indices and the weights of the pixels before and after each sample.
    fn neighbours(&self) -> [(Tensor<2, Int>, Tensor<2>); 2] {
        let after = self.before.clone().add_scalar(1.0);
        let after = after.clamp_max((self.size - 1) as f64);
        [
            (
                self.before.clone().int(),
                self.fraction.clone().neg().add_scalar(1.0),
            ),
            (after.int(), self.fraction.clone()),
        ]
    }
}

/// The head that computes classes and boxes of regions.
#[derive(Module, Debug)]
pub(super) struct BoxHead {
    fc6: Linear,
    fc7: Linear,
    cls_score: Linear,
    bbox_pred: Linear,
}

impl BoxHead {
    /// Bins along each side of a region.
    pub const BINS: usize = 7;

    /// A head for maps of `width` channels.
    pub fn new(width: usize, hidden: usize, classes: usize, device: &Device) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        Self {
            fc6: linear(width * Self::BINS * Self::BINS, hidden),
            fc7: linear(hidden, hidden),
            cls_score: linear(hidden, classes),
            bbox_pred: linear(hidden, 4 * classes),
        }
    }

    /// Class scores `[regions, classes]` and a box for each class, `[regions, 4 x classes]`, from
    /// the features `regions: [regions, width, 7, 7]`.
    pub fn forward(&self, regions: Tensor<4>) -> (Tensor<2>, Tensor<2>) {
        let x = relu(self.fc6.forward(regions.flatten(1, 3)));
        let x = relu(self.fc7.forward(x));
        (self.cls_score.forward(x.clone()), self.bbox_pred.forward(x))
    }
}

/// The head that computes masks of regions.
#[derive(Module, Debug)]
pub(super) struct MaskHead {
    convs: Vec<Conv2d>,
    upsample: ConvTranspose2d,
    logits: Conv2d,
}

impl MaskHead {
    /// Bins along each side of a region.
    pub const BINS: usize = 14;

    /// A head for maps of `width` channels.
    pub fn new(width: usize, classes: usize, device: &Device) -> Self {
        let layer = || conv([width, width], 3, 1).with_bias(true).init(device);
        Self {
            convs: (0..4).map(|_| layer()).collect(),
            upsample: ConvTranspose2dConfig::new([width, width], [2, 2])
                .with_stride([2, 2])
                .init(device),
            logits: Conv2dConfig::new([width, classes], [1, 1]).init(device),
        }
    }

    /// A mask for each class, `[regions, classes, 28, 28]`, from the features `regions: [regions,
    /// width, 14, 14]`.
    pub fn forward(&self, regions: Tensor<4>) -> Tensor<4> {
        let mut x = regions;
        for conv in &self.convs {
            x = relu(conv.forward(x));
        }
        self.logits.forward(relu(self.upsample.forward(x)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    /// In a map whose pixels have the index of their column, the mean of a bin is the column of its
    /// centre.
    #[test]
    fn a_bin_is_the_mean_of_its_pixels() {
        let device = test_support::flex();
        let columns = Tensor::<1, Int>::arange(0..8, &device).float();
        let map = columns.reshape([1, 1, 1, 8]).expand([1, 1, 8, 8]);
        let regions =
            Tensor::<2>::from_floats([[0.0, 0.0, 4.0, 4.0], [2.0, 1.0, 6.0, 5.0]], &device);
        let bins: Vec<f32> = roi_align(map, regions, 2)
            .slice(s![.., .., 0..1, ..])
            .into_data()
            .try_into_vec()
            .unwrap();
        assert_eq!(bins, [1.0, 3.0, 3.0, 5.0]);
    }

    #[test]
    fn regions_have_features_of_their_own_image() {
        let device = test_support::flex();
        let values = Tensor::<1>::from_floats([1.0, 2.0], &device);
        let map = values.reshape([2, 1, 1, 1]).expand([2, 3, 4, 4]);
        let regions = Tensor::<2>::from_floats([[0.0, 0.0, 3.0, 3.0]; 4], &device);
        let aligned = roi_align(map, regions, 1);
        assert_eq!(aligned.dims(), [4, 3, 1, 1]);
        let values: Vec<f32> = aligned
            .slice(s![.., 0..1, .., ..])
            .into_data()
            .try_into_vec()
            .unwrap();
        assert_eq!(values, [1.0, 1.0, 2.0, 2.0]);
    }
}
