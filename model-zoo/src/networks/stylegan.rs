//! StyleGAN, with both networks grown to their full resolution. See `variants` for paper, reference
//! and differences.

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
use crate::{
    Batch, Counts, Error, Input, Job, Observer, OptimizerKind, Phase, Setting, Trainer, Variant,
};

/// Weight of the R1 penalty.
const R1_GAMMA: f64 = 10.0;

/// Scale of the movement of images to measure a slope; their values are between -1 and 1.
const MOVE: f64 = 1e-2;

/// Images after which the share of a generator in the moving average has halved.
const HALF_LIFE: f64 = 10_000.0;

/// Height and width of the images that the published networks can make.
const SIDES: std::ops::RangeInclusive<usize> = 8..=1024;

/// The configuration of the networks.
#[derive(Clone, Debug)]
pub(crate) struct StyleGanConfig {
    /// Height and width of an image: a power of two.
    pub side: usize,
    /// Length of a noise vector and of a style.
    pub latent: usize,
    /// Channels of a map times half its height, if that is at most `max_channels`.
    pub base: usize,
    /// Largest number of channels of a map.
    pub max_channels: usize,
    /// Lowest resolution at which resizing is fused with the convolution.
    pub fused_from: usize,
}

impl StyleGanConfig {
    /// The published networks for images of `side` x `side`.
    fn published(side: usize) -> Self {
        Self {
            side,
            latent: 512,
            base: 8192,
            max_channels: 512,
            fused_from: 128,
        }
    }

    /// Networks whose maps have 16 channels at most.
    fn tiny(side: usize) -> Self {
        Self {
            side,
            latent: 16,
            base: 128,
            max_channels: 16,
            fused_from: 16,
        }
    }

    /// Number of resolutions from 4x4 to that of the images.
    fn levels(&self) -> usize {
        self.side.ilog2() as usize - 1
    }

    /// Channels of the maps of `4 << level` pixels each way.
    fn channels(&self, level: usize) -> usize {
        (self.base >> (level + 1)).min(self.max_channels)
    }
}

/// The moving average of a module without gradients: `average`, which starts as a copy of `module`
/// if it is `None`, with weight `keep`, and `module` with the rest.
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
                Some(new) => {
                    param.map(|old| old.mul_scalar(self.keep) + new.mul_scalar(1.0 - self.keep))
                }
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

/// Two noise vectors for each image, `[batch, latent]`.
fn noises(config: &StyleGanConfig, job: &Job, device: &Device) -> [Tensor<2>; 2] {
    let random = Distribution::Normal(0.0, 1.0);
    [(); 2].map(|()| Tensor::random([job.batch, config.latent], random, device))
}

/// The logistic loss `[1]` on `real` and `made` images, `[batch, 3, side, side]`, with the R1
/// penalty on the real ones.
fn discriminator_loss(network: &Discriminator, real: Tensor<4>, made: Tensor<4>) -> Tensor<1> {
    let direction = real.random_like(Distribution::Normal(0.0, 1.0));
    let moved = real.clone() + direction.mul_scalar(MOVE);
    let of_real = network.forward(real);
    let slope = (network.forward(moved) - of_real.clone()).div_scalar(MOVE);
    let penalty = slope.square().mul_scalar(R1_GAMMA / 2.0);
    let of_made = network.forward(made);
    (softplus(of_made, 1.0) + softplus(of_real.neg(), 1.0) + penalty).mean()
}

