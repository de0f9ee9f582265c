//! The layers of random networks.
//!
//! The file is long because each of burn's layers appears as a specification, a module, and a call.

use burn::module::Module;
use burn::nn::activation::{Activation, ActivationConfig};
use burn::nn::attention::{
    MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask,
};
use burn::nn::conv::{
    Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig, ConvTranspose2d,
    ConvTranspose2dConfig, DeformConv2d, DeformConv2dConfig,
};
use burn::nn::gru::{BiGru, BiGruConfig, Gru, GruConfig};
use burn::nn::interpolate::{Interpolate2d, Interpolate2dConfig, InterpolateMode};
use burn::nn::pool::{
    AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, AvgPool2d, AvgPool2dConfig, MaxPool2d,
    MaxPool2dConfig,
};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    BatchNorm, BatchNormConfig, BiLstm, BiLstmConfig, Dropout, DropoutConfig, GroupNorm,
    GroupNormConfig, InstanceNorm, InstanceNormConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, Lstm, LstmConfig, PaddingConfig1d, PaddingConfig2d, PaddingConfig3d, RmsNorm,
    RmsNormConfig,
};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// The most positions of a sequence, so that an image does not become a sequence of thousands.
const LONGEST: usize = 256;

/// The most steps of a recurrent layer: burn unrolls it.
const UNROLLED: usize = 12;

/// The longest side of an image that a layer enlarges.
const ENLARGED: usize = 48;

/// The shape of a value, without its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `[channels, height, width]`
    Image([usize; 3]),
    /// `[positions, features]`
    Sequence([usize; 2]),
}

/// A value between two layers.
#[derive(Clone, Debug)]
pub enum Value {
    /// `[batch, channels, height, width]`
    Image(Tensor<4>),
    /// `[batch, positions, features]`
    Sequence(Tensor<3>),
}

/// A layer, as it is drawn. A layer that cannot work with the shape that it gets is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerSpec {
    /// A convolution of an image.
    Conv {
        /// Channels of the output.
        channels: usize,
        /// Side of the kernel, odd.
        kernel: usize,
        /// Stride.
        stride: usize,
        /// Spacing of the kernel's elements.
        dilation: usize,
        /// Groups, if they divide the channels; else their greatest common divisor.
        groups: usize,
    },
    /// A transposed convolution of an image.
    ConvTranspose {
        /// Channels of the output.
        channels: usize,
        /// Side of the kernel.
        kernel: usize,
        /// Stride.
        stride: usize,
    },
    /// A convolution over channels, height and width.
    Conv3d {
        /// Channels of the output for each of the input.
        channels: usize,
    },
    /// A deformable convolution; a convolution computes its offsets.
    Deform {
        /// Channels of the output.
        channels: usize,
        /// Whether the offsets have a mask.
        masked: bool,
    },
    /// A maximum over windows.
    MaxPool {
        /// Side of the window.
        kernel: usize,
        /// Stride.
        stride: usize,
    },
    /// A mean over windows.
    AvgPool {
        /// Side of the window.
        kernel: usize,
        /// Stride.
        stride: usize,
    },
    /// A mean over as many windows as the output has pixels.
    AdaptivePool {
        /// Side of the output.
        side: usize,
    },
    /// An interpolation.
    Interpolate {
        /// 0 is nearest, 1 bilinear, 2 bicubic.
        mode: u8,
        /// Side of the output.
        side: usize,
    },
    /// A normalization by the statistics of a batch.
    BatchNorm,
    /// A normalization of groups of channels.
    GroupNorm {
        /// Groups, if they divide the channels; else their greatest common divisor.
        groups: usize,
    },
    /// A normalization of each channel.
    InstanceNorm,
    /// The pixels of an image as the positions of a sequence.
    Flatten,
    /// A linear layer at each position.
    Linear {
        /// Features of the output.
        features: usize,
    },
    /// A convolution of a sequence.
    Conv1d {
        /// Features of the output.
        features: usize,
        /// Length of the kernel, odd.
        kernel: usize,
        /// Stride.
        stride: usize,
    },
    /// A normalization of each position.
    LayerNorm,
    /// A normalization of each position by its root mean square.
    RmsNorm,
    /// Self-attention.
    Attention {
        /// Heads, if they divide the features; else their greatest common divisor.
        heads: usize,
        /// Whether a position sees only those before it.
        causal: bool,
    },
    /// A layer of a transformer's encoder.
    Encoder {
        /// Heads, as in [`LayerSpec::Attention`].
        heads: usize,
        /// Features between its two linear layers.
        features: usize,
        /// Whether it normalizes first.
        norm_first: bool,
    },
    /// A long short-term memory.
    Lstm {
        /// Features of the output, of each direction.
        features: usize,
        /// Whether it reads the sequence in both directions.
        both: bool,
    },
    /// A gated recurrent unit.
    Gru {
        /// Features of the output, of each direction.
        features: usize,
        /// Whether it reads the sequence in both directions.
        both: bool,
    },
    /// An activation function, by its position in a list.
    Activation {
        /// The position.
        function: u8,
    },
    /// Dropout.
    Dropout {
        /// The probability in percent.
        percent: u8,
    },
}

