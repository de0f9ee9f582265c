//! The Swin Transformer. See `variants` for paper, reference and differences.

use burn::module::{Module, Param};
use burn::nn::activation::{Activation, ActivationConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{
    Dropout, DropoutConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::{Device, Int, Tensor, TensorData, s};

use super::Network;
use crate::blocks::attention::{ScoreRules, attend_by, join_heads, split_heads};
use crate::blocks::drop_path;
use crate::classify::classify;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant};

/// What is added to the score of a key from another part of the image (`get_attn_mask` of transformers).
const HIDDEN: f32 = -100.0;

/// The epsilon of the normalisations outside layers, that of torch.
const EPSILON: f64 = 1e-5;

/// The configuration of a [`Swin`]; the fields are those of a `config.json`.
#[derive(Clone, Debug)]
pub(crate) struct SwinConfig {
    /// Height and width of the images: 224 x 224.
    pub image: [usize; 2],
    /// Height and width of a patch: 4 x 4.
    pub patch: [usize; 2],
    /// Width of the first stage; each further one has twice that of the one before.
    pub width: usize,
    /// Layers and heads of each stage.
    pub stages: Vec<[usize; 2]>,
    /// Patches on a side of a window: 7.
    pub window: usize,
    /// Width of the feed-forward block's hidden layer for each channel: 4.
    pub mlp_ratio: f64,
    /// Whether the projections to queries, keys and values have a bias: yes.
    pub qkv_bias: bool,
    /// Dropout on embeddings and residual branches: none.
    pub dropout: f64,
    /// Dropout on the attention weights: none.
    pub attention_dropout: f64,
    /// The share of samples that the last layer leaves out; that of the others grows evenly from 0.
    pub drop_path: f64,
    /// Whether each patch has a learned position: no.
    pub positions: bool,
    /// Epsilon of the normalisations of layers: 1e-5.
    pub epsilon: f64,
    /// Activation: exact GELU.
    pub activation: ActivationConfig,
    /// Classes of the output.
    pub classes: usize,
}

impl SwinConfig {
    /// Swin-T.
    pub fn tiny(image: [usize; 2], classes: usize) -> Self {
        Self {
            image,
            patch: [4; 2],
            width: 96,
            stages: vec![[2, 3], [2, 6], [6, 12], [2, 24]],
            window: 7,
            mlp_ratio: 4.0,
            qkv_bias: true,
            dropout: 0.0,
            attention_dropout: 0.0,
            drop_path: 0.2,
            positions: false,
            epsilon: 1e-5,
            activation: ActivationConfig::Gelu,
            classes,
        }
    }

    /// Swin-B.
    pub fn base(image: [usize; 2], classes: usize) -> Self {
        Self {
            width: 128,
            stages: vec![[2, 4], [2, 8], [18, 16], [2, 32]],
            drop_path: 0.5,
            ..Self::tiny(image, classes)
        }
    }

    /// The same network with small numbers, of which any device trains a step within seconds.
    fn mini(self) -> Self {
        Self {
            width: 8,
            stages: vec![[2, 2], [2, 4]],
            window: 3,
            ..self
        }
    }

    /// Patches along the height and the width of an image: those that it does not fill are padded.
    fn grid(&self) -> [usize; 2] {
        [0, 1].map(|side| self.image[side].div_ceil(self.patch[side]))
    }

    /// The grid of stage `stage`: each further one has half of the patches, rounded up.
    fn grid_of(&self, stage: usize) -> [usize; 2] {
        self.grid().map(|side| side.div_ceil(1 << stage))
    }

    /// Checks that the images of `job` have a window of patches in each stage.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if they have not.
    pub fn check(&self, job: &Job) -> Result<(), Error> {
        let last = self.stages.len() - 1;
        let [height, width] = self.patch.map(|side| side << last);
        let window = self.window;
        let must = format!(
            "such that it has {window}x{window} pieces of {height}x{width} pixels, the window of its last stage"
        );
        job.check_image(must, |image| {
            let config = Self {
                image,
                ..self.clone()
            };
            config.grid_of(last).iter().all(|side| *side >= window)
        })
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Swin {
        let layers: usize = self.stages.iter().map(|[layers, _]| layers).sum();
        let mut number = 0;
        let mut stages = Vec::new();
        for (stage, &[depth, heads]) in self.stages.iter().enumerate() {
            let width = self.width << stage;
            let is_last = stage + 1 == self.stages.len();
            let make = |layer: usize| {
                let share = (number + layer) as f64 / (layers - 1).max(1) as f64;
                self.layer(stage, layer, heads, self.drop_path * share, device)
            };
            let layers = (0..depth).map(make).collect();
            number += depth;
            stages.push(Stage {
                layers,
                merge: (!is_last).then(|| Merge {
                    norm: LayerNormConfig::new(4 * width).init(device),
                    reduction: LinearConfig::new(4 * width, 2 * width)
                        .with_bias(false)
                        .init(device),
                }),
            });
        }
        let [rows, columns] = self.grid();
        let last = self.width << (self.stages.len() - 1);
        let norm = |width: usize, epsilon: f64| {
            LayerNormConfig::new(width)
                .with_epsilon(epsilon)
                .init(device)
        };
        Swin {
            patches: Conv2dConfig::new([3, self.width], self.patch)
                .with_stride(self.patch)
                .init(device),
            norm: norm(self.width, EPSILON),
            positions: self
                .positions
                .then(|| Initializer::Zeros.init([1, rows * columns, self.width], device)),
            dropout: DropoutConfig::new(self.dropout).init(),
            stages,
            last_norm: norm(last, self.epsilon),
            head: LinearConfig::new(last, self.classes).init(device),
            patch: self.patch,
        }
    }

    fn layer(
        &self,
        stage: usize,
        layer: usize,
        heads: usize,
        drop_path: f64,
        device: &Device,
    ) -> Layer {
        let width = self.width << stage;
        let grid = self.grid_of(stage);
        // One window over the whole image needs no shift.
        let shifts = layer % 2 == 1 && grid.iter().all(|side| *side > self.window);
        let norm = || {
            LayerNormConfig::new(width)
                .with_epsilon(self.epsilon)
                .init(device)
        };
        let linear = |bias| LinearConfig::new(width, width).with_bias(bias).init(device);
        let d_ff = (self.mlp_ratio * width as f64) as usize;
        let distances = 2 * self.window - 1;
        Layer {
            norm_1: norm(),
            attention: WindowAttention {
                query: linear(self.qkv_bias),
                key: linear(self.qkv_bias),
                value: linear(self.qkv_bias),
                output: linear(true),
                bias: Initializer::Zeros.init([distances * distances, heads], device),
                dropout: DropoutConfig::new(self.attention_dropout).init(),
                heads,
                window: self.window,
            },
            norm_2: norm(),
            wide: LinearConfig::new(width, d_ff).init(device),
            activation: self.activation.init(device),
            narrow: LinearConfig::new(d_ff, width).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            window: self.window,
            shift: if shifts { self.window / 2 } else { 0 },
            keep: 1.0 - drop_path,
        }
    }
}

/// A transformer whose layers attend within windows.
#[derive(Module, Debug)]
pub(crate) struct Swin {
    patches: Conv2d,
    norm: LayerNorm,
    positions: Option<Param<Tensor<3>>>,
    dropout: Dropout,
    stages: Vec<Stage>,
    last_norm: LayerNorm,
    head: Linear,
    patch: [usize; 2],
}

impl Swin {
    /// Class scores `[batch, classes]` of `images: [batch, 3, height, width]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let images = padded(images, 2, self.patch[0]);
        let images = padded(images, 3, self.patch[1]);
        let patches = self.patches.forward(images);
        let [batch, width, rows, columns] = patches.dims();
        let x = self
            .norm
            .forward(patches.flatten::<3>(2, 3).swap_dims(1, 2));
        let x = match &self.positions {
            Some(positions) => x + positions.val(),
            None => x,
        };
        let mut x = self
            .dropout
            .forward(x)
            .reshape([batch, rows, columns, width]);
        for stage in &self.stages {
            x = stage.forward(x);
        }
        let x: Tensor<3> = self.last_norm.forward(x).flatten(1, 2);
        self.head.forward(x.mean_dim(1).squeeze_dim(1))
    }
}

/// `x` with zeros behind it, so that `multiple` divides its dimension `dim`.
fn padded(x: Tensor<4>, dim: usize, multiple: usize) -> Tensor<4> {
    let mut shape = x.dims();
    let missing = shape[dim].next_multiple_of(multiple) - shape[dim];
    if missing == 0 {
        return x;
    }
    shape[dim] = missing;
    let zeros = Tensor::zeros(shape, &x.device());
    Tensor::cat(vec![x, zeros], dim)
}

/// Layers at one resolution, and a step down from it.
#[derive(Module, Debug)]
struct Stage {
    layers: Vec<Layer>,
    merge: Option<Merge>,
}

impl Stage {
    /// From `[batch, rows, columns, width]` to `[batch, rows', columns', width']`.
    fn forward(&self, mut x: Tensor<4>) -> Tensor<4> {
        for layer in &self.layers {
            x = layer.forward(x);
        }
        match &self.merge {
            Some(merge) => merge.forward(x),
            None => x,
        }
    }
}

/// Makes one patch of four, with twice the width.
#[derive(Module, Debug)]
struct Merge {
    norm: LayerNorm,
    reduction: Linear,
}

impl Merge {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = padded(padded(x, 1, 2), 2, 2);
        let corner = |row: usize, column: usize| x.clone().slice(s![.., row..;2, column..;2, ..]);
        let corners = vec![corner(0, 0), corner(1, 0), corner(0, 1), corner(1, 1)];
        let x = Tensor::cat(corners, 3);
        self.reduction.forward(self.norm.forward(x))
    }
}

