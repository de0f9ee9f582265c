//! The discriminators: one network for each of several resolutions.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::AvgPool2d;
use burn::nn::{InstanceNorm, InstanceNormConfig};
use burn::tensor::activation::leaky_relu;
use burn::tensor::{Device, Tensor};

use super::halving;
use crate::blocks::around;

/// The configuration of a [`Discriminator`].
#[derive(Clone, Debug)]
pub(super) struct DiscriminatorConfig {
    /// Channels of the input.
    pub inputs: usize,
    /// Channels of the first layer; each further layer has twice as many, up to 512.
    pub width: usize,
    /// Layers that halve the resolution.
    pub halvings: usize,
    /// Resolutions, each of which has a network.
    pub scales: usize,
}

impl DiscriminatorConfig {
    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Discriminator {
        Discriminator {
            scales: (0..self.scales).map(|_| self.scale(device)).collect(),
            downsample: halving(),
        }
    }

    fn scale(&self, device: &Device) -> Scale {
        // The reference stops doubling at 512 channels.
        let width = |layer: usize| (self.width << layer).min(512);
        let n = self.halvings;
        let mut layers = vec![Layer::new([self.inputs, width(0)], 2, Kind::First, device)];
        layers
            .extend((1..n).map(|i| Layer::new([width(i - 1), width(i)], 2, Kind::Middle, device)));
        layers.push(Layer::new(
            [width(n - 1), width(n)],
            1,
            Kind::Middle,
            device,
        ));
        layers.push(Layer::new([width(n), 1], 1, Kind::Last, device));
        Scale { layers }
    }
}

/// The networks that tell real images from made ones, given the maps that the images belong to.
#[derive(Module, Debug)]
pub(super) struct Discriminator {
    scales: Vec<Scale>,
    downsample: AvgPool2d,
}

impl Discriminator {
    /// For each resolution the outputs `[batch, channels, height', width']` of all layers, the last
    /// of which is the judgement, for `maps_and_images: [batch, inputs, height, width]`.
    pub fn forward(&self, maps_and_images: Tensor<4>) -> Vec<Vec<Tensor<4>>> {
        let mut x = maps_and_images;
        let mut all = Vec::with_capacity(self.scales.len());
        for (index, scale) in self.scales.iter().enumerate() {
            if index > 0 {
                x = self.downsample.forward(x);
            }
            all.push(scale.forward(x.clone()));
        }
        all
    }
}

#[derive(Module, Debug)]
struct Scale {
    layers: Vec<Layer>,
}

impl Scale {
    fn forward(&self, x: Tensor<4>) -> Vec<Tensor<4>> {
        let mut outputs: Vec<Tensor<4>> = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let input = outputs.last().unwrap_or(&x).clone();
            outputs.push(layer.forward(input));
        }
        outputs
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A layer without a normalisation.
    First,
    /// A layer with a normalisation and an activation.
    Middle,
    /// A layer without a normalisation and without an activation.
    Last,
}

#[derive(Module, Debug)]
struct Layer {
    conv: Conv2d,
    norm: Option<InstanceNorm>,
    activated: bool,
}

impl Layer {
    fn new(channels: [usize; 2], stride: usize, kind: Kind, device: &Device) -> Self {
        let norm = InstanceNormConfig::new(channels[1]).with_affine(false);
        Self {
            conv: Conv2dConfig::new(channels, [4, 4])
                .with_stride([stride, stride])
                .with_padding(around(2))
                .init(device),
            norm: (kind == Kind::Middle).then(|| norm.init(device)),
            activated: kind != Kind::Last,
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.conv.forward(x);
        let x = match &self.norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        if self.activated {
            leaky_relu(x, 0.2)
        } else {
            x
        }
    }
}