/// A layer of a random network.
#[derive(Module, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "burn has no module behind a box, and a network has few layers"
)]
pub enum Layer {
    /// [`LayerSpec::Conv`]
    Conv(Conv2d),
    /// [`LayerSpec::ConvTranspose`]
    ConvTranspose(ConvTranspose2d),
    /// [`LayerSpec::Conv3d`]
    Conv3d(Conv3d),
    /// [`LayerSpec::Deform`]
    Deform(Deform),
    /// [`LayerSpec::MaxPool`]
    MaxPool(MaxPool2d),
    /// [`LayerSpec::AvgPool`]
    AvgPool(AvgPool2d),
    /// [`LayerSpec::AdaptivePool`]
    AdaptivePool(AdaptiveAvgPool2d),
    /// [`LayerSpec::Interpolate`]
    Interpolate(Interpolate2d),
    /// [`LayerSpec::BatchNorm`]
    BatchNorm(BatchNorm),
    /// [`LayerSpec::GroupNorm`]
    GroupNorm(GroupNorm),
    /// [`LayerSpec::InstanceNorm`]
    InstanceNorm(InstanceNorm),
    /// [`LayerSpec::Flatten`]
    Flatten(Flatten),
    /// [`LayerSpec::Linear`]
    Linear(Linear),
    /// [`LayerSpec::Conv1d`]
    Conv1d(Conv1d),
    /// [`LayerSpec::LayerNorm`]
    LayerNorm(LayerNorm),
    /// [`LayerSpec::RmsNorm`]
    RmsNorm(RmsNorm),
    /// [`LayerSpec::Attention`]
    Attention(Attention),
    /// [`LayerSpec::Encoder`]
    Encoder(TransformerEncoder),
    /// [`LayerSpec::Lstm`], in one direction.
    Lstm(Lstm),
    /// [`LayerSpec::Lstm`], in both directions.
    BiLstm(BiLstm),
    /// [`LayerSpec::Gru`], in one direction.
    Gru(Gru),
    /// [`LayerSpec::Gru`], in both directions.
    BiGru(BiGru),
    /// [`LayerSpec::Activation`]
    Activation(Activation),
    /// [`LayerSpec::Dropout`]
    Dropout(Dropout),
}

/// A deformable convolution, and the convolutions that compute its offsets and its mask.
#[derive(Module, Debug)]
pub struct Deform {
    offsets: Conv2d,
    mask: Option<Conv2d>,
    conv: DeformConv2d,
}

/// Self-attention.
#[derive(Module, Debug)]
pub struct Attention {
    attention: MultiHeadAttention,
    causal: bool,
}

/// The pixels of an image as the positions of a sequence.
#[derive(Module, Debug)]
pub struct Flatten {
    positions: usize,
}

