//! Pix2PixHD: photographs from label maps.
//!
//! Paper: Wang, Liu, Zhu, Tao, Kautz, Catanzaro 2018, "High-Resolution Image Synthesis and
//! Semantic Manipulation with Conditional GANs", arXiv 1711.11585. Reference:
//! NVIDIA/pix2pixHD `models/networks.py`, `models/pix2pixHD_model.py`, `train.py`.
//!
//! Differences:
//! - burn composes instance normalisation of elementwise operations, which keeps more maps
//!   for the backward pass than a fused one; the reference's fused operation keeps one.
//! - The first ten epochs of the 1024p stage, in which the optimizer holds only the
//!   enhancer, are not a variant: this is the longer rest of it.

mod discriminator;
mod generator;

use burn::module::Module;
use burn::nn::loss::{LpLossConfig, MseLoss, Reduction};
use burn::nn::pool::{AvgPool2d, AvgPool2dConfig};
use burn::tensor::ops::PadMode;
use burn::tensor::{Device, Distribution, IndexingUpdateOp, Int, Tensor, s};

use self::discriminator::{Discriminator, DiscriminatorConfig};
use self::generator::{Generator, GeneratorConfig};
use super::Network;
use super::vgg::{Features, VGG_19};
use crate::blocks::around;
use crate::{Batch, Counts, Error, Input, Job, OptimizerKind, Phase, Trainee, Variant, Watcher};

/// Weight of the feature matching and of the VGG loss (the reference's `lambda_feat`).
const LAMBDA: f64 = 10.0;

/// Weights of VGG's five maps in the loss, finest first.
const VGG_WEIGHTS: [f64; 5] = [1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0, 1.0];

/// How the networks are made.
#[derive(Clone, Debug)]
struct Pix2PixHdConfig {
    labels: usize,
    generator: GeneratorConfig,
    discriminator: DiscriminatorConfig,
    /// Convolutions of each stage of the frozen VGG, and their channels.
    vgg: Vec<(usize, usize)>,
}

impl Pix2PixHdConfig {
    /// The published networks called `name`.
    fn published(name: &str) -> Self {
        let (enhancer, scales) = match name {
            "pix2pixhd-512p" => (None, 2),
            "pix2pixhd" => (Some(3), 3),
            other => unreachable!("{other} is not a variant of this file"),
        };
        // Cityscapes: 35 labels, and one map of the edges between instances.
        let (labels, inputs) = (35, 36);
        let mut vgg = VGG_19.to_vec();
        // Nothing after the first convolution of the last stage is looked at.
        vgg[4].0 = 1;
        Self {
            labels,
            generator: GeneratorConfig {
                inputs,
                width: 64,
                halvings: 4,
                blocks: 9,
                enhancer,
            },
            discriminator: DiscriminatorConfig {
                inputs: inputs + 3,
                width: 64,
                halvings: 3,
                scales,
            },
            vgg,
        }
    }

    /// Networks for three labels, with so many blocks in the enhancer if there is one.
    fn mini(enhancer: Option<usize>) -> Self {
        let labels = 3;
        Self {
            labels,
            generator: GeneratorConfig {
                inputs: labels + 1,
                width: 4,
                halvings: 2,
                blocks: 1,
                enhancer,
            },
            discriminator: DiscriminatorConfig {
                inputs: labels + 4,
                width: 4,
                halvings: 2,
                scales: 2,
            },
            vgg: vec![(2, 2), (2, 2), (2, 4), (2, 4), (1, 4)],
        }
    }
}

/// Halves the resolution; what lies outside the image does not count.
fn halving() -> AvgPool2d {
    AvgPool2dConfig::new([3, 3])
        .with_strides([2, 2])
        .with_padding(around(1))
        .with_count_include_pad(false)
        .init()
}

/// The input of the generator `[batch, labels + 1, height, width]`: one plane for each
/// label and one with the edges between instances. Both maps are `[batch, 1, height, width]`.
fn encode(labels: Tensor<4, Int>, instances: Tensor<4, Int>, planes: usize) -> Tensor<4> {
    let device = labels.device();
    let [batch, _, height, width] = labels.dims();
    let ones = Tensor::ones([batch, 1, height, width], &device);
    let one_hot = Tensor::<4>::zeros([batch, planes, height, width], &device).scatter(
        1,
        labels,
        ones,
        IndexingUpdateOp::Add,
    );
    Tensor::cat(vec![one_hot, edges(instances)], 1)
}

/// One where a pixel belongs to another instance than one of its four neighbours.
fn edges(instances: Tensor<4, Int>) -> Tensor<4> {
    let across = |a: Tensor<4, Int>, b: Tensor<4, Int>| a.not_equal(b).int();
    let zero = || PadMode::Constant(0.0);
    let x = across(
        instances.clone().slice(s![.., .., .., 1..]),
        instances.clone().slice(s![.., .., .., ..-1]),
    );
    let y = across(
        instances.clone().slice(s![.., .., 1.., ..]),
        instances.slice(s![.., .., ..-1, ..]),
    );
    let sum = x.clone().pad((1, 0, 0, 0), zero())
        + x.pad((0, 1, 0, 0), zero())
        + y.clone().pad((0, 0, 1, 0), zero())
        + y.pad((0, 0, 0, 1), zero());
    sum.greater_elem(0).float()
}

