//! The decoder-only language model that Llama and its relatives share, with what differs between
//! them as options.
//!
//! Differences from transformers, for all of them: attention scores are a tensor, since burn has no
//! fused attention that can be differentiated; rotations turn pairs of neighbouring channels, as
//! Meta's own code does, and not halves of a head; scaled rotations (`rope_type`) have the
//! wavelengths of unscaled ones, which changes no size.

mod attention;
mod experts;
mod family;
mod gated;

use burn::module::Module;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig, RmsNorm,
    RmsNormConfig, RotaryEncoding, RotaryEncodingConfig,
};
use burn::tensor::{Bool, Device, Int, Tensor};

use self::attention::DecoderAttention;
pub(crate) use self::attention::HeadNorm;
use self::experts::Experts;
pub(crate) use self::experts::{ClampedGate, ExpertWeights, ExpertsConfig};
pub(crate) use self::family::{DecoderFamily, fine_tuned};
pub(crate) use self::gated::Activation;
use self::gated::GatedFeedForward;
use super::attention::{causal_mask, window_mask};
use super::text_steps::language_model;
use super::tokens::tied_scores;
use crate::{Job, Observer};

/// What differs between the layers of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LayerConfig {
    /// Whether a query sees [`DecoderConfig::window`] tokens at most, and not all before it.
    pub local: bool,
    /// Base of the rotations' wavelengths; none if the layer does not rotate.
    pub theta: Option<f32>,
    /// Whether [`DecoderConfig::experts`] are in the place of the feed-forward block.
    pub experts: bool,
}

impl LayerConfig {
    /// A layer whose queries see all tokens before them.
    pub fn full(theta: f32) -> Self {
        Self {
            local: false,
            theta: Some(theta),
            experts: false,
        }
    }

    /// A layer whose queries see the tokens of a window.
    pub fn local(theta: f32) -> Self {
        Self {
            local: true,
            theta: Some(theta),
            experts: false,
        }
    }
}

/// Where the normalisations of a layer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norms {
    /// Before attention and feed-forward block: Llama.
    Before,
    /// Before both and after both: Gemma 2.
    Around,
    /// After both: OLMo 2.
    After,
}

/// The configuration of a [`Decoder`]. The defaults in this list are those of [`DecoderConfig::llama`].
#[derive(Clone, Debug)]
pub(crate) struct DecoderConfig {
    /// Words in the vocabulary.
    pub vocab: usize,
    /// Width of the model.
    pub d_model: usize,
    /// The layers.
    pub layers: Vec<LayerConfig>,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values, each for `heads / kv_heads` heads of the queries.
    pub kv_heads: usize,
    /// Width of a head.
    pub d_head: usize,
    /// Channels of a head that are rotated, an even number; the others stay: all.
    pub d_rotary: usize,
    /// Width of the feed-forward block's hidden layer.
    pub d_ff: usize,
    /// The experts of the layers that have some: none.
    pub experts: Option<ExpertsConfig>,
    /// Activation of the feed-forward block's gate: SiLU.
    pub activation: Activation,
    /// Positions for which the network computes rotations, which it keeps.
    pub positions: usize,
    /// Tokens that a query of a local layer sees, with its own; none if all layers see all.
    pub window: Option<usize>,
    /// Dropout on the attention weights: none.
    pub dropout: f64,
    /// Dropout on the residual branches: none.
    pub residual_dropout: f64,
    /// Epsilon of the normalisations: 1e-5.
    pub epsilon: f64,
    /// Where the normalisations of a layer are: before both of its parts.
    pub norms: Norms,
    /// How queries and keys are normalised: not at all.
    pub head_norm: Option<HeadNorm>,
    /// Whether the projections to queries, keys and values have a bias: no.
    pub qkv_bias: bool,
    /// Whether each head has a score, which it learns, for attending to nothing: no.
    pub sinks: bool,
    /// Whether the projection of the attention's output has a bias: no.
    pub output_bias: bool,
    /// Whether the feed-forward block has biases: no.
    pub mlp_bias: bool,
    /// Whether one projection makes queries, keys and values, and one both halves of the
    /// feed-forward block: no.
    pub fused: bool,
    /// Whether the words' vectors are scaled by the root of their width: no.
    pub scaled_words: bool,
    /// The bound that a hyperbolic tangent puts to attention scores: none.
    pub score_cap: Option<f64>,
    /// The bound that a hyperbolic tangent puts to the scores of words: none.
    pub logit_cap: Option<f64>,
    /// Whether the embedding table is the output layer too: no.
    pub tied: bool,
}

