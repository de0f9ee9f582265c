//! Pix2PixHD: photographs from label maps. See `variants` for paper, reference and differences.
//!
//! The file is long because its training step trains two models with three kinds of losses, and its published
//! sizes are in the same file.

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
use crate::{Batch, Counts, Error, Input, Job, Observer, OptimizerKind, Phase, Trainer, Variant};

/// Weight of the feature matching and of the VGG loss (the reference's `lambda_feat`).
const LAMBDA: f64 = 10.0;

/// Weights of VGG's five maps in the loss, finest first.
const VGG_WEIGHTS: [f64; 5] = [1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0, 1.0];

/// The configuration of the networks.
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
        // The loss reads nothing after the first convolution of the last stage.
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

    /// Networks for three labels. `enhancer` is [`GeneratorConfig::enhancer`].
    fn tiny(enhancer: Option<usize>) -> Self {
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

/// An average-pooling that halves the resolution and does not count the padding.
fn halving() -> AvgPool2d {
    AvgPool2dConfig::new([3, 3])
        .with_strides([2, 2])
        .with_padding(around(1))
        .with_count_include_pad(false)
        .init()
}

/// The input of the generator, `[batch, planes + 1, height, width]`: a plane for each label and a
/// plane with the edges between instances. `labels` and `instances: [batch, 1, height, width]`.
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

/// 1 where a pixel belongs to another instance than one of its four neighbours, else 0, from
/// `instances: [batch, 1, height, width]`.
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

/// The least-squares loss `[1]` of the outputs `judged` of a discriminator against `target`.
fn least_squares(judged: &[Vec<Tensor<4>>], target: f64) -> Tensor<1> {
    total(judged.iter().map(|outputs| {
        let judgement = outputs.last().expect("a discriminator has layers").clone();
        let targets = judgement.full_like(target);
        MseLoss::new().forward(judgement, targets, Reduction::Mean)
    }))
}

/// The mean absolute difference `[1]` of two maps.
fn l1(made: Tensor<4>, real: Tensor<4>) -> Tensor<1> {
    LpLossConfig::l1().forward(made, real.detach(), Reduction::Mean)
}

fn total(losses: impl Iterator<Item = Tensor<1>>) -> Tensor<1> {
    losses.reduce(Tensor::add).expect("at least one loss")
}

/// The losses `[1]` of the generator and of the discriminator, from `maps: [batch, inputs,
/// height, width]` and `images: [batch, 3, height, width]`. As in the reference, the graphs of
/// the generator, of three passes of the discriminator and of one pass of VGG are all alive at
/// the end.
fn losses(
    generator: &Generator,
    discriminator: &Discriminator,
    vgg: &Features,
    maps: Tensor<4>,
    images: Tensor<4>,
) -> (Tensor<1>, Tensor<1>) {
    let judge =
        |images: Tensor<4>| discriminator.forward(Tensor::cat(vec![maps.clone(), images], 1));
    let made = generator.forward(maps.clone());
    let of_made = least_squares(&judge(made.clone().detach()), 0.0);
    let judged_real = judge(images.clone());
    let of_real = least_squares(&judged_real, 1.0);
    let judged_made = judge(made.clone());
    let of_generator = least_squares(&judged_made, 1.0);

    let scales = judged_real.len() as f64;
    let matching = total(
        judged_made
            .into_iter()
            .zip(judged_real)
            .map(|(made, real)| {
                // All layers but the judgement itself.
                let layers = made.len() - 1;
                let pairs = made.into_iter().zip(real).take(layers);
                total(pairs.map(|(made, real)| l1(made, real))).mul_scalar(4.0 / layers as f64)
            }),
    )
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

/// Trains both networks. As in the reference, the generator's step comes before the
/// discriminator's backward pass.
fn train<O: Observer>(
    config: &Pix2PixHdConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let mut generator = Trainer::named("generator", config.generator.init(device), job);
    let mut discriminator = Trainer::named("discriminator", config.discriminator.init(device), job);
    let vgg = Features::new(&config.vgg, false, device).no_grad();
    let [height, width] = job.image();
    generator.show(observer);
    discriminator.show(observer);
    observer.module("vgg", &vgg);
    observer.end(Phase::Init)?;
    for _ in 0..steps {
        for micro_batch in 1..=job.accumulate {
            let last = micro_batch == job.accumulate;
            let map = [job.batch, 1, height, width];
            let labels = Tensor::<4, Int>::zeros(map, device);
            let instances = Tensor::<4, Int>::zeros(map, device);
            let random = Distribution::Uniform(-1.0, 1.0);
            let images = Tensor::<4>::random([job.batch, 3, height, width], random, device);
            let batch = (labels, instances, images);
            batch.show(observer);
            observer.end(Phase::Data)?;

            let (labels, instances, images) = batch;
            let (of_generator, of_discriminator) = losses(
                generator.module(),
                discriminator.module(),
                &vgg,
                encode(labels, instances, config.labels),
                images,
            );
            generator.show(observer);
            discriminator.show(observer);
            observer.module("vgg", &vgg);
            generator.backward(of_generator, observer)?;
            if last {
                generator = generator.step(observer)?;
            }
            discriminator.backward(of_discriminator, observer)?;
            if last {
                discriminator = discriminator.step(observer)?;
            }
        }
        observer.step_ends()?;
    }
    Ok(())
}

/// The networks and their training step.
pub(crate) struct Pix2PixHd;

/// The difference of both variants from the reference.
const INSTANCE_NORM: &str = "burn composes instance normalisation of elementwise operations, which keeps two to four maps for the backward pass where a fused one keeps one";

impl Network for Pix2PixHd {
    fn variants(file: &'static str) -> Vec<Variant> {
        let variant = |name, trainable, tensors, image, recipe| Variant {
            name,
            family: "Pix2PixHD",
            file,
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
            differences: &[INSTANCE_NORM],
        };
        let enhanced = variant(
            "pix2pixhd",
            182_857_059 + 8_404_803,
            74 + 30,
            [1024, 2048],
            "Cityscapes at 1024x2048 (height x width), 35 labels and instance edges, batch 1, local enhancer on the global generator, both trained, 3 discriminators, least-squares, feature matching and VGG losses, two Adam optimizers with learning rate 2e-4 and beta1 0.5",
        );
        vec![
            variant(
                "pix2pixhd-512p",
                182_546_755 + 5_603_202,
                56 + 20,
                [512, 1024],
                "Cityscapes at 512x1024 (height x width), 35 labels and instance edges, batch 1, global generator, 2 discriminators, least-squares, feature matching and VGG losses, two Adam optimizers with learning rate 2e-4 and beta1 0.5",
            ),
            Variant {
                differences: &[
                    INSTANCE_NORM,
                    "the first ten epochs, in which the optimizer holds only the enhancer, are left out: this is the longer rest of the stage",
                ],
                ..enhanced
            },
        ]
    }

    fn check(variant: &Variant, job: &Job) -> Result<(), Error> {
        job.trains_two_networks()?;
        // The generator halves the image `halvings` times, and reflects one row of the result,
        // for which it needs two.
        let GeneratorConfig {
            halvings, enhancer, ..
        } = config(variant).generator;
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

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        train(&config(variant), job, device, steps, observer)
    }
}

/// The configuration of `variant`.
fn config(variant: &Variant) -> Pix2PixHdConfig {
    match variant.name {
        "pix2pixhd-mini" => Pix2PixHdConfig::tiny(Some(1)),
        name => Pix2PixHdConfig::published(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, test_support};

    #[test]
    fn an_image_is_as_large_as_its_map() {
        let device = test_support::flex();
        for enhancer in [None, Some(1)] {
            let generator = Pix2PixHdConfig::tiny(enhancer).generator.init(&device);
            let images = generator.forward(Tensor::zeros([1, 4, 32, 64], &device));
            assert_eq!(images.dims(), [1, 3, 32, 64]);
        }
    }

    #[test]
    fn an_edge_is_on_both_sides_of_a_border() {
        let device = test_support::flex();
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
            let of_the_generator = test_support::Kind { which: 0, of: 2 };
            test_support::assert_one_loss_decreases(
                of_the_generator,
                name,
                &request,
                |job, device, steps, losses| {
                    train(&Pix2PixHdConfig::tiny(enhancer), job, device, steps, losses)
                },
            );
        }
    }

    #[test]
    fn vgg_has_the_published_parameters_and_is_frozen() {
        let device = test_support::flex().autodiff();
        let vgg = Features::new(&Pix2PixHdConfig::tiny(None).vgg, false, &device).no_grad();
        let images = Tensor::<4>::zeros([1, 3, 32, 32], &device).require_grad();
        let loss = total(
            vgg.first_of_each_stage(images.clone())
                .into_iter()
                .map(|map| map.mean()),
        );
        let mut gradients = loss.backward();
        assert!(images.grad(&gradients).is_some());
        let of_vgg = burn::optim::GradientsParams::from_module(&mut gradients, &vgg);
        assert!(of_vgg.is_empty());

        let published = Pix2PixHdConfig::published("pix2pixhd").vgg;
        let parameters = Features::new(&published, false, &device).num_params();
        assert_eq!(parameters, 12_944_960);
    }

    #[test]
    fn a_size_that_does_not_halve_is_refused() {
        let error = test_support::refusal("pix2pixhd", [1024, 2040]);
        assert_eq!(
            error.to_string(),
            "image size must be a multiple of 32, at least 64, each way, not 1024x2040"
        );
    }
}
