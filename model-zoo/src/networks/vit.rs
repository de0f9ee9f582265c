//! The Vision Transformer ViT-B/16. See `variants` for paper, reference and differences.

use burn::module::{Module, Param};
use burn::nn::activation::ActivationConfig;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Dropout, DropoutConfig, Initializer, LayerNorm, Linear, LinearConfig};
use burn::tensor::{Device, Distribution, Int, Tensor, s};

use super::Network;
use crate::blocks::pre_norm::{PreNormConfig, PreNormLayer};
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// Label smoothing of torchvision's recipe for ViT-B/16.
const SMOOTHING: f32 = 0.11;

/// The most patches of an image, of which 64 bits can count the scores: 1,024 x 1,024.
const MAX_PATCHES: usize = 1 << 20;

/// The configuration of a [`Vit`]; the fields are those of a `config.json`.
#[derive(Clone, Debug)]
pub(crate) struct VitConfig {
    /// Height and width of the images: 224 x 224. The network has a position for each patch.
    pub image: [usize; 2],
    /// Height and width of a patch: 16 x 16.
    pub patch: [usize; 2],
    /// Width of the model: 768.
    pub d_model: usize,
    /// Layers: 12.
    pub layers: usize,
    /// Attention heads: 12.
    pub heads: usize,
    /// Width of the feed-forward block's hidden layer: 3072.
    pub d_ff: usize,
    /// Dropout on embeddings, attention weights and residual branches: none.
    pub dropout: f64,
    /// Epsilon of the normalisations: 1e-6.
    pub epsilon: f64,
    /// Whether a second token, that of a teacher, stands beside the class (DeiT): no.
    pub distilled: bool,
    /// Classes of the output.
    pub classes: usize,
}

impl VitConfig {
    /// ViT-B/16.
    pub fn base_16(image: [usize; 2], classes: usize) -> Self {
        Self {
            image,
            patch: [16; 2],
            d_model: 768,
            layers: 12,
            heads: 12,
            d_ff: 3072,
            dropout: 0.0,
            epsilon: 1e-6,
            distilled: false,
            classes,
        }
    }

    /// Checks that the images of `job` have at most [`MAX_PATCHES`], and at least one.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if they have not.
    pub fn check_patches(&self, job: &Job) -> Result<(), Error> {
        let [height, width] = self.patch;
        let must =
            format!("at least {height}x{width}, with at most {MAX_PATCHES} patches of that size");
        job.check_image(must, |[high, wide]| {
            (1..=MAX_PATCHES).contains(&(high / height).saturating_mul(wide / width))
        })
    }

    /// Checks that patches fill the images of `job`.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if they do not.
    pub fn check(&self, job: &Job) -> Result<(), Error> {
        self.check_patches(job)?;
        let [height, width] = self.patch;
        job.check_image(format!("a multiple of {height}x{width}"), |[high, wide]| {
            high.is_multiple_of(height) && wide.is_multiple_of(width)
        })
    }