impl DecoderConfig {
    /// A decoder as Llama's, with `layers` layers of this width and these heads.
    pub fn llama(
        vocab: usize,
        [d_model, d_ff]: [usize; 2],
        layers: usize,
        [heads, kv_heads]: [usize; 2],
    ) -> Self {
        let d_head = d_model / heads;
        Self {
            vocab,
            d_model,
            layers: vec![LayerConfig::full(10_000.0); layers],
            heads,
            kv_heads,
            d_head,
            d_rotary: d_head,
            d_ff,
            experts: None,
            activation: Activation::Silu,
            positions: 2048,
            window: None,
            dropout: 0.0,
            residual_dropout: 0.0,
            epsilon: 1e-5,
            norms: Norms::Before,
            head_norm: None,
            qkv_bias: false,
            sinks: false,
            output_bias: false,
            mlp_bias: false,
            fused: false,
            scaled_words: false,
            score_cap: None,
            logit_cap: None,
            tied: false,
        }
    }

    /// The same decoder with heads of the width `d_head`.
    pub fn with_heads_of(self, d_head: usize) -> Self {
        Self {
            d_head,
            d_rotary: d_head,
            ..self
        }
    }

    /// The same decoder with small numbers: its first and last layer, of which any device trains a
    /// step within seconds.
    pub fn tiny(self) -> Self {
        let is_partial = self.d_rotary < self.d_head;
        let ends = [self.layers.first(), self.layers.last()];
        Self {
            vocab: 50,
            d_model: 16,
            layers: ends.into_iter().flatten().copied().collect(),
            heads: 4,
            kv_heads: 2,
            d_head: 8,
            d_rotary: if is_partial { 6 } else { 8 },
            d_ff: 32,
            experts: self.experts.map(|experts| ExpertsConfig {
                count: 4,
                active: 2,
                d_ff: 16,
                ..experts
            }),
            window: self.window.map(|_| 4),
            ..self
        }
    }

    fn norm(&self, width: usize, device: &Device) -> RmsNorm {
        RmsNormConfig::new(width)
            .with_epsilon(self.epsilon)
            .init(device)
    }

    fn linear(&self, [from, to]: [usize; 2], bias: bool, device: &Device) -> Linear {
        LinearConfig::new(from, to).with_bias(bias).init(device)
    }

