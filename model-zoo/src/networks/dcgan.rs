//! DCGAN for 64x64 images. See `variants` for paper, reference and differences.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::loss::BinaryCrossEntropyLossConfig;
use burn::nn::{BatchNorm, BatchNormConfig, LeakyRelu, LeakyReluConfig, Relu};
use burn::tensor::activation::{sigmoid, tanh};
use burn::tensor::{Device, Distribution, Tensor};

use super::Network;
use crate::blocks::around;
use crate::{Batch, Counts, Error, Input, Job, Observer, OptimizerKind, Phase, Trainer, Variant};

/// Height and width of the images: four layers double a 4x4 map.
const IMAGE: usize = 64;

/// The configuration of the two networks.
#[derive(Clone, Debug)]
pub(crate) struct DcganConfig {
    /// Length of the noise of an image.
    pub noise: usize,
    /// Channels of both networks at 32x32, the highest resolution of their maps. They double
    /// where the resolution halves.
    pub width: usize,
}

impl DcganConfig {
    /// The published networks.
    fn published() -> Self {
        Self {
            noise: 100,
            width: 64,
        }
    }

    /// The generator on `device`.
    pub fn generator(&self, device: &Device) -> Generator {
        let width = |level: usize| self.width << level;
        let up = |channels, stride, padding| {
            ConvTranspose2dConfig::new(channels, [4, 4])
                .with_stride([stride, stride])
                .with_padding([padding, padding])
                .with_bias(false)
                .init(device)
        };
        let norm = |level| BatchNormConfig::new(width(level)).init(device);
        Generator {
            convs: vec![
                up([self.noise, width(3)], 1, 0),
                up([width(3), width(2)], 2, 1),
                up([width(2), width(1)], 2, 1),
                up([width(1), width(0)], 2, 1),
            ],
            norms: (0..4).rev().map(norm).collect(),
            relu: Relu::new(),
            last: up([width(0), 3], 2, 1),
        }
    }

    /// The discriminator on `device`.
    pub fn discriminator(&self, device: &Device) -> Discriminator {
        let width = |level: usize| self.width << level;
        let down = |channels, stride, padding| {
            Conv2dConfig::new(channels, [4, 4])
                .with_stride([stride, stride])
                .with_padding(around(padding))
                .with_bias(false)
                .init(device)
        };
        Discriminator {
            first: down([3, width(0)], 2, 1),
            convs: (1..4)
                .map(|level| down([width(level - 1), width(level)], 2, 1))
                .collect(),
            norms: (1..4)
                .map(|level| BatchNormConfig::new(width(level)).init(device))
                .collect(),
            last: down([width(3), 1], 1, 0),
            relu: LeakyReluConfig::new().with_negative_slope(0.2).init(),
        }
    }
}

/// The network that makes images from noise.
#[derive(Module, Debug)]
pub(crate) struct Generator {
    convs: Vec<ConvTranspose2d>,
    norms: Vec<BatchNorm>,
    relu: Relu,
    last: ConvTranspose2d,
}

impl Generator {
    /// Images `[batch, 3, 64, 64]` from `noise: [batch, length, 1, 1]`.
    pub fn forward(&self, noise: Tensor<4>) -> Tensor<4> {
        let mut x = noise;
        for (conv, norm) in self.convs.iter().zip(&self.norms) {
            x = self.relu.forward(norm.forward(conv.forward(x)));
        }
        tanh(self.last.forward(x))
    }
}

/// The network that tells real images from made ones.
#[derive(Module, Debug)]
pub(crate) struct Discriminator {
    first: Conv2d,
    convs: Vec<Conv2d>,
    norms: Vec<BatchNorm>,
    last: Conv2d,
    relu: LeakyRelu,
}

impl Discriminator {
    /// The probabilities `[batch]` that `images: [batch, 3, 64, 64]` are real.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<1> {
        let mut x = self.relu.forward(self.first.forward(images));
        for (conv, norm) in self.convs.iter().zip(&self.norms) {
            x = self.relu.forward(norm.forward(conv.forward(x)));
        }
        sigmoid(self.last.forward(x)).flatten(0, 3)
    }
}

