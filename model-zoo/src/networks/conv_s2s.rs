//! ConvS2S, convolutional sequence to sequence learning. See `variants` for paper, reference and
//! differences.
//!
//! The file is long because a network is one file: its modules, its training step and its published sizes.

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer};
use burn::tensor::activation::{glu, softmax};
use burn::tensor::{Device, Int, Tensor};

use super::Network;
use crate::blocks::text_steps::{PAD, translation};
use crate::blocks::tokens::check_positions;
use crate::blocks::weight_norm::{NormedConv, NormedConvConfig, NormedLinear, NormedLinearConfig};
use crate::{Counts, Error, Input, InputSize, Job, Observer, OptimizerKind, Variant};

/// The configuration of a [`ConvS2S`].
#[derive(Clone, Debug)]
pub(crate) struct ConvS2SConfig {
    /// Words in the source vocabulary.
    pub source: usize,
    /// Words in the target vocabulary.
    pub target: usize,
    /// Channels and kernel of each layer; encoder and decoder have the same.
    pub layers: Vec<[usize; 2]>,
    /// Width of the embeddings: 768.
    pub embedding: usize,
    /// Width before the output layer: 512.
    pub output: usize,
    /// Learned positions on each side: 1,024.
    pub positions: usize,
    /// Dropout: 0.2 or 0.1.
    pub dropout: f64,
}

impl ConvS2SConfig {
    /// The published network called `name`.
    fn published(name: &str) -> Self {
        let stack = |runs: &[(usize, [usize; 2])]| {
            let layers = runs.iter().flat_map(|&(n, layer)| vec![layer; n]);
            layers.collect()
        };
        let (source, target, layers, dropout) = match name {
            "convs2s-en-de" => (
                42_243,
                43_676,
                stack(&[(9, [512, 3]), (4, [1024, 3]), (2, [2048, 1])]),
                0.2,
            ),
            "convs2s-en-fr" => (
                44_206,
                44_463,
                stack(&[
                    (6, [512, 3]),
                    (4, [768, 3]),
                    (3, [1024, 3]),
                    (1, [2048, 1]),
                    (1, [4096, 1]),
                ]),
                0.1,
            ),
            other => unreachable!("{other} is not a variant of this file"),
        };
        Self {
            source,
            target,
            layers,
            embedding: 768,
            output: 512,
            positions: 1024,
            dropout,
        }
    }

    /// A network for sentences of up to 9 words.
    fn tiny() -> Self {
        Self {
            source: 20,
            target: 30,
            layers: vec![[8, 3], [8, 3], [12, 1]],
            embedding: 6,
            output: 5,
            positions: 9,
            ..Self::published("convs2s-en-de")
        }
    }

    fn linear(&self, from: usize, to: usize, device: &Device) -> NormedLinear {
        NormedLinearConfig {
            channels: [from, to],
            gain: (1.0 - self.dropout).sqrt(),
        }
        .init(device)
    }

    /// Channels of the first layer's input and of the last layer's output.
    fn ends(&self) -> [usize; 2] {
        let last = self.layers.len() - 1;
        [self.layers[0][0], self.layers[last][0]]
    }

    /// The embedding of one side, with the scale of the reference.
    fn embed(&self, vocab: usize, device: &Device) -> Embed {
        let table = |rows| {
            EmbeddingConfig::new(rows, self.embedding)
                .with_initializer(Initializer::Normal {
                    mean: 0.0,
                    std: 0.1,
                })
                .init(device)
        };
        Embed {
            words: table(vocab),
            positions: table(self.positions),
            dropout: DropoutConfig::new(self.dropout).init(),
            linear: self.linear(self.embedding, self.ends()[0], device),
        }
    }