    /// The different bases of the layers' wavelengths, in the order of the layers.
    fn thetas(&self) -> Vec<f32> {
        let mut thetas = Vec::new();
        for theta in self.layers.iter().filter_map(|layer| layer.theta) {
            if !thetas.contains(&theta) {
                thetas.push(theta);
            }
        }
        thetas
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Decoder {
        // The scale of the reference: tied output scores are small at the start.
        let small = Initializer::Normal {
            mean: 0.0,
            std: 0.02,
        };
        let thetas = self.thetas();
        let rotary = |theta: &f32| {
            RotaryEncodingConfig::new(self.positions, self.d_rotary)
                .with_theta(*theta)
                .init(device)
        };
        Decoder {
            words: EmbeddingConfig::new(self.vocab, self.d_model)
                .with_initializer(small)
                .init(device),
            rotary: thetas.iter().map(rotary).collect(),
            layers: self
                .layers
                .iter()
                .map(|layer| self.layer(layer, &thetas, device))
                .collect(),
            norm: self.norm(self.d_model, device),
            head: (!self.tied).then(|| self.linear([self.d_model, self.vocab], false, device)),
            scale: self.scaled_words.then(|| (self.d_model as f64).sqrt()),
            window: self.window,
            logit_cap: self.logit_cap,
        }
    }

    fn layer(&self, layer: &LayerConfig, thetas: &[f32], device: &Device) -> DecoderLayer {
        let norm = |exists: bool| exists.then(|| self.norm(self.d_model, device));
        let (before, after) = (self.norms != Norms::After, self.norms != Norms::Before);
        let rotary = thetas.iter().position(|theta| Some(*theta) == layer.theta);
        let experts = self.experts.filter(|_| layer.experts);
        DecoderLayer {
            norm_1: norm(before),
            attention: DecoderAttention::new(self, device),
            norm_1_after: norm(after),
            norm_2: norm(before),
            mlp: experts
                .is_none()
                .then(|| GatedFeedForward::new(self, device)),
            experts: experts.map(|experts| Experts::new(self, experts, device)),
            norm_2_after: norm(after),
            dropout: DropoutConfig::new(self.residual_dropout).init(),
            local: layer.local,
            rotary,
        }
    }
}

/// A decoder-only language model with rotary positions and gated feed-forward blocks.
#[derive(Module, Debug)]
pub(crate) struct Decoder {
    words: Embedding,
    rotary: Vec<RotaryEncoding>,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    head: Option<Linear>,
    #[module(skip)]
    scale: Option<f64>,
    #[module(skip)]
    window: Option<usize>,
    #[module(skip)]
    logit_cap: Option<f64>,
}

impl Decoder {
    /// Scores `[batch * seq, vocab]` of the words that follow each of `words: [batch, seq]`.
    pub fn forward(&self, words: Tensor<2, Int>) -> Tensor<2> {
        let [_, seq] = words.dims();
        let masks = Masks::new(seq, self.window, &words.device());
        let mut x = self.words.forward(words);
        if let Some(scale) = self.scale {
            x = x.mul_scalar(scale);
        }
        for layer in &self.layers {
            let rotary = layer.rotary.map(|index| &self.rotary[index]);
            x = layer.forward(x, rotary, masks.of(layer.local));
        }
        let x = self.norm.forward(x).flatten(0, 1);
        let scores = match &self.head {
            Some(head) => head.forward(x),
            None => tied_scores(x, &self.words),
        };
        match self.logit_cap {
            Some(cap) => scores.div_scalar(cap).tanh().mul_scalar(cap),
            None => scores,
        }
    }
}

/// The masks `[1, 1, seq, seq]` of a decoder's layers, true where a key is hidden.
struct Masks {
    full: Tensor<4, Bool>,
    local: Tensor<4, Bool>,
}

impl Masks {
    fn new(seq: usize, window: Option<usize>, device: &Device) -> Self {
        let full = causal_mask(seq, device);
        let local = match window {
            Some(window) if window < seq => window_mask(seq, window, device),
            _ => full.clone(),
        };
        Self { full, local }
    }