/// Attention within windows, every second time within shifted ones, and a feed-forward block.
#[derive(Module, Debug)]
struct Layer {
    norm_1: LayerNorm,
    attention: WindowAttention,
    norm_2: LayerNorm,
    wide: Linear,
    activation: Activation,
    narrow: Linear,
    dropout: Dropout,
    window: usize,
    shift: usize,
    keep: f64,
}

impl Layer {
    /// `[batch, rows, columns, width]` from `x` of the same shape.
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [_, rows, columns, _] = x.dims();
        let normal = self.norm_1.forward(x.clone());
        let normal = padded(padded(normal, 1, self.window), 2, self.window);
        let shift = self.shift as i64;
        let normal = match shift {
            0 => normal,
            _ => normal.roll(&[-shift, -shift], &[1, 2]),
        };
        let whole = normal.dims();
        let mask = (shift > 0).then(|| self.mask([whole[1], whole[2]], &normal.device()));
        let attended = self.attention.forward(self.windows(normal), mask);
        let attended = self.whole(self.dropout.forward(attended), whole);
        let attended = match shift {
            0 => attended,
            _ => attended.roll(&[shift, shift], &[1, 2]),
        };
        let attended = match [rows, columns] == whole[1..3] {
            true => attended,
            false => attended.slice(s![.., 0..rows, 0..columns, ..]),
        };
        let x = x + drop_path(attended, self.keep);
        let fed = self.wide.forward(self.norm_2.forward(x.clone()));
        let fed = self.narrow.forward(self.activation.forward(fed));
        x + self.dropout.forward(fed)
    }

    /// `[batch * windows, window * window, width]` from `x: [batch, rows, columns, width]`.
    fn windows(&self, x: Tensor<4>) -> Tensor<3> {
        let [batch, rows, columns, width] = x.dims();
        let (w, down, across) = (self.window, rows / self.window, columns / self.window);
        x.reshape([batch, down, w, across, w, width])
            .swap_dims(2, 3)
            .reshape([batch * down * across, w * w, width])
    }

    /// The inverse of [`Layer::windows`].
    fn whole(&self, x: Tensor<3>, shape: [usize; 4]) -> Tensor<4> {
        let [batch, rows, columns, width] = shape;
        let (w, down, across) = (self.window, rows / self.window, columns / self.window);
        x.reshape([batch, down, across, w, w, width])
            .swap_dims(2, 3)
            .reshape(shape)
    }

    /// What is added to the scores `[windows, 1, window * window, window * window]` of a shifted image: a window at its
    /// edge has parts that do not belong together.
    fn mask(&self, [rows, columns]: [usize; 2], device: &Device) -> Tensor<4> {
        let w = self.window;
        // Three regions along each side.
        let region = |place: usize, side: usize| {
            usize::from(place >= side - w) + usize::from(place >= side - self.shift)
        };
        let mut mask = Vec::with_capacity(rows * columns * w * w);
        for (down, across) in
            (0..rows / w).flat_map(|down| (0..columns / w).map(move |a| (down, a)))
        {
            let of = |place: usize| {
                let [row, column] = [down * w + place / w, across * w + place % w];
                3 * region(row, rows) + region(column, columns)
            };
            for (query, key) in (0..w * w).flat_map(|query| (0..w * w).map(move |key| (query, key)))
            {
                mask.push(if of(query) == of(key) { 0.0 } else { HIDDEN });
            }
        }
        let windows = (rows / w) * (columns / w);
        Tensor::from_data(TensorData::new(mask, [windows, 1, w * w, w * w]), device)
    }
}