    fn layer(&self) -> PreNormConfig {
        PreNormConfig {
            d_model: self.d_model,
            heads: self.heads,
            d_ff: self.d_ff,
            dropout: self.dropout,
            epsilon: self.epsilon,
            activation: ActivationConfig::Gelu,
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Vit {
        let layer = self.layer();
        // Patches leave out the pixels that do not fill one.
        let [rows, columns] = [0, 1].map(|side| self.image[side] / self.patch[side]);
        let positions = rows * columns + 1 + usize::from(self.distilled);
        let token = || Initializer::Zeros.init([1, 1, self.d_model], device);
        let position_scale = Initializer::Normal {
            mean: 0.0,
            std: 0.02,
        };
        Vit {
            patches: Conv2dConfig::new([3, self.d_model], self.patch)
                .with_stride(self.patch)
                .init(device),
            class: token(),
            distillation: self.distilled.then(token),
            positions: position_scale.init([1, positions, self.d_model], device),
            dropout: DropoutConfig::new(self.dropout).init(),
            layers: (0..self.layers).map(|_| layer.init(device)).collect(),
            norm: layer.norm(device),
            head: LinearConfig::new(self.d_model, self.classes).init(device),
        }
    }
}

/// A transformer over the patches of an image.
#[derive(Module, Debug)]
pub(crate) struct Vit {
    patches: Conv2d,
    class: Param<Tensor<3>>,
    distillation: Option<Param<Tensor<3>>>,
    positions: Param<Tensor<3>>,
    dropout: Dropout,
    layers: Vec<PreNormLayer>,
    norm: LayerNorm,
    head: Linear,
}

impl Vit {
    /// Class scores `[batch, classes]` of `images: [batch, 3, height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let patches = self.patches.forward(images);
        let patches = patches.flatten::<3>(2, 3).swap_dims(1, 2);
        let [batch, _, d_model] = patches.dims();
        let tokens = [Some(&self.class), self.distillation.as_ref()];
        let mut x: Vec<_> = tokens
            .into_iter()
            .flatten()
            .map(|token| token.val().expand([batch, 1, d_model]))
            .collect();
        x.push(patches);
        let x = Tensor::cat(x, 1) + self.positions.val();
        let mut x = self.dropout.forward(x);
        for layer in &self.layers {
            x = layer.forward(x, None);
        }
        let class = self.norm.forward(x).slice(s![.., 0..1, ..]);
        self.head.forward(class.squeeze_dim(1))
    }
}

/// Trains the network that `config` describes to classify images.
pub(crate) fn train_on<O: Observer>(
    config: &VitConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let ([height, width], batch) = (config.image, job.batch);
    supervised(
        config.init(device),
        job,
        device,
        steps,
        observer,
        |device| {
            let images =
                Tensor::<4>::random([batch, 3, height, width], Distribution::Default, device);
            let labels = Tensor::<1, Int>::zeros([batch], device);
            (images, labels)
        },
        |network, (images, labels)| {
            let scores = network.forward(images);
            CrossEntropyLossConfig::new()
                .with_smoothing(Some(SMOOTHING))
                .init(&scores.device())
                .forward(scores, labels)
        },
    )
}

impl Network for Vit {
    const OUTPUT_LAYERS: &'static [&'static str] = &["head"];

    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "vit-b-16",
            family: "ViT",
            file,
            paper: "Dosovitskiy et al. 2020, An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale, arXiv 2010.11929",
            reference: "pytorch/vision torchvision/models/vision_transformer.py",
            counts: Counts {
                trainable: 86_567_656,
                tensors: 152,
                buffers: 0,
            },
            input: Input {
                image: Some([224, 224]),
                classes: Some(1000),
                ..Input::default()
            },
            batch: 64,
            optimizer: OptimizerKind::AdamW,
            recipe: "ImageNet, 224x224 crops, 64 images a card (4,096 in all), cross-entropy with label smoothing 0.11, AdamW",
            differences: &[
                "attention scores are computed as a tensor, torchvision's attention is fused: for each image, layer and head three matrices of 197 x 197 values are kept, 64.0 MiB an image in fp32",
                "augmentations, gradient clipping and weight decay are left out: they need no memory that outlives an operation",
                "the averaged copy of the weights is left out: one more value per parameter",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        VitConfig::base_16(job.image(), job.classes()).check(job)
    }

    fn train<O: Observer>(
        _variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = VitConfig::base_16(job.image(), job.classes());
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, find, test_support};

    fn tiny() -> VitConfig {
        VitConfig {
            d_model: 16,
            layers: 2,
            heads: 2,
            d_ff: 32,
            ..VitConfig::base_16([32, 48], 10)
        }
    }

    #[test]
    fn scores_have_a_row_for_each_image() {
        let device = test_support::flex();
        let images = Tensor::zeros([2, 3, 32, 48], &device);
        for distilled in [false, true] {
            let network = VitConfig {
                distilled,
                ..tiny()
            }
            .init(&device);
            assert_eq!(network.forward(images.clone()).dims(), [2, 10]);
        }
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(2),
            ..Request::default()
        };
        test_support::assert_loss_decreases("vit-b-16", &request, |job, device, _, losses| {
            train_on(&tiny(), job, device, 4, losses)
        });
    }

    #[test]
    fn an_image_that_patches_do_not_fill_is_refused() {
        let variant = find("vit-b-16").unwrap();
        let mut job = Request::default().resolve(&variant).unwrap();
        assert!(Vit::check(&variant, &job).is_ok());
        for image in [[224, 230], [8, 8], [1 << 20, 1 << 20]] {
            job.input.image = Some(image);
            assert!(Vit::check(&variant, &job).is_err(), "{image:?}");
        }
    }
}
