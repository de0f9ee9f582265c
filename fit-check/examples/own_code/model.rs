//! The model: an MLP-Mixer (Tolstikhin et al. 2021, arXiv 2105.01601) for images of 32 x 32
//! pixels, as one would write it to train it, and its training step.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::gelu;
use burn::tensor::{Device, Distribution, Int, Tensor};
use model_zoo::{Defaults, Error, Input, Job, Model, Observer, OptimizerKind, supervised};

const SIDE: usize = 32;
const PATCH: usize = 4;
const PATCHES: usize = (SIDE / PATCH) * (SIDE / PATCH);

/// How a mixer is made.
#[derive(Clone, Debug)]
pub struct Mixer {
    width: usize,
    layers: usize,
}

impl Default for Mixer {
    fn default() -> Self {
        Self {
            width: 256,
            layers: 8,
        }
    }
}

impl Mixer {
    fn init(&self, classes: usize, device: &Device) -> Network {
        Network {
            patches: Conv2dConfig::new([3, self.width], [PATCH; 2])
                .with_stride([PATCH; 2])
                .init(device),
            layers: (0..self.layers)
                .map(|_| Layer::new(self.width, device))
                .collect(),
            norm: LayerNormConfig::new(self.width).init(device),
            head: LinearConfig::new(self.width, classes).init(device),
        }
    }
}

/// The network itself, plain burn code.
#[derive(Module, Debug)]
struct Network {
    patches: Conv2d,
    layers: Vec<Layer>,
    norm: LayerNorm,
    head: Linear,
}

impl Network {
    /// Scores `[batch, classes]` of images `[batch, 3, 32, 32]`.
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let patches = self.patches.forward(images).flatten::<3>(2, 3);
        let mut x = patches.swap_dims(1, 2);
        for layer in &self.layers {
            x = layer.forward(x);
        }
        self.head
            .forward(self.norm.forward(x).mean_dim(1).squeeze_dim(1))
    }
}

#[derive(Module, Debug)]
struct Layer {
    norm_1: LayerNorm,
    between: [Linear; 2],
    norm_2: LayerNorm,
    within: [Linear; 2],
}

impl Layer {
    fn new(width: usize, device: &Device) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        Self {
            norm_1: LayerNormConfig::new(width).init(device),
            between: [linear(PATCHES, width / 2), linear(width / 2, PATCHES)],
            norm_2: LayerNormConfig::new(width).init(device),
            within: [linear(width, 4 * width), linear(4 * width, width)],
        }
    }

    /// `[batch, patches, width]` to the same.
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let mixed = mlp(
            &self.between,
            self.norm_1.forward(x.clone()).swap_dims(1, 2),
        );
        let x = x + mixed.swap_dims(1, 2);
        x.clone() + mlp(&self.within, self.norm_2.forward(x))
    }
}

fn mlp([first, second]: &[Linear; 2], x: Tensor<3>) -> Tensor<3> {
    second.forward(gelu(first.forward(x)))
}

/// What fit-check asks of a model.
impl Model for Mixer {
    fn name(&self) -> &str {
        "mixer"
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                classes: Some(10),
                ..Input::default()
            },
            batch: 128,
            optimizer: OptimizerKind::AdamW,
        }
    }

    fn file(&self) -> Option<&'static str> {
        None
    }

    fn check(&self, _job: &Job) -> Result<(), Error> {
        Ok(())
    }

    fn train<W: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut W,
    ) -> Result<(), W::Stop> {
        let images = [job.batch, 3, SIDE, SIDE];
        supervised(
            self.init(job.classes(), device),
            job,
            device,
            steps,
            observer,
            |device| {
                (
                    Tensor::<4>::random(images, Distribution::Default, device),
                    Tensor::<1, Int>::zeros([images[0]], device),
                )
            },
            |network, (images, labels)| {
                CrossEntropyLossConfig::new()
                    .init(&images.device())
                    .forward(network.forward(images), labels)
            },
        )
    }
}
