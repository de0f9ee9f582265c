//! StyleGAN, with the networks grown to their full resolution.
//!
//! Paper: Karras, Laine, Aila 2019, "A Style-Based Generator Architecture for Generative
//! Adversarial Networks", arXiv 1812.04948. Reference: NVlabs/stylegan
//! `training/networks_stylegan.py`, `loss.py`, `training_loop.py`, `train.py`.
//!
//! Differences:
//! - The R1 penalty needs the derivative of a derivative, which burn does not have. The
//!   squared slope of the discriminator along a random direction has the penalty as its
//!   mean; it is taken from a second pass on images moved a little, so that a step keeps
//!   two graphs of the discriminator on real images. The graph of a differentiable gradient
//!   is 1.64 of one, measured with torch at 64x64.
//! - The growing is left out: this is a step of the last stage, with nothing fading in.
//!   Layers that turn smaller maps into images and back are there but never used.
//! - The styles are mixed at the middle layer in every step, not at a random one in nine
//!   of ten steps.

mod discriminator;
mod generator;
mod layers;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::activation::softplus;
use burn::tensor::{Device, Distribution, Tensor};

use self::discriminator::{Discriminator, GROUP};
use self::generator::Generator;
use super::Network;
use crate::{Batch, Counts, Error, Input, Job, OptimizerKind, Phase, Trainee, Variant, Watcher};

/// Weight of the R1 penalty.
const R1_GAMMA: f64 = 10.0;

/// How far images are moved to measure a slope, their values being between -1 and 1.
const MOVE: f64 = 1e-2;

/// Images after which the moving average has forgotten half of a generator.
const HALF_LIFE: f64 = 10_000.0;

/// Resolutions that the published networks can be made for.
const SIDES: std::ops::RangeInclusive<usize> = 8..=1024;

/// How the networks are made.
#[derive(Clone, Debug)]
pub(crate) struct StyleGanConfig {
    /// Height and width of an image: a power of two.
    pub side: usize,
    /// Length of a noise and of a style.
    pub latent: usize,
    /// Channels of a map times half its height, as long as it is below the next.
    pub base: usize,
    /// Most channels that a map has.
    pub most: usize,
    /// Resolution from which on resizing is fused with the convolution.
    pub fused_from: usize,
}

impl StyleGanConfig {
    /// The published networks for images of `side` x `side`.
    fn published(side: usize) -> Self {
        Self {
            side,
            latent: 512,
            base: 8192,
            most: 512,
            fused_from: 128,
        }
    }

    /// Networks whose maps have 16 channels at most.
    fn mini(side: usize) -> Self {
        Self {
            side,
            latent: 16,
            base: 128,
            most: 16,
            fused_from: 16,
        }
    }

    /// Resolutions from 4x4 to that of the images.
    fn levels(&self) -> usize {
        self.side.ilog2() as usize - 1
    }

    /// Channels of the maps of `4 << level` pixels each way.
    fn channels(&self, level: usize) -> usize {
        (self.base >> (level + 1)).min(self.most)
    }
}

/// `average`, which knows no gradients, moved towards `module`; if there is none yet, from
/// the module itself.
fn averaged<M: Module>(average: Option<M>, module: &M, keep: f64) -> M {
    struct Collect(GradientsParams);
    impl ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.register(param.id, param.val().inner());
        }
    }
    struct Move {
        towards: GradientsParams,
        keep: f64,
    }
    impl ModuleMapper for Move {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            match self.towards.remove::<D>(param.id) {
                Some(new) => param.map(|old| {
                    old.mul_scalar(self.keep) + new.mul_scalar(1.0 - self.keep)
                }),
                None => param,
            }
        }
    }
    let mut collect = Collect(GradientsParams::new());
    module.visit(&mut collect);
    average.unwrap_or_else(|| module.valid()).map(&mut Move {
        towards: collect.0,
        keep,
    })
}