    /// The layers of one side; `future` says whether they read later words.
    fn convolutions(&self, future: bool, device: &Device) -> Vec<GatedConv> {
        let mut entering = self.ends()[0];
        let mut layers = Vec::with_capacity(self.layers.len());
        for &[channels, kernel] in &self.layers {
            let conv = NormedConvConfig {
                channels: [entering, 2 * channels],
                kernel,
                padding: if future { kernel / 2 } else { kernel - 1 },
                // Twice the gain of a linear layer, since the gate halves the output.
                gain: 2.0 * (1.0 - self.dropout).sqrt(),
            };
            layers.push(GatedConv {
                shortcut: (entering != channels).then(|| self.linear(entering, channels, device)),
                dropout: DropoutConfig::new(self.dropout).init(),
                conv: conv.init(device),
            });
            entering = channels;
        }
        layers
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> ConvS2S {
        let [_, leaving] = self.ends();
        let attention = |&[channels, _]: &[usize; 2]| Attention {
            query: self.linear(channels, self.embedding, device),
            output: self.linear(self.embedding, channels, device),
        };
        ConvS2S {
            source: self.embed(self.source, device),
            encoder: self.convolutions(true, device),
            keys: self.linear(leaving, self.embedding, device),
            target: self.embed(self.target, device),
            decoder: self.convolutions(false, device),
            attention: self.layers.iter().map(attention).collect(),
            bottleneck: self.linear(leaving, self.output, device),
            dropout: DropoutConfig::new(self.dropout).init(),
            scores: self.linear(self.output, self.target, device),
        }
    }
}

/// An encoder and a decoder of gated convolutions, with attention in each decoder layer.
#[derive(Module, Debug)]
pub(crate) struct ConvS2S {
    source: Embed,
    encoder: Vec<GatedConv>,
    keys: NormedLinear,
    target: Embed,
    decoder: Vec<GatedConv>,
    attention: Vec<Attention>,
    bottleneck: NormedLinear,
    dropout: Dropout,
    scores: NormedLinear,
}

impl ConvS2S {
    /// Scores `[batch * seq, vocab]` of the next words, from `source: [batch, src_seq]` and the
    /// previous words of the target, `previous: [batch, seq]`.
    pub fn forward(&self, source: Tensor<2, Int>, previous: Tensor<2, Int>) -> Tensor<2> {
        let (keys, values) = self.encode(source);
        let (embedded, mut x) = self.target.forward(previous);
        for (conv, attention) in self.decoder.iter().zip(&self.attention) {
            let (residual, convolved) = conv.forward(x);
            let attended =
                attention.forward(convolved, embedded.clone(), keys.clone(), values.clone());
            x = halved(attended + residual);
        }
        let x = self.dropout.forward(self.bottleneck.forward(x));
        self.scores.forward(x.flatten::<2>(0, 1))
    }

    /// Keys and values `[batch, src_seq, embedding]` of `source: [batch, src_seq]`.
    fn encode(&self, source: Tensor<2, Int>) -> (Tensor<3>, Tensor<3>) {
        let (embedded, mut x) = self.source.forward(source);
        for conv in &self.encoder {
            let (residual, convolved) = conv.forward(x);
            x = halved(convolved + residual);
        }
        // As in the reference, the gradients of the decoder layers are averaged and halved.
        let share = 1.0 / (2.0 * self.attention.len() as f64);
        let keys = scaled_gradient(self.keys.forward(x), share);
        let values = halved(keys.clone() + embedded);
        (keys, values)
    }
}

/// The embedding of words and positions, and a linear layer to the channels of the first
/// convolution.
#[derive(Module, Debug)]
struct Embed {
    words: Embedding,
    positions: Embedding,
    dropout: Dropout,
    linear: NormedLinear,
}

impl Embed {
    /// The embedding `[batch, seq, embedding]` of the word ids `words: [batch, seq]`, and the
    /// output `[batch, seq, channels]` of the linear layer.
    fn forward(&self, words: Tensor<2, Int>) -> (Tensor<3>, Tensor<3>) {
        let ([_, seq], device) = (words.dims(), words.device());
        // In fairseq the first position is the one after the id of the padding word.
        let first = PAD as i64 + 1;
        let positions = Tensor::<1, Int>::arange(first..first + seq as i64, &device);
        let x = self.words.forward(words) + self.positions.forward(positions.unsqueeze());
        let x = self.dropout.forward(x);
        (x.clone(), self.linear.forward(x))
    }
}

/// A convolution with a gated linear unit: one half of its channels gates the other.
#[derive(Module, Debug)]
struct GatedConv {
    shortcut: Option<NormedLinear>,
    dropout: Dropout,
    conv: NormedConv,
}

impl GatedConv {
    /// The shortcut and the output, both `[batch, seq, leaving]`, for `x: [batch, seq, entering]`.
    fn forward(&self, x: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
        let [_, seq, _] = x.dims();
        let residual = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x.clone()),
            None => x.clone(),
        };
        let channels_first = self.dropout.forward(x).swap_dims(1, 2);
        // The outputs of a causal layer after the sequence are not used.
        let convolved = self.conv.forward(channels_first).narrow(2, 0, seq);
        (residual, glu(convolved, 1).swap_dims(1, 2))
    }
}

/// The attention of one decoder layer to the source.
#[derive(Module, Debug)]
struct Attention {
    query: NormedLinear,
    output: NormedLinear,
}