/// The least-squares loss of judgements that should all be `target`.
fn least_squares(judged: &[Vec<Tensor<4>>], target: f64) -> Tensor<1> {
    total(judged.iter().map(|outputs| {
        let judgement = outputs.last().expect("a discriminator has layers").clone();
        let targets = judgement.full_like(target);
        MseLoss::new().forward(judgement, targets, Reduction::Mean)
    }))
}

/// The mean absolute difference.
fn l1(made: Tensor<4>, real: Tensor<4>) -> Tensor<1> {
    LpLossConfig::l1().forward(made, real.detach(), Reduction::Mean)
}

fn total(losses: impl Iterator<Item = Tensor<1>>) -> Tensor<1> {
    losses.reduce(Tensor::add).expect("at least one loss")
}

/// The losses of the generator and of the discriminator, in the reference's order: three
/// passes of the discriminator and one of VGG with a graph, all alive at the end.
fn losses(
    generator: &Generator,
    discriminator: &Discriminator,
    vgg: &Features,
    maps: Tensor<4>,
    images: Tensor<4>,
) -> (Tensor<1>, Tensor<1>) {
    let judge = |images: Tensor<4>| {
        discriminator.forward(Tensor::cat(vec![maps.clone(), images], 1))
    };
    let made = generator.forward(maps.clone());
    let of_made = least_squares(&judge(made.clone().detach()), 0.0);
    let judged_real = judge(images.clone());
    let of_real = least_squares(&judged_real, 1.0);
    let judged_made = judge(made.clone());
    let of_generator = least_squares(&judged_made, 1.0);

    let scales = judged_real.len() as f64;
    let matching = total(judged_made.into_iter().zip(judged_real).map(|(made, real)| {
        // All layers but the judgement itself.
        let layers = made.len() - 1;
        let pairs = made.into_iter().zip(real).take(layers);
        total(pairs.map(|(made, real)| l1(made, real))).mul_scalar(4.0 / layers as f64)
    }))
    .mul_scalar(LAMBDA / scales);

    let of_vgg = vgg.first_of_each_stage(made);
    let maps_of_real = vgg.first_of_each_stage(images);
    let perceptual = total(
        of_vgg
            .into_iter()
            .zip(maps_of_real)
            .zip(VGG_WEIGHTS)
            .map(|((made, real), weight)| l1(made, real).mul_scalar(weight)),
    )
    .mul_scalar(LAMBDA);

    (
        of_generator + matching + perceptual,
        (of_made + of_real).mul_scalar(0.5),
    )
}

/// Trains both networks; the generator's step comes before the discriminator's
/// backward pass, as in the reference.
fn train<W: Watcher>(
    config: &Pix2PixHdConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    watcher: &mut W,
) -> Result<(), W::Stop> {
    let mut generator = Trainee::named("generator", config.generator.init(device), job);
    let mut discriminator = Trainee::named("discriminator", config.discriminator.init(device), job);
    let vgg = Features::new(&config.vgg, false, device).no_grad();
    let [height, width] = job.image();
    generator.show(watcher);
    discriminator.show(watcher);
    watcher.module("vgg", &vgg);
    watcher.end(Phase::Init)?;
    for _ in 0..steps {
        for micro_batch in 1..=job.accumulate {
            let last = micro_batch == job.accumulate;
            let map = [job.batch, 1, height, width];
            let labels = Tensor::<4, Int>::zeros(map, device);
            let instances = Tensor::<4, Int>::zeros(map, device);
            let random = Distribution::Uniform(-1.0, 1.0);
            let images = Tensor::<4>::random([job.batch, 3, height, width], random, device);
            let batch = (labels, instances, images);
            batch.show(watcher);
            watcher.end(Phase::Data)?;

            let (labels, instances, images) = batch;
            let (of_generator, of_discriminator) = losses(
                generator.module(),
                discriminator.module(),
                &vgg,
                encode(labels, instances, config.labels),
                images,
            );
            generator.show(watcher);
            discriminator.show(watcher);
            watcher.module("vgg", &vgg);
            generator.backward(of_generator, watcher)?;
            if last {
                generator = generator.step(watcher)?;
            }
            discriminator.backward(of_discriminator, watcher)?;
            if last {
                discriminator = discriminator.step(watcher)?;
            }
        }
    }
    Ok(())
}

/// The networks and their training step.
pub(crate) struct Pix2PixHd;