/// Two noises `[batch, latent]`.
fn noises(config: &StyleGanConfig, job: &Job, device: &Device) -> [Tensor<2>; 2] {
    let random = Distribution::Normal(0.0, 1.0);
    [(); 2].map(|()| Tensor::random([job.batch, config.latent], random, device))
}

/// The logistic loss on real and made images, with the R1 penalty on the real ones.
fn discriminator_loss(network: &Discriminator, real: Tensor<4>, made: Tensor<4>) -> Tensor<1> {
    let direction = real.random_like(Distribution::Normal(0.0, 1.0));
    let moved = real.clone() + direction.mul_scalar(MOVE);
    let of_real = network.forward(real);
    let slope = (network.forward(moved) - of_real.clone()).div_scalar(MOVE);
    let penalty = slope.square().mul_scalar(R1_GAMMA / 2.0);
    let of_made = network.forward(made);
    (softplus(of_made, 1.0) + softplus(of_real.neg(), 1.0) + penalty).mean()
}

/// Trains both networks: the discriminator on made images whose graph is never recorded,
/// the average, then the generator through a discriminator that learns nothing from it.
fn train<W: Watcher>(
    config: &StyleGanConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    watcher: &mut W,
) -> Result<(), W::Stop> {
    let mut generator = Trainee::named("generator", Generator::new(config, device), job);
    let mut discriminator =
        Trainee::named("discriminator", Discriminator::new(config, device), job);
    let mut average: Option<Generator> = None;
    let keep = 0.5f64.powf((job.batch * job.accumulate) as f64 / HALF_LIFE);
    generator.show(watcher);
    discriminator.show(watcher);
    watcher.end(Phase::Init)?;
    for _ in 0..steps {
        for micro_batch in 1..=job.accumulate {
            let last = micro_batch == job.accumulate;
            let random = Distribution::Uniform(-1.0, 1.0);
            let images = [job.batch, 3, config.side, config.side];
            let real = (Tensor::<4>::random(images, random, device),);
            real.show(watcher);
            watcher.end(Phase::Data)?;

            let plain = device.clone().without_autodiff();
            let made = generator.module().valid();
            let made = Tensor::from_inner(made.forward(noises(config, job, &plain)));
            let loss = discriminator_loss(discriminator.module(), real.0, made);
            generator.show(watcher);
            discriminator.show(watcher);
            discriminator.backward(loss, watcher)?;
            if last {
                discriminator = discriminator.step(watcher)?;
                let moved = averaged(average.take(), generator.module(), keep);
                watcher.module("average", &moved);
                watcher.end(Phase::Optimizer)?;
                average = Some(moved);
            }

            let judge = discriminator.module().clone().no_grad();
            let made = generator.module().forward(noises(config, job, device));
            let loss = softplus(judge.forward(made).neg(), 1.0).mean();
            generator.show(watcher);
            generator.backward(loss, watcher)?;
            if last {
                generator = generator.step(watcher)?;
            }
        }
    }
    Ok(())
}

/// The networks and their training step.
pub(crate) struct StyleGan;