    fn of(&self, local: bool) -> Tensor<4, Bool> {
        match local {
            true => self.local.clone(),
            false => self.full.clone(),
        }
    }
}

/// Attention and gated feed-forward block, or experts, with normalisations before or after both.
#[derive(Module, Debug)]
struct DecoderLayer {
    norm_1: Option<RmsNorm>,
    attention: DecoderAttention,
    norm_1_after: Option<RmsNorm>,
    norm_2: Option<RmsNorm>,
    mlp: Option<GatedFeedForward>,
    experts: Option<Experts>,
    norm_2_after: Option<RmsNorm>,
    dropout: Dropout,
    local: bool,
    /// Which of the decoder's rotations it has.
    #[module(skip)]
    rotary: Option<usize>,
}

impl DecoderLayer {
    /// `[batch, seq, d_model]` from `x` of the same shape; `mask`, true where a key is hidden, is
    /// `[1, 1, seq, seq]`.
    fn forward(
        &self,
        x: Tensor<3>,
        rotary: Option<&RotaryEncoding>,
        mask: Tensor<4, Bool>,
    ) -> Tensor<3> {
        let attended = self
            .attention
            .forward(normalised(&self.norm_1, x.clone()), rotary, mask);
        let attended = normalised(&self.norm_1_after, attended);
        let x = x + self.dropout.forward(attended);
        let normal = normalised(&self.norm_2, x.clone());
        let fed = match (&self.mlp, &self.experts) {
            (Some(mlp), _) => mlp.forward(normal),
            (None, Some(experts)) => experts.forward(normal),
            (None, None) => unreachable!("a layer has a feed-forward block or experts"),
        };
        x + self.dropout.forward(normalised(&self.norm_2_after, fed))
    }
}

/// `x` after `norm`, if there is one.
fn normalised(norm: &Option<RmsNorm>, x: Tensor<3>) -> Tensor<3> {
    match norm {
        Some(norm) => norm.forward(x),
        None => x,
    }
}

/// Trains the decoder that `config` describes to predict the next words, with the vocabulary and
/// the length of `job`.
pub(crate) fn train_decoder<O: Observer>(
    config: &DecoderConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let config = DecoderConfig {
        vocab: job.vocab(),
        positions: job.seq(),
        ..config.clone()
    };
    let network = config.init(device);
    language_model(network, job, device, steps, observer, Decoder::forward)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tokens::words;
    use crate::test_support;

    fn tiny() -> DecoderConfig {
        DecoderConfig::llama(50, [16, 32], 2, [4, 2])
    }

    #[test]
    fn a_tied_output_layer_costs_no_parameters() {
        let device = test_support::flex();
        let tied = DecoderConfig {
            tied: true,
            ..tiny()
        };
        let (network, untied) = (tied.init(&device), tiny().init(&device));
        assert_eq!(untied.num_params() - network.num_params(), 16 * 50);
        assert_eq!(network.forward(words(2, 8, &device)).dims(), [16, 50]);
    }

    /// Every option leaves the shape of the scores as it is.
    #[test]
    fn each_word_has_scores() {
        let device = test_support::flex();
        let local = [
            LayerConfig::local(1e4),
            LayerConfig {
                theta: None,
                local: false,
                experts: false,
            },
        ];
        let experts = ExpertsConfig {
            count: 3,
            active: 2,
            d_ff: 8,
            weights: ExpertWeights::Normalised,
            clamped: None,
        };
        let with_experts = [false, true].map(|experts| LayerConfig {
            experts,
            ..LayerConfig::full(1e4)
        });
        for config in [
            tiny(),
            tiny().with_heads_of(6),
            DecoderConfig {
                d_rotary: 2,
                ..tiny()
            },
            DecoderConfig {
                layers: local.to_vec(),
                window: Some(3),
                ..tiny()
            },
            DecoderConfig {
                norms: Norms::Around,
                ..tiny()
            },
            DecoderConfig {
                norms: Norms::After,
                head_norm: Some(HeadNorm::Projection),
                ..tiny()
            },
            DecoderConfig {
                head_norm: Some(HeadNorm::Head),
                ..tiny()
            },
            DecoderConfig {
                qkv_bias: true,
                output_bias: true,
                mlp_bias: true,
                ..tiny()
            },
            DecoderConfig {
                fused: true,
                residual_dropout: 0.1,
                ..tiny()
            },
            DecoderConfig {
                activation: Activation::GeluTanh,
                scaled_words: true,
                ..tiny()
            },
            DecoderConfig {
                layers: with_experts.to_vec(),
                experts: Some(experts),
                ..tiny()
            },
            DecoderConfig {
                layers: with_experts.to_vec(),
                experts: Some(ExpertsConfig {
                    weights: ExpertWeights::Taken,
                    clamped: Some(ClampedGate {
                        alpha: 1.702,
                        limit: 7.0,
                    }),
                    ..experts
                }),
                sinks: true,
                ..tiny()
            },
            DecoderConfig {
                score_cap: Some(50.0),
                logit_cap: Some(30.0),
                ..tiny()
            },
        ] {
            let scores = config.init(&device).forward(words(2, 8, &device));
            assert_eq!(scores.dims(), [16, 50], "{config:?}");
        }
    }

    /// A word beyond the window of the only layer changes no scores; one within it does.
    #[test]
    fn a_window_hides_what_is_before_it() {
        let device = test_support::flex();
        let network = DecoderConfig {
            layers: vec![LayerConfig::local(1e4)],
            window: Some(3),
            ..tiny()
        }
        .init(&device);
        let last = |changed: usize| {
            let mut ids = [0i64; 8];
            ids[changed] = 7;
            let words = Tensor::<1, Int>::from_data(ids, &device).reshape([1, 8]);
            let scores: Vec<f32> = network.forward(words).into_data().try_into_vec().unwrap();
            scores[7 * 50..].to_vec()
        };
        assert_eq!(last(0), last(4));
        assert_ne!(last(0), last(5));
    }
}