impl Network for Pix2PixHd {
    fn variants() -> Vec<Variant> {
        let variant = |name, trainable, tensors, image, recipe| Variant {
            name,
            family: "Pix2PixHD",
            file: "pix2pixhd",
            paper: "Wang, Liu, Zhu, Tao, Kautz, Catanzaro 2018, High-Resolution Image Synthesis and Semantic Manipulation with Conditional GANs, arXiv 1711.11585",
            reference: "NVIDIA/pix2pixHD models/networks.py, models/pix2pixHD_model.py, train.py",
            counts: Counts {
                trainable,
                tensors,
                buffers: 0,
            },
            input: Input {
                image: Some(image),
                ..Input::default()
            },
            batch: 1,
            optimizer: OptimizerKind::Adam,
            recipe,
            differences: &[
                "burn composes instance normalisation of elementwise operations, which keeps two to four maps for the backward pass where a fused one keeps one",
            ],
        };
        vec![
            variant(
                "pix2pixhd-512p",
                182_546_755 + 5_603_202,
                56 + 20,
                [512, 1024],
                "Cityscapes at 512x1024 (height x width), 35 labels and instance edges, batch 1, global generator, 2 discriminators, least-squares, feature matching and VGG losses, two Adam optimizers with learning rate 2e-4 and beta1 0.5",
            ),
            variant(
                "pix2pixhd",
                182_857_059 + 8_404_803,
                74 + 30,
                [1024, 2048],
                "Cityscapes at 1024x2048 (height x width), 35 labels and instance edges, batch 1, local enhancer on the global generator, both trained, 3 discriminators, least-squares, feature matching and VGG losses, two Adam optimizers with learning rate 2e-4 and beta1 0.5",
            ),
        ]
    }

    fn check(variant: &Variant, job: &Job) -> Result<(), Error> {
        // The generator halves so often, and mirrors at least two rows of what remains.
        let GeneratorConfig {
            halvings, enhancer, ..
        } = Pix2PixHdConfig::published(variant.name).generator;
        let halvings = halvings + usize::from(enhancer.is_some());
        let unit = 1 << halvings;
        job.check_image(
            format!("a multiple of {unit}, at least {}, each way", 2 * unit),
            |image| {
                image
                    .into_iter()
                    .all(|size| size % unit == 0 && size >= 2 * unit)
            },
        )
    }

    fn frozen_paths(_variant: &Variant) -> &'static [&'static str] {
        &[r"^vgg\."]
    }

    fn train<W: Watcher>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        watcher: &mut W,
    ) -> Result<(), W::Stop> {
        let config = match variant.name {
            "pix2pixhd-mini" => Pix2PixHdConfig::mini(Some(1)),
            name => Pix2PixHdConfig::published(name),
        };
        train(&config, job, device, steps, watcher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, toy};

    #[test]
    fn an_image_is_as_large_as_its_map() {
        let device = toy::flex();
        for enhancer in [None, Some(1)] {
            let generator = Pix2PixHdConfig::mini(enhancer).generator.init(&device);
            let images = generator.forward(Tensor::zeros([1, 4, 32, 64], &device));
            assert_eq!(images.dims(), [1, 3, 32, 64]);
        }
    }

    #[test]
    fn an_edge_is_on_both_sides_of_a_border() {
        let device = toy::flex();
        let instances = Tensor::<1, Int>::from_ints([7, 7, 8, 8], &device).reshape([1, 1, 1, 4]);
        let edges: Vec<f32> = edges(instances).into_data().try_into_vec().unwrap();
        assert_eq!(edges, [0.0, 1.0, 1.0, 0.0]);
    }

    #[test]
    fn trains() {
        for (name, enhancer) in [("pix2pixhd-512p", None), ("pix2pixhd", Some(1))] {
            let request = Request {
                input: Input {
                    image: Some([32, 64]),
                    ..Input::default()
                },
                ..Request::default()
            };
            let of_the_generator = toy::Kind { which: 0, of: 2 };
            toy::one_falls(of_the_generator, name, &request, |job, device, steps, losses| {
                train(&Pix2PixHdConfig::mini(enhancer), job, device, steps, losses)
            });
        }
    }

    #[test]
    fn vgg_weighs_what_is_published_and_learns_nothing() {
        let device = toy::flex().autodiff();
        let vgg = Features::new(&Pix2PixHdConfig::mini(None).vgg, false, &device).no_grad();
        let images = Tensor::<4>::zeros([1, 3, 32, 32], &device).require_grad();
        let loss = total(
            vgg.first_of_each_stage(images.clone())
                .into_iter()
                .map(|map| map.mean()),
        );
        let mut gradients = loss.backward();
        assert!(images.grad(&gradients).is_some());
        let learnt = burn::optim::GradientsParams::from_module(&mut gradients, &vgg);
        assert!(learnt.is_empty());

        let published = Pix2PixHdConfig::published("pix2pixhd").vgg;
        let parameters = Features::new(&published, false, &device).num_params();
        assert_eq!(parameters, 12_944_960);
    }

    #[test]
    fn a_size_that_does_not_halve_is_refused() {
        let error = toy::refusal("pix2pixhd", [1024, 2040]);
        assert_eq!(
            error.to_string(),
            "--image must be a multiple of 32, at least 64, each way, not 1024x2040"
        );
    }
}