/// Trains both networks: first the discriminator, on images that the generator makes without a
/// graph; then it updates the moving average; then it trains the generator through the frozen
/// discriminator.
fn train<O: Observer>(
    config: &StyleGanConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let mut generator = Trainer::named("generator", Generator::new(config, device), job);
    let mut discriminator =
        Trainer::named("discriminator", Discriminator::new(config, device), job);
    let mut average: Option<Generator> = None;
    let keep = 0.5f64.powf((job.batch * job.accumulate) as f64 / HALF_LIFE);
    generator.show(observer);
    discriminator.show(observer);
    observer.end(Phase::Init)?;
    for _ in 0..steps {
        for micro_batch in 1..=job.accumulate {
            let last = micro_batch == job.accumulate;
            let random = Distribution::Uniform(-1.0, 1.0);
            let images = [job.batch, 3, config.side, config.side];
            let real = (Tensor::<4>::random(images, random, device),);
            real.show(observer);
            observer.end(Phase::Data)?;

            let plain = device.clone().without_autodiff();
            let made = generator.module().valid();
            let made = Tensor::from_inner(made.forward(noises(config, job, &plain)));
            let loss = discriminator_loss(discriminator.module(), real.0, made);
            generator.show(observer);
            discriminator.show(observer);
            discriminator.backward(loss, observer)?;
            if last {
                discriminator = discriminator.step(observer)?;
                let moved = averaged(average.take(), generator.module(), keep);
                observer.module("average", &moved);
                observer.end(Phase::Optimizer)?;
                average = Some(moved);
            }

            let judge = discriminator.module().clone().no_grad();
            let made = generator.module().forward(noises(config, job, device));
            let loss = softplus(judge.forward(made).neg(), 1.0).mean();
            generator.show(observer);
            generator.backward(loss, observer)?;
            if last {
                generator = generator.step(observer)?;
            }
        }
        observer.step_ends()?;
    }
    Ok(())
}

/// The networks and their training step.
pub(crate) struct StyleGan;

impl Network for StyleGan {
    const OUTPUT_LAYERS: &'static [&'static str] = &["dense1"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let variant = |name, trainable, tensors, noise: u64, side, batch, recipe| Variant {
            name,
            family: "StyleGAN",
            file,
            paper: "Karras, Laine, Aila 2019, A Style-Based Generator Architecture for Generative Adversarial Networks, arXiv 1812.04948",
            reference: "NVlabs/stylegan training/networks_stylegan.py, loss.py, training_loop.py, train.py",
            // The buffers are the noise of the finished generator and the average style. The
            // three numbers that hold the progress of the growing are left out.
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
                "the R1 penalty is the squared slope along a random direction, which has the penalty as its mean, from a second pass on moved images, since burn has no derivative of a derivative: the graph on real images is counted twice, a differentiable gradient has 1.64 of one (measured with torch at 64x64)",
                "nothing is fading in: this is the longer rest of the last stage; the layers between smaller maps and images exist and are never used",
                "blurring is a product with constant matrices: 11 MiB of them at 1024x1024 for each pass of a network",
                "styles are mixed at the middle layer in every step, in the reference at a random layer in nine of ten steps: the two mappings run in any case",
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
                // Two maps of noise at each resolution from 4x4 to 256x256: 2 (4^9 - 4^2) / 3.
                174_752,
                256,
                8,
                "256x256, the last stage of the growing, batch 8 on one card, logistic loss with R1 penalty (gamma 10) at every step, style mixing, two Adam optimizers with beta1 0 and beta2 0.99, moving average of the generator",
            ),
        ]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        job.trains_two_networks()?;
        let must = "a power of two from 8x8 to 1024x1024".into();
        job.check_image(must, |[height, width]| {
            height == width && height.is_power_of_two() && SIDES.contains(&height)
        })?;
        // The discriminator compares the images of a group; a smaller batch is one group.
        if job.batch > GROUP && !job.batch.is_multiple_of(GROUP) {
            return Err(Error::Size {
                what: Setting::Batch,
                must: format!("below {GROUP} or a multiple of it"),
                got: job.batch.to_string(),
            });
        }
        Ok(())
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let [side, _] = job.image();
        let config = match variant.name {
            "stylegan" | "stylegan-256" => StyleGanConfig::published(side),
            "stylegan-mini" => StyleGanConfig::tiny(side),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    /// Expected: the table of the reference, from 512 channels up to 32x32 to 16 at 1024x1024.
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
        let device = test_support::flex();
        let config = StyleGanConfig::tiny(32);
        let noises = [(); 2].map(|()| Tensor::ones([2, config.latent], &device));
        let images = Generator::new(&config, &device).forward(noises);
        assert_eq!(images.dims(), [2, 3, 32, 32]);
        let scores = Discriminator::new(&config, &device).forward(images);
        assert_eq!(scores.dims(), [2, 1]);
    }

    #[test]
    fn the_average_is_between_old_and_new() {
        let device = test_support::flex().autodiff();
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
            "batch size must be below 4 or a multiple of it, not 6"
        );
    }
}