/// Attention with a learned score for each distance of query and key.
#[derive(Module, Debug)]
struct WindowAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// `[distances, heads]`
    bias: Param<Tensor<2>>,
    dropout: Dropout,
    heads: usize,
    window: usize,
}

impl WindowAttention {
    /// `[batch * windows, window * window, width]` from `x` of the same shape; `mask` is that of [`Layer::mask`].
    fn forward(&self, x: Tensor<3>, mask: Option<Tensor<4>>) -> Tensor<3> {
        let [all, places, _] = x.dims();
        let bias = self.distances(&x.device());
        let bias = match mask {
            Some(mask) => {
                let [windows, ..] = mask.dims();
                let mask = mask
                    .unsqueeze_dim::<5>(0)
                    .expand([all / windows, windows, 1, places, places])
                    .reshape([all, 1, places, places]);
                bias + mask
            }
            None => bias,
        };
        let rules = ScoreRules {
            bias: Some(bias),
            ..ScoreRules::default()
        };
        let [query, key, value] = [&self.query, &self.key, &self.value];
        let heads = [
            query.forward(x.clone()),
            key.forward(x.clone()),
            value.forward(x),
        ];
        let heads = heads.map(|part| split_heads(part, self.heads));
        let attended = attend_by(rules, heads, None, &self.dropout);
        self.output.forward(join_heads(attended))
    }