impl Attention {
    /// `[batch, seq, channels]` from `x` of the same shape, the embedding of the target, `target:
    /// [batch, seq, embedding]`, and keys and values `[batch, src_seq, embedding]`.
    fn forward(
        &self,
        x: Tensor<3>,
        target: Tensor<3>,
        keys: Tensor<3>,
        values: Tensor<3>,
    ) -> Tensor<3> {
        let [_, source, _] = keys.dims();
        let query = halved(self.query.forward(x.clone()) + target);
        let weights = softmax(query.matmul(keys.transpose()), 2);
        let attended = weights.matmul(values) * (source as f64).sqrt();
        halved(self.output.forward(attended) + x)
    }
}

/// `sum`, the sum of two tensors, scaled to the variance of one of them.
fn halved(sum: Tensor<3>) -> Tensor<3> {
    sum * 0.5f64.sqrt()
}

/// `x`, with its gradient multiplied by `share`.
fn scaled_gradient(x: Tensor<3>, share: f64) -> Tensor<3> {
    x.clone() * share + x.detach() * (1.0 - share)
}

fn train_on<O: Observer>(
    config: &ConvS2SConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let network = config.init(device);
    translation(network, job, device, steps, observer, ConvS2S::forward)
}

impl Network for ConvS2S {
    const OUTPUT_LAYERS: &'static [&'static str] = &["scores"];

    fn variants(file: &'static str) -> Vec<Variant> {
        let variant = |name, trainable, tensors, batch, recipe| Variant {
            name,
            family: "ConvS2S",
            file,
            paper: "Gehring, Auli, Grangier, Yarats, Dauphin 2017, Convolutional Sequence to Sequence Learning, arXiv 1705.03122",
            reference: "facebookresearch/fairseq fairseq/models/fconv.py (fconv_wmt_en_de and fconv_wmt_en_fr, with the dictionaries of the published models)",
            counts: Counts {
                trainable,
                tensors,
                buffers: 0,
            },
            input: Input {
                seq: Some(32),
                src_seq: Some(32),
                ..Input::default()
            },
            batch,
            optimizer: OptimizerKind::Momentum,
            recipe,
            differences: &[
                "batches are sentences of one length instead of at most 4,000 (En-De) or 3,000 (En-Fr) tokens: 125 or 93 of 32 tokens",
                "each layer turns its maps around for burn's convolution, at most one more copy of them",
                "burn's label smoothing keeps the smoothed targets, one more tensor of the size of the scores",
                "gradient clipping is left out: it needs no memory that outlives an operation",
            ],
        };
        vec![
            variant(
                "convs2s-en-de",
                216_005_176,
                211,
                125,
                "WMT 2014 English-German, at most 4,000 tokens a card, label smoothing 0.1, dropout 0.2, SGD with Nesterov momentum 0.99",
            ),
            variant(
                "convs2s-en-fr",
                267_063_390,
                223,
                93,
                "WMT 2014 English-French, at most 3,000 tokens a card, label smoothing 0.1, dropout 0.1, SGD with Nesterov momentum 0.99",
            ),
        ]
    }

    fn check(variant: &Variant, job: &Job) -> Result<(), Error> {
        let usable = config(variant).positions - PAD - 1;
        check_positions(InputSize::Seq, job.seq(), usable)?;
        check_positions(InputSize::SrcSeq, job.src_seq(), usable)
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        train_on(&config(variant), job, device, steps, observer)
    }
}

/// The configuration of `variant`.
fn config(variant: &Variant) -> ConvS2SConfig {
    match variant.name {
        "convs2s-mini" => ConvS2SConfig::tiny(),
        published => ConvS2SConfig::published(published),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tokens::words;
    use crate::test_support;

    #[test]
    fn each_target_word_has_scores() {
        let device = test_support::flex();
        let scores = ConvS2SConfig::tiny()
            .init(&device)
            .forward(words(2, 7, &device), words(2, 5, &device));
        assert_eq!(scores.dims(), [10, 30]);
    }

    /// A later word does not change the scores of the words before it.
    #[test]
    fn the_future_is_hidden() {
        let device = test_support::flex();
        let network = ConvS2SConfig::tiny().init(&device);
        let scores = |target: [[i64; 3]; 1]| {
            let target = Tensor::from_data(target, &device);
            let scores = network.forward(words(1, 4, &device), target);
            scores.narrow(0, 0, 2).into_data()
        };
        scores([[1, 2, 3]]).assert_eq(&scores([[1, 2, 4]]), true);
    }

    #[test]
    fn a_sentence_longer_than_the_positions_is_refused() {
        test_support::longest("convs2s-en-de", 1022);
    }
}
