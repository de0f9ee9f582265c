//! The discriminator.

use burn::module::Module;
use burn::tensor::activation::leaky_relu;
use burn::tensor::{Device, Tensor};

use super::StyleGanConfig;
use super::layers::{EqualConv, EqualLinear, GAIN, Resize, blur};

/// Images in a group, whose members the discriminator compares.
pub(super) const GROUP: usize = 4;

/// The network that tells real images from made ones.
#[derive(Module, Debug)]
pub(super) struct Discriminator {
    /// One for each resolution; the grown network uses only the last.
    from_rgb: Vec<EqualConv>,
    /// One for each resolution from 8x8 on.
    blocks: Vec<Block>,
    conv: EqualConv,
    dense0: EqualLinear,
    dense1: EqualLinear,
}

impl Discriminator {
    /// The network on `device`.
    pub fn new(config: &StyleGanConfig, device: &Device) -> Self {
        let conv = |channels, kernel, resize| {
            EqualConv::new(channels, kernel, GAIN, resize, device).with_bias()
        };
        let last = config.channels(0);
        Self {
            from_rgb: (0..config.levels())
                .map(|level| conv([3, config.channels(level)], 1, Resize::Keep))
                .collect(),
            blocks: (1..config.levels())
                .map(|level| {
                    let (fine, coarse) = (config.channels(level), config.channels(level - 1));
                    let fused = (4 << level) >= config.fused_from;
                    Block {
                        conv0: conv([fine, fine], 3, Resize::Keep),
                        conv1: conv([fine, coarse], 3, Resize::Halve { fused }),
                    }
                })
                .collect(),
            conv: conv([last + 1, last], 3, Resize::Keep),
            dense0: EqualLinear::new([last * 4 * 4, last], GAIN, 1.0, device),
            dense1: EqualLinear::new([last, 1], 1.0, 1.0, device),
        }
    }

    /// Scores `[batch, 1]` of `images: [batch, 3, side, side]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let from_rgb = self.from_rgb.last().expect("at least one resolution");
        let mut x = leaky_relu(from_rgb.forward(images), 0.2);
        for block in self.blocks.iter().rev() {
            x = block.forward(x);
        }
        let x = with_deviation(x);
        let x = leaky_relu(self.conv.forward(x), 0.2);
        let x = leaky_relu(self.dense0.forward(x.flatten(1, 3)), 0.2);
        self.dense1.forward(x)
    }
}

/// Two convolutions, the second of which halves the resolution.
#[derive(Module, Debug)]
struct Block {
    conv0: EqualConv,
    conv1: EqualConv,
}

impl Block {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = leaky_relu(self.conv0.forward(x), 0.2);
        leaky_relu(self.conv1.forward(blur(x)), 0.2)
    }
}

/// `x: [batch, channels, height, width]` with one more channel: the standard deviation among the
/// images of a group, averaged over channels and pixels.
fn with_deviation(x: Tensor<4>) -> Tensor<4> {
    let [batch, channels, height, width] = x.dims();
    let group = batch.min(GROUP);
    let groups = batch / group;
    let y = x
        .clone()
        .reshape([group, groups, channels * height * width]);
    let y = y.clone() - y.mean_dim(0);
    let deviation = y.square().mean_dim(0).add_scalar(1e-8).sqrt().mean_dim(2);
    let deviation = deviation
        .expand([group, groups, height * width])
        .reshape([batch, 1, height, width]);
    Tensor::cat(vec![x, deviation], 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    #[test]
    fn equal_images_do_not_differ() {
        let device = test_support::flex();
        let images = Tensor::<4>::ones([8, 2, 4, 4], &device);
        let with = with_deviation(images);
        assert_eq!(with.dims(), [8, 3, 4, 4]);
        let deviation: f32 = with.narrow(1, 2, 1).max().into_scalar();
        assert!(deviation < 1e-3);
    }
}