    /// The scores `[1, heads, window * window, window * window]` of the distances.
    fn distances(&self, device: &Device) -> Tensor<4> {
        let (w, places) = (self.window as i64, self.window * self.window);
        let pairs = (0..w * w).flat_map(|query| (0..w * w).map(move |key| (query, key)));
        let index = pairs.map(|(query, key)| {
            let [down, across] = [query / w - key / w, query % w - key % w];
            (down + w - 1) * (2 * w - 1) + across + w - 1
        });
        let index: Vec<i64> = index.collect();
        let index = Tensor::<1, Int>::from_data(TensorData::new(index, [places * places]), device);
        self.bias
            .val()
            .select(0, index)
            .reshape([places, places, self.heads])
            .permute([2, 0, 1])
            .unsqueeze()
    }
}

impl Network for Swin {
    const OUTPUT_LAYERS: &'static [&'static str] = &["head"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let sized = |name, trainable, tensors| Variant {
            name,
            family: "Swin",
            file,
            paper: "Liu et al. 2021, Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, arXiv 2103.14030",
            reference: "transformers SwinForImageClassification; microsoft/Swin-Transformer models/swin_transformer.py",
            counts: Counts {
                trainable,
                tensors,
                buffers: 0,
            },
            input: Input {
                image: Some([224, 224]),
                classes: Some(1000),
                ..Input::default()
            },
            batch: 128,
            optimizer: OptimizerKind::AdamW,
            recipe: "ImageNet, 224x224 crops, 128 images a card (1,024 in all), cross-entropy, AdamW, stochastic depth",
            differences: &[
                "attention scores are computed as a tensor",
                "the masks of shifted windows and the numbers of distances are sent to the device in each step: less than 1 MiB",
                "augmentations, label smoothing, gradient clipping and weight decay are left out: they need no memory that outlives an operation",
            ],
        };
        vec![
            sized("swin-tiny", 28_288_354, 221),
            sized("swin-base", 87_768_224, 425),
        ]
    }

    fn check(variant: &Variant, job: &Job) -> Result<(), Error> {
        published(variant, job).check(job)
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let network = published(variant, job).init(device);
        classify(network, job, device, steps, observer, Swin::forward)
    }
}