fn gcd(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

/// The side of an image after a window of any odd size with a padding that keeps the side.
fn strided(side: usize, stride: usize) -> usize {
    side.div_ceil(stride)
}

/// Padding with which a window of this size leaves an image as large as it was.
fn padded(kernel: usize) -> PaddingConfig2d {
    let side = kernel / 2;
    PaddingConfig2d::Explicit(side, side, side, side)
}

fn activation(function: u8) -> ActivationConfig {
    match function {
        0 => ActivationConfig::Relu,
        1 => ActivationConfig::Gelu,
        2 => ActivationConfig::Sigmoid,
        3 => ActivationConfig::Tanh,
        _ => ActivationConfig::HardSwish,
    }
}

impl LayerSpec {
    /// The layer for an input of `shape`, and the shape of its output; `None` if it cannot work with `shape`.
    pub fn init(&self, shape: Shape, device: &Device) -> Option<(Layer, Shape)> {
        match (self, shape) {
            (Self::Activation { function }, shape) => {
                Some((Layer::Activation(activation(*function).init(device)), shape))
            }
            (Self::Dropout { percent }, shape) => {
                let dropout = DropoutConfig::new(f64::from(*percent) / 100.0).init();
                Some((Layer::Dropout(dropout), shape))
            }
            (spec, Shape::Image(shape)) => spec.init_for_image(shape, device),
            (spec, Shape::Sequence(shape)) => spec.init_for_sequence(shape, device),
        }
    }

    fn init_for_image(&self, image: [usize; 3], device: &Device) -> Option<(Layer, Shape)> {
        self.init_convolution(image, device)
            .or_else(|| self.init_resampling(image))
            .or_else(|| self.init_for_any_image(image, device))
    }

    fn init_convolution(
        &self,
        [channels, height, width]: [usize; 3],
        device: &Device,
    ) -> Option<(Layer, Shape)> {
        Some(match *self {
            Self::Conv {
                channels: out,
                kernel,
                stride,
                dilation,
                groups,
            } => {
                let padding = dilation * (kernel / 2);
                let conv = Conv2dConfig::new([channels, out], [kernel; 2])
                    .with_stride([stride; 2])
                    .with_dilation([dilation; 2])
                    .with_groups(gcd(groups, gcd(channels, out)))
                    .with_padding(PaddingConfig2d::Explicit(
                        padding, padding, padding, padding,
                    ));
                let shape = [out, strided(height, stride), strided(width, stride)];
                (Layer::Conv(conv.init(device)), Shape::Image(shape))
            }
            Self::ConvTranspose {
                channels: out,
                kernel,
                stride,
            } => {
                if height.max(width) > ENLARGED {
                    return None;
                }
                let conv = ConvTranspose2dConfig::new([channels, out], [kernel; 2])
                    .with_stride([stride; 2]);
                let side = |side: usize| (side - 1) * stride + kernel;
                let shape = [out, side(height), side(width)];
                (Layer::ConvTranspose(conv.init(device)), Shape::Image(shape))
            }
            Self::Conv3d { channels: each } => {
                if channels * each > 64 {
                    return None;
                }
                let conv = Conv3dConfig::new([1, each], [3; 3])
                    .with_padding(PaddingConfig3d::Explicit(1, 1, 1));
                let shape = [channels * each, height, width];
                (Layer::Conv3d(conv.init(device)), Shape::Image(shape))
            }
            Self::Deform {
                channels: out,
                masked,
            } => {
                let deform = Deform::new([channels, out], masked, device);
                (Layer::Deform(deform), Shape::Image([out, height, width]))
            }
            _ => return None,
        })
    }

    /// Pooling and interpolation.
    fn init_resampling(&self, [channels, height, width]: [usize; 3]) -> Option<(Layer, Shape)> {
        Some(match *self {
            Self::MaxPool { kernel, stride } | Self::AvgPool { kernel, stride } => {
                if height.min(width) < kernel {
                    return None;
                }
                let pooled = |side: usize| (side + 2 * (kernel / 2) - kernel) / stride + 1;
                let layer = match self {
                    Self::MaxPool { .. } => Layer::MaxPool(
                        MaxPool2dConfig::new([kernel; 2])
                            .with_strides([stride; 2])
                            .with_padding(padded(kernel))
                            .init(),
                    ),
                    _ => Layer::AvgPool(
                        AvgPool2dConfig::new([kernel; 2])
                            .with_strides([stride; 2])
                            .with_padding(padded(kernel))
                            .init(),
                    ),
                };
                let shape = [channels, pooled(height), pooled(width)];
                (layer, Shape::Image(shape))
            }
            Self::AdaptivePool { side } => {
                let sides = [side.min(height), side.min(width)];
                let pool = AdaptiveAvgPool2dConfig::new(sides).init();
                let shape = [channels, sides[0], sides[1]];
                (Layer::AdaptivePool(pool), Shape::Image(shape))
            }
            Self::Interpolate { mode, side } => {
                let mode = match mode {
                    0 => InterpolateMode::Nearest,
                    1 => InterpolateMode::Linear,
                    _ => InterpolateMode::Cubic,
                };
                let interpolate = Interpolate2dConfig::new()
                    .with_output_size(Some([side; 2]))
                    .with_mode(mode)
                    .init();
                let shape = [channels, side, side];
                (Layer::Interpolate(interpolate), Shape::Image(shape))
            }
            _ => return None,
        })
    }

    /// Layers that keep every value in its place.
    fn init_for_any_image(
        &self,
        [channels, height, width]: [usize; 3],
        device: &Device,
    ) -> Option<(Layer, Shape)> {
        let unchanged = Shape::Image([channels, height, width]);
        Some(match *self {
            Self::BatchNorm => {
                let norm = BatchNormConfig::new(channels).init(device);
                (Layer::BatchNorm(norm), unchanged)
            }
            Self::GroupNorm { groups } => {
                let norm = GroupNormConfig::new(gcd(groups, channels), channels).init(device);
                (Layer::GroupNorm(norm), unchanged)
            }
            Self::InstanceNorm => {
                let norm = InstanceNormConfig::new(channels).init(device);
                (Layer::InstanceNorm(norm), unchanged)
            }
            Self::Flatten => {
                if height * width > LONGEST {
                    return None;
                }
                let positions = height * width;
                let shape = Shape::Sequence([positions, channels]);
                (Layer::Flatten(Flatten { positions }), shape)
            }
            _ => return None,
        })
    }

    fn init_for_sequence(&self, sequence: [usize; 2], device: &Device) -> Option<(Layer, Shape)> {
        self.init_recurrent(sequence, device)
            .or_else(|| self.init_for_any_sequence(sequence, device))
    }

    /// Recurrent layers, for sequences that are short enough to unroll.
    fn init_recurrent(
        &self,
        [positions, features]: [usize; 2],
        device: &Device,
    ) -> Option<(Layer, Shape)> {
        if positions > UNROLLED {
            return None;
        }
        let (layer, leaving) = match *self {
            Self::Lstm {
                features: out,
                both: false,
            } => {
                let lstm = LstmConfig::new(features, out, true).init(device);
                (Layer::Lstm(lstm), out)
            }
            Self::Lstm {
                features: out,
                both: true,
            } => {
                let lstm = BiLstmConfig::new(features, out, true).init(device);
                (Layer::BiLstm(lstm), 2 * out)
            }
            Self::Gru {
                features: out,
                both: false,
            } => {
                let gru = GruConfig::new(features, out, true).init(device);
                (Layer::Gru(gru), out)
            }
            Self::Gru {
                features: out,
                both: true,
            } => {
                let gru = BiGruConfig::new(features, out, true).init(device);
                (Layer::BiGru(gru), 2 * out)
            }
            _ => return None,
        };
        Some((layer, Shape::Sequence([positions, leaving])))
    }

    /// Layers that work with a sequence of any length.
    fn init_for_any_sequence(
        &self,
        [positions, features]: [usize; 2],
        device: &Device,
    ) -> Option<(Layer, Shape)> {
        let with_features = |features| Shape::Sequence([positions, features]);
        Some(match *self {
            Self::Linear { features: out } => {
                let linear = LinearConfig::new(features, out).init(device);
                (Layer::Linear(linear), with_features(out))
            }
            Self::Conv1d {
                features: out,
                kernel,
                stride,
            } => {
                let conv = Conv1dConfig::new(features, out, kernel)
                    .with_stride(stride)
                    .with_padding(PaddingConfig1d::Explicit(kernel / 2, kernel / 2))
                    .init(device);
                let shape = [strided(positions, stride), out];
                (Layer::Conv1d(conv), Shape::Sequence(shape))
            }
            Self::LayerNorm => {
                let norm = LayerNormConfig::new(features).init(device);
                (Layer::LayerNorm(norm), with_features(features))
            }
            Self::RmsNorm => {
                let norm = RmsNormConfig::new(features).init(device);
                (Layer::RmsNorm(norm), with_features(features))
            }
            Self::Attention { heads, causal } => {
                let heads = gcd(heads, features);
                let attention = MultiHeadAttentionConfig::new(features, heads).init(device);
                let layer = Attention { attention, causal };
                (Layer::Attention(layer), with_features(features))
            }
            Self::Encoder {
                heads,
                features: between,
                norm_first,
            } => {
                let heads = gcd(heads, features);
                let encoder = TransformerEncoderConfig::new(features, between, heads, 1)
                    .with_norm_first(norm_first)
                    .init(device);
                (Layer::Encoder(encoder), with_features(features))
            }
            _ => return None,
        })
    }
}

impl Layer {
    /// The output of the layer.
    ///
    /// # Panics
    ///
    /// `value` is not of the shape for which the layer was made.
    pub fn forward(&self, value: Value) -> Value {
        match (self, value) {
            (Self::Activation(layer), Value::Image(x)) => Value::Image(layer.forward(x)),
            (Self::Activation(layer), Value::Sequence(x)) => Value::Sequence(layer.forward(x)),
            (Self::Dropout(layer), Value::Image(x)) => Value::Image(layer.forward(x)),
            (Self::Dropout(layer), Value::Sequence(x)) => Value::Sequence(layer.forward(x)),
            (layer, Value::Image(image)) => layer.forward_image(image),
            (layer, Value::Sequence(sequence)) => Value::Sequence(layer.forward_sequence(sequence)),
        }
    }

    fn forward_image(&self, x: Tensor<4>) -> Value {
        Value::Image(match self {
            Self::Conv(layer) => layer.forward(x),
            Self::ConvTranspose(layer) => layer.forward(x),
            Self::Conv3d(layer) => layer.forward(x.unsqueeze_dim::<5>(1)).flatten(1, 2),
            Self::Deform(layer) => layer.forward(x),
            Self::MaxPool(layer) => layer.forward(x),
            Self::AvgPool(layer) => layer.forward(x),
            Self::AdaptivePool(layer) => layer.forward(x),
            Self::Interpolate(layer) => layer.forward(x),
            Self::BatchNorm(layer) => layer.forward(x),
            Self::GroupNorm(layer) => layer.forward(x),
            Self::InstanceNorm(layer) => layer.forward(x),
            Self::Flatten(_) => {
                let positions: Tensor<3> = x.flatten(2, 3);
                return Value::Sequence(positions.swap_dims(1, 2));
            }
            _ => unreachable!("the layer was made for a sequence"),
        })
    }

    fn forward_sequence(&self, x: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Linear(layer) => layer.forward(x),
            Self::Conv1d(layer) => layer.forward(x.swap_dims(1, 2)).swap_dims(1, 2),
            Self::LayerNorm(layer) => layer.forward(x),
            Self::RmsNorm(layer) => layer.forward(x),
            Self::Attention(layer) => layer.forward(x),
            Self::Encoder(layer) => layer.forward(TransformerEncoderInput::new(x)),
            Self::Lstm(layer) => layer.forward(x, None).0,
            Self::BiLstm(layer) => layer.forward(x, None).0,
            Self::Gru(layer) => layer.forward(x, None),
            Self::BiGru(layer) => layer.forward(x, None).0,
            _ => unreachable!("the layer was made for an image"),
        }
    }
}

impl Deform {
    /// A 3x3 convolution from `channels` to `out` channels, whose offsets have a mask if it is `masked`.
    fn new([channels, out]: [usize; 2], masked: bool, device: &Device) -> Self {
        let around = |out| {
            Conv2dConfig::new([channels, out], [3; 2])
                .with_padding(padded(3))
                .init(device)
        };
        Self {
            offsets: around(2 * 9),
            mask: masked.then(|| around(9)),
            conv: DeformConv2dConfig::new([channels, out], [3; 2])
                .with_padding(padded(3))
                .init(device),
        }
    }

    /// `[batch, channels, height, width]` to the same with other channels.
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let offsets = self.offsets.forward(x.clone());
        let mask = self.mask.as_ref().map(|mask| mask.forward(x.clone()));
        self.conv.forward(x, offsets, mask)
    }
}

impl Attention {
    /// `[batch, positions, features]` to the same.
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, positions, _] = x.dims();
        let input = MhaInput::self_attn(x.clone());
        let input = match self.causal {
            true => input.mask_attn(generate_autoregressive_mask(batch, positions, &x.device())),
            false => input,
        };
        self.attention.forward(input).context
    }
}