impl Network for StyleGan {
    fn variants() -> Vec<Variant> {
        let variant = |name, trainable, tensors, noise: u64, side, batch, recipe| Variant {
            name,
            family: "StyleGAN",
            file: "stylegan",
            paper: "Karras, Laine, Aila 2019, A Style-Based Generator Architecture for Generative Adversarial Networks, arXiv 1812.04948",
            reference: "NVlabs/stylegan training/networks_stylegan.py, loss.py, training_loop.py",
            // The buffers are the noise of the finished generator and the average style;
            // the three numbers that say how far the growing is are left out.
            counts: Counts {
                trainable,
                tensors,
                buffers: noise + 512,
            },
            input: Input {
                image: Some([side, side]),
                ..Input::default()
            },
            batch,
            optimizer: OptimizerKind::Adam,
            recipe,
            differences: &[
                "the R1 penalty is the squared slope along a random direction, from a second pass on moved images: the graph on real images is counted twice, a differentiable gradient has 1.64 of one",
                "nothing is fading in: this is the longer rest of the last stage",
                "blurring is a product with constant matrices: 11 MiB of them at 1024x1024 for each pass of a network",
                "styles are mixed at the middle layer in every step: the two mappings run in any case",
            ],
        };
        vec![
            variant(
                "stylegan",
                26_219_627 + 23_087_249,
                124 + 56,
                2_796_192,
                1024,
                4,
                "FFHQ at 1024x1024, the last stage of the growing, batch 4 on one card, logistic loss with R1 penalty (gamma 10) at every step, style mixing, two Adam optimizers with beta1 0 and beta2 0.99, moving average of the generator",
            ),
            variant(
                "stylegan-256",
                26_086_229 + 23_052_353,
                100 + 44,
                // Two maps of noise at each of 4x4 ... 256x256: 2 (4^9 - 4^2) / 3.
                174_752,
                256,
                8,
                "256x256, the last stage of the growing, batch 8 on one card, logistic loss with R1 penalty (gamma 10) at every step, style mixing, two Adam optimizers with beta1 0 and beta2 0.99, moving average of the generator",
            ),
        ]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        let must = "a power of two from 8x8 to 1024x1024".into();
        job.check_image(must, |[height, width]| {
            height == width && height.is_power_of_two() && SIDES.contains(&height)
        })?;
        // Images are compared in groups of four, or all of them if they are fewer.
        if job.batch > GROUP && !job.batch.is_multiple_of(GROUP) {
            return Err(Error::Size {
                what: "--batch",
                must: format!("below {GROUP} or a multiple of it"),
                got: job.batch.to_string(),
            });
        }
        Ok(())
    }

    fn train<W: Watcher>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        watcher: &mut W,
    ) -> Result<(), W::Stop> {
        let [side, _] = job.image();
        let config = match variant.name {
            "stylegan-mini" => StyleGanConfig::mini(side),
            _ => StyleGanConfig::published(side),
        };
        train(&config, job, device, steps, watcher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, toy};

    /// Table of the reference: 512 channels up to 32x32, 16 at 1024x1024.
    #[test]
    fn channels_are_those_published() {
        let config = StyleGanConfig::published(1024);
        let channels: Vec<_> = (0..config.levels())
            .map(|level| config.channels(level))
            .collect();
        assert_eq!(channels, [512, 512, 512, 512, 256, 128, 64, 32, 16]);
    }

    #[test]
    fn images_are_made_and_judged() {
        let device = toy::flex();
        let config = StyleGanConfig::mini(32);
        let noises = [(); 2].map(|()| Tensor::ones([2, config.latent], &device));
        let images = Generator::new(&config, &device).forward(noises);
        assert_eq!(images.dims(), [2, 3, 32, 32]);
        let scores = Discriminator::new(&config, &device).forward(images);
        assert_eq!(scores.dims(), [2, 1]);
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(4),
            ..Request::default()
        };
        let of_the_discriminator = toy::Kind { which: 0, of: 2 };
        toy::one_falls(of_the_discriminator, "stylegan", &request, |job, device, steps, losses| {
            train(&StyleGanConfig::mini(32), job, device, steps, losses)
        });
    }

    #[test]
    fn an_average_lies_between() {
        let device = toy::flex().autodiff();
        let layer = |value: f32| {
            burn::nn::LinearConfig::new(1, 1)
                .with_bias(false)
                .with_initializer(burn::nn::Initializer::Constant {
                    value: f64::from(value),
                })
                .init(&device)
        };
        let new = layer(2.0);
        let mut old = layer(1.0);
        old.weight.id = new.weight.id;
        let average = averaged(Some(old.valid()), &new, 0.75).weight.val();
        assert_eq!(average.into_scalar::<f32>(), 1.25);
    }

    #[test]
    fn a_batch_that_does_not_divide_into_groups_is_refused() {
        let variant = crate::find("stylegan").unwrap();
        let request = Request {
            batch: Some(6),
            ..Request::default()
        };
        let error = StyleGan::check(&variant, &request.resolve(&variant).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--batch must be below 4 or a multiple of it, not 6"
        );
    }
}
