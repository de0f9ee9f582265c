//! The generator: a mapping from noise to styles, and a synthesis network that the styles control.

use burn::module::{Module, Param, RunningState};
use burn::nn::{Initializer, InstanceNorm, InstanceNormConfig};
use burn::tensor::activation::leaky_relu;
use burn::tensor::{Device, Distribution, Tensor};

use super::StyleGanConfig;
use super::layers::{EqualConv, EqualLinear, GAIN, Resize, blur};

/// Layers of the mapping.
const MAPPING_LAYERS: usize = 8;

/// Factor of the mapping's learning rate.
const MAPPING_MULTIPLIER: f64 = 0.01;

/// Weight of the old average style in the new one (the reference's `dlatent_avg_beta`).
const AVERAGE_REMAINS: f64 = 0.995;

/// The network that makes images from noise.
#[derive(Module, Debug)]
pub(super) struct Generator {
    mapping: Vec<EqualLinear>,
    /// The average style, `[latent]`, for the truncation trick.
    running_average: RunningState<Tensor<1>>,
    constant: Param<Tensor<4>>,
    first: Epilogue,
    layers: Vec<Layer>,
    /// One for each resolution; the grown network uses only the last.
    to_rgb: Vec<EqualConv>,
}

impl Generator {
    /// The network on `device`.
    pub fn new(config: &StyleGanConfig, device: &Device) -> Self {
        let latent = config.latent;
        let epilogue = |level| Epilogue::new(config.channels(level), latent, 4 << level, device);
        let layer = |entering: usize, level: usize, resize| Layer {
            conv: EqualConv::new(
                [config.channels(entering), config.channels(level)],
                3,
                GAIN,
                resize,
                device,
            ),
            blurs: resize != Resize::Keep,
            epilogue: epilogue(level),
        };
        let mut layers = vec![layer(0, 0, Resize::Keep)];
        for level in 1..config.levels() {
            let fused = (4 << level) >= config.fused_from;
            layers.push(layer(level - 1, level, Resize::Double { fused }));
            layers.push(layer(level, level, Resize::Keep));
        }
        Self {
            mapping: (0..MAPPING_LAYERS)
                .map(|_| EqualLinear::new([latent, latent], GAIN, MAPPING_MULTIPLIER, device))
                .collect(),
            running_average: RunningState::new(Tensor::zeros([latent], device)),
            constant: Initializer::Ones.init([1, config.channels(0), 4, 4], device),
            first: epilogue(0),
            layers,
            to_rgb: (0..config.levels())
                .map(|level| {
                    let channels = [config.channels(level), 3];
                    EqualConv::new(channels, 1, 1.0, Resize::Keep, device).with_bias()
                })
                .collect(),
        }
    }

    /// Images `[batch, 3, side, side]` from two noises `[batch, latent]`: the style of the first
    /// controls the coarse half of the layers, that of the second the fine half.
    pub fn forward(&self, noises: [Tensor<2>; 2]) -> Tensor<4> {
        let [coarse, fine] = noises.map(|noise| self.style(noise));
        self.track(coarse.clone());

        let batch = coarse.dims()[0];
        let [_, channels, height, width] = self.constant.dims();
        let x = self.constant.val().expand([batch, channels, height, width]);
        let mut x = self.first.forward(x, coarse.clone());
        let half = self.layers.len() / 2;
        for (index, layer) in self.layers.iter().enumerate() {
            let style = if index < half { &coarse } else { &fine };
            x = layer.forward(x, style.clone());
        }
        let to_rgb = self.to_rgb.last().expect("at least one resolution");
        to_rgb.forward(x)
    }

    /// The style `[batch, latent]` of `noise: [batch, latent]`.
    fn style(&self, noise: Tensor<2>) -> Tensor<2> {
        let length = noise.clone().square().mean_dim(1).add_scalar(1e-8).sqrt();
        let mut x = noise / length;
        for layer in &self.mapping {
            x = leaky_relu(layer.forward(x), 0.2);
        }
        x
    }

    /// Updates the average style with `styles: [batch, latent]`.
    fn track(&self, styles: Tensor<2>) {
        let now = styles.detach().mean_dim(0).flatten(0, 1);
        let before = self
            .running_average
            .value_sync()
            .mul_scalar(AVERAGE_REMAINS);
        let average = before + now.mul_scalar(1.0 - AVERAGE_REMAINS);
        self.running_average.update(average.detach());
    }
}

/// A convolution, a blur if it doubles the resolution, and an epilogue.
#[derive(Module, Debug)]
struct Layer {
    conv: EqualConv,
    blurs: bool,
    epilogue: Epilogue,
}

impl Layer {
    fn forward(&self, x: Tensor<4>, style: Tensor<2>) -> Tensor<4> {
        let x = self.conv.forward(x);
        let x = if self.blurs { blur(x) } else { x };
        self.epilogue.forward(x, style)
    }
}

/// The end of a layer: noise, bias, leaky ReLU, normalisation, style.
#[derive(Module, Debug)]
struct Epilogue {
    noise_weight: Param<Tensor<1>>,
    /// The noise that replaces the random one outside of the training.
    running_noise: RunningState<Tensor<4>>,
    bias: Param<Tensor<1>>,
    norm: InstanceNorm,
    style: EqualLinear,
}

impl Epilogue {
    fn new(channels: usize, latent: usize, side: usize, device: &Device) -> Self {
        let random = Distribution::Normal(0.0, 1.0);
        Self {
            noise_weight: Initializer::Zeros.init([channels], device),
            running_noise: RunningState::new(Tensor::random([1, 1, side, side], random, device)),
            bias: Initializer::Zeros.init([channels], device),
            norm: InstanceNormConfig::new(channels)
                .with_epsilon(1e-8)
                .with_affine(false)
                .init(device),
            style: EqualLinear::new([latent, 2 * channels], 1.0, 1.0, device),
        }
    }

    fn forward(&self, x: Tensor<4>, style: Tensor<2>) -> Tensor<4> {
        let [batch, channels, height, width] = x.dims();
        let each = [1, channels, 1, 1];
        let random = Distribution::Normal(0.0, 1.0);
        let noise = Tensor::<4>::random([batch, 1, height, width], random, &x.device());
        let x = x + noise * self.noise_weight.val().reshape(each);
        let x = leaky_relu(x + self.bias.val().reshape(each), 0.2);
        let x = self.norm.forward(x);

        let style = self.style.forward(style);
        let scale = style.clone().narrow(1, 0, channels).add_scalar(1.0);
        let shift = style.narrow(1, channels, channels);
        x * scale.reshape([batch, channels, 1, 1]) + shift.reshape([batch, channels, 1, 1])
    }
}