/// The cross-entropy `[1]` of `probabilities: [batch]`, if all images are real or all are made.
fn cross_entropy(probabilities: Tensor<1>, real: bool) -> Tensor<1> {
    let device = probabilities.device();
    let targets = Tensor::full([probabilities.dims()[0]], i64::from(real), &device);
    BinaryCrossEntropyLossConfig::new()
        .init(&device)
        .forward(probabilities, targets)
}

/// Trains both networks in the reference's order: backward passes of the discriminator on real
/// images and on made ones (whose graph it keeps for the generator), the discriminator's step, the
/// backward pass of the generator through the discriminator, the generator's step.
fn train<O: Observer>(
    config: &DcganConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let mut generator = Trainer::named("generator", config.generator(device), job);
    let mut discriminator = Trainer::named("discriminator", config.discriminator(device), job);
    generator.show(observer);
    discriminator.show(observer);
    observer.end(Phase::Init)?;
    for _ in 0..steps {
        for micro_batch in 1..=job.accumulate {
            let last = micro_batch == job.accumulate;
            let random = Distribution::Normal(0.0, 1.0);
            let images =
                Tensor::<4>::random([job.batch, 3, IMAGE, IMAGE], Distribution::Default, device);
            let noise = Tensor::<4>::random([job.batch, config.noise, 1, 1], random, device);
            (images.clone(), noise.clone()).show(observer);
            observer.end(Phase::Data)?;

            let loss = cross_entropy(discriminator.module().forward(images), true);
            discriminator.show(observer);
            discriminator.backward(loss, observer)?;

            let made = generator.module().forward(noise);
            let judged = discriminator.module().forward(made.clone().detach());
            generator.show(observer);
            discriminator.backward(cross_entropy(judged, false), observer)?;
            if last {
                discriminator = discriminator.step(observer)?;
            }

            let judged = discriminator.module().forward(made);
            generator.backward(cross_entropy(judged, true), observer)?;
            if last {
                generator = generator.step(observer)?;
            }
        }
        observer.step_ends()?;
    }
    Ok(())
}

/// The networks and their training step.
pub(crate) struct Dcgan;

impl Network for Dcgan {
    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "dcgan",
            family: "DCGAN",
            file,
            paper: "Radford, Metz, Chintala 2015, Unsupervised Representation Learning with Deep Convolutional Generative Adversarial Networks, arXiv 1511.06434",
            reference: "pytorch/examples dcgan/main.py",
            // Generator 3,576,704 in 13 tensors, discriminator 2,765,568 in 11.
            counts: Counts {
                trainable: 6_342_272,
                tensors: 24,
                buffers: 1_920 + 1_792,
            },
            input: Input::default(),
            batch: 128,
            optimizer: OptimizerKind::Adam,
            recipe: "64x64 images, noise of 100, batch 128, binary cross-entropy, two Adam optimizers with learning rate 2e-4 and beta1 0.5",
            differences: &[],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        job.trains_two_networks()
    }

    fn train<O: Observer>(
        _variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        train(&DcganConfig::published(), job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    const TINY: DcganConfig = DcganConfig { noise: 8, width: 4 };

    #[test]
    fn images_are_made_and_judged() {
        let device = test_support::flex();
        let noise = Tensor::zeros([2, 8, 1, 1], &device);
        let images = TINY.generator(&device).forward(noise);
        assert_eq!(images.dims(), [2, 3, IMAGE, IMAGE]);
        let judged = TINY.discriminator(&device).forward(images);
        assert_eq!(judged.dims(), [2]);
    }

    #[test]
    fn trains() {
        for accumulate in [1, 2] {
            let request = Request {
                batch: Some(4),
                accumulate,
                ..Request::default()
            };
            let of_real_images = test_support::Kind {
                which: 0,
                of: 3 * accumulate,
            };
            test_support::assert_one_loss_decreases(
                of_real_images,
                "dcgan",
                &request,
                |job, device, steps, losses| train(&TINY, job, device, steps, losses),
            );
        }
    }
}