/// The published configuration of `variant`.
fn published(variant: &Variant, job: &Job) -> SwinConfig {
    let (image, classes) = (job.image(), job.classes());
    match variant.name {
        "swin-tiny" => SwinConfig::tiny(image, classes),
        "swin-base" => SwinConfig::base(image, classes),
        "swin-mini" => SwinConfig::tiny(image, classes).mini(),
        other => unreachable!("{other} is not a variant of this file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    /// Sides that neither patches, windows nor merges divide.
    #[test]
    fn scores_have_a_row_for_each_image() {
        let device = test_support::flex();
        for (image, positions) in [([48, 48], false), ([45, 58], true)] {
            let config = SwinConfig {
                positions,
                ..SwinConfig::tiny(image, 10).mini()
            };
            let images = Tensor::zeros([2, 3, image[0], image[1]], &device);
            assert_eq!(config.init(&device).forward(images).dims(), [2, 10]);
        }
    }

    #[test]
    fn windows_and_the_whole_are_inverse() {
        let device = test_support::flex();
        let config = SwinConfig::tiny([48, 48], 10).mini();
        let layer = config.layer(0, 1, 2, 0.0, &device);
        let x = Tensor::<1, Int>::arange(0..2 * 6 * 9 * 4, &device)
            .float()
            .reshape([2, 6, 9, 4]);
        let back = layer.whole(layer.windows(x.clone()), [2, 6, 9, 4]);
        back.into_data().assert_eq(&x.into_data(), true);
    }

    /// By hand, for 6 x 6 patches in windows of 3 that are shifted by 1: in the last window, the last row and the last
    /// column come from the other side.
    #[test]
    fn a_window_at_the_edge_has_parts() {
        let device = test_support::flex();
        let config = SwinConfig::tiny([48, 48], 10).mini();
        let layer = config.layer(0, 1, 2, 0.0, &device);
        assert_eq!(layer.shift, 1);
        let mask = layer.mask([6, 6], &device);
        let hidden = |window: usize, query: usize| -> Vec<bool> {
            let row = s![window..window + 1, .., query..query + 1, ..];
            let scores = mask.clone().slice(row).into_data();
            let scores: Vec<f32> = scores.try_into_vec().unwrap();
            scores.into_iter().map(|score| score < 0.0).collect()
        };
        assert!(hidden(0, 0).iter().all(|hidden| !hidden));
        let mut others = [false; 9];
        for place in [2, 5, 6, 7, 8] {
            others[place] = true;
        }
        assert_eq!(hidden(3, 0), others);
    }

    #[test]
    fn an_image_without_a_window_in_the_last_stage_is_refused() {
        let variant = crate::find("swin-tiny").unwrap();
        let mut job = crate::Request::default().resolve(&variant).unwrap();
        job.input.image = Some([224, 193]);
        assert!(Swin::check(&variant, &job).is_ok());
        job.input.image = Some([224, 192]);
        assert!(Swin::check(&variant, &job).is_err());
    }
}
