//! AWD-LSTM, a language model of words or characters. See `variants` for paper, reference and
//! differences.

use std::cell::RefCell;

use burn::module::{Module, Param};
use burn::nn::{Embedding, EmbeddingConfig, Initializer, LstmState};
use burn::tensor::module::embedding;
use burn::tensor::{Device, Distribution, Int, Tensor};

use super::Network;
use crate::blocks::cross_entropy;
use crate::blocks::locked_dropout::locked_dropout;
use crate::blocks::lstm::{Lstm, LstmConfig, check_steps, detached};
use crate::blocks::tokens::tied_scores;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// The configuration of an [`AwdLstm`].
#[derive(Clone, Debug)]
pub(crate) struct AwdLstmConfig {
    /// Words or characters in the vocabulary.
    pub vocab: usize,
    /// Width of the embedding and of the last layer's output.
    pub embedding: usize,
    /// Width of the other layers' outputs.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Dropout of whole words (`--dropoute`).
    pub word_drop: f64,
    /// Dropout after the embedding (`--dropouti`).
    pub input_drop: f64,
    /// Dropout between layers (`--dropouth`).
    pub hidden_drop: f64,
    /// Dropout before the output (`--dropout`).
    pub output_drop: f64,
    /// DropConnect on the hidden-to-hidden weights (`--wdrop`).
    pub weight_drop: f64,
    /// Weights of the penalties on large activations (`--alpha`) and on activations that change
    /// from step to step (`--beta`).
    pub penalties: [f64; 2],
}

impl AwdLstmConfig {
    /// The published network called `name`. The comments of the fields name the options of the
    /// reference; their values are those of its readme.
    fn published(name: &str, vocab: usize) -> Self {
        let words = Self {
            vocab,
            embedding: 400,
            hidden: 1150,
            layers: 3,
            word_drop: 0.1,
            input_drop: 0.4,
            hidden_drop: 0.25,
            output_drop: 0.4,
            weight_drop: 0.5,
            penalties: [2.0, 1.0],
        };
        match name {
            "awd-lstm-ptb" => words,
            "awd-lstm-wt2" => Self {
                input_drop: 0.65,
                hidden_drop: 0.2,
                ..words
            },
            "char-lm-ptb" => Self {
                embedding: 200,
                hidden: 1000,
                word_drop: 0.0,
                input_drop: 0.1,
                hidden_drop: 0.25,
                output_drop: 0.1,
                penalties: [0.0; 2],
                ..words
            },
            "char-lm-enwik8" => Self {
                hidden: 1840,
                word_drop: 0.0,
                input_drop: 0.1,
                hidden_drop: 0.1,
                weight_drop: 0.2,
                penalties: [0.0; 2],
                ..words
            },
            other => unreachable!("{other} is not a variant of this file"),
        }
    }

    fn tiny(vocab: usize) -> Self {
        Self {
            embedding: 8,
            hidden: 12,
            ..Self::published("awd-lstm-ptb", vocab)
        }
    }

    /// Width of the output of layer `layer`.
    fn width(&self, layer: usize) -> usize {
        match layer + 1 == self.layers {
            true => self.embedding,
            false => self.hidden,
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> AwdLstm {
        let layer = |layer| {
            let entering = match layer {
                0 => self.embedding,
                _ => self.width(layer - 1),
            };
            LstmConfig {
                weight_drop: self.weight_drop,
                ..LstmConfig::new(entering, self.width(layer))
            }
            .init(device)
        };
        AwdLstm {
            // The reference draws from this range.
            words: EmbeddingConfig::new(self.vocab, self.embedding)
                .with_initializer(Initializer::Uniform {
                    min: -0.1,
                    max: 0.1,
                })
                .init(device),
            layers: (0..self.layers).map(layer).collect(),
            bias: Initializer::Zeros.init([self.vocab], device),
            word_drop: self.word_drop,
            input_drop: self.input_drop,
            hidden_drop: self.hidden_drop,
            output_drop: self.output_drop,
        }
    }

    /// The states of all layers before the first batch: zeros.
    fn initial(&self, batch: usize, device: &Device) -> Vec<LstmState<2>> {
        (0..self.layers)
            .map(|layer| LstmState::initial([batch, self.width(layer)], device))
            .collect()
    }
}

/// A stack of LSTM layers; the embedding table is the output layer too.
#[derive(Module, Debug)]
pub(crate) struct AwdLstm {
    words: Embedding,
    layers: Vec<Lstm>,
    bias: Param<Tensor<1>>,
    word_drop: f64,
    input_drop: f64,
    hidden_drop: f64,
    output_drop: f64,
}

/// The results of a batch.
pub(crate) struct Output {
    /// Scores `[seq * batch, vocab]` of the next words.
    scores: Tensor<2>,
    /// The output `[seq, batch, embedding]` of the last layer.
    raw: Tensor<3>,
    /// The same output after dropout.
    dropped: Tensor<3>,
    /// The last state of each layer.
    states: Vec<LstmState<2>>,
}

impl AwdLstm {
    /// The results of `words: [seq, batch]`, with `states` as the layers' states before.
    pub fn forward(&self, words: Tensor<2, Int>, states: Vec<LstmState<2>>) -> Output {
        let table = whole_rows_dropped(self.words.weight.val(), self.word_drop);
        let mut raw = locked_dropout(embedding(table, words), self.input_drop, 0);
        let mut after = Vec::with_capacity(self.layers.len());
        for (layer, (lstm, state)) in self.layers.iter().zip(states).enumerate() {
            if layer > 0 {
                raw = locked_dropout(raw, self.hidden_drop, 0);
            }
            let (output, state) = lstm.forward(raw, Some(state));
            raw = output;
            after.push(state);
        }
        let dropped = locked_dropout(raw.clone(), self.output_drop, 0);
        let scores = tied_scores(dropped.clone().flatten(0, 1), &self.words);
        Output {
            scores: scores + self.bias.val().unsqueeze(),
            raw,
            dropped,
            states: after,
        }
    }
}

/// `table: [vocab, width]` with `share` of its rows set to zero. Like the reference, it makes a
/// copy of the whole table and a mask of the same size.
fn whole_rows_dropped(table: Tensor<2>, share: f64) -> Tensor<2> {
    if share == 0.0 || !table.device().is_autodiff() {
        return table;
    }
    let shape = table.dims();
    let kept = Distribution::Bernoulli(1.0 - share);
    let mask = Tensor::<2>::random([shape[0], 1], kept, &table.device());
    table * mask.expand(shape).div_scalar(1.0 - share)
}

/// The cross-entropy of `output` against `next: [seq, batch]`, and the penalties on the activations
/// of the last layer: `[1]`.
fn penalised(output: Output, next: Tensor<2, Int>, [large, changing]: [f64; 2]) -> Tensor<1> {
    let mut loss = cross_entropy(output.scores, next.flatten(0, 1));
    if large > 0.0 {
        loss = loss + output.dropped.square().mean() * large;
    }
    let [seq, ..] = output.raw.dims();
    if changing > 0.0 && seq > 1 {
        let later = output.raw.clone().narrow(0, 1, seq - 1);
        let earlier = output.raw.narrow(0, 0, seq - 1);
        loss = loss + (later - earlier).square().mean() * changing;
    }
    loss
}

fn train_on<O: Observer>(
    config: &AwdLstmConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    let carried = RefCell::new(config.initial(batch, device));
    supervised(
        config.init(device),
        job,
        device,
        steps,
        observer,
        |device| {
            (
                Tensor::<2, Int>::zeros([seq, batch], device),
                Tensor::<2, Int>::zeros([seq, batch], device),
            )
        },
        |network, (words, next)| {
            let mut output = network.forward(words, carried.take());
            carried.replace(detached(std::mem::take(&mut output.states)));
            penalised(output, next, config.penalties)
        },
    )
}

/// The models of characters; what they share with every model of words is taken from `words`.
fn character_models(words: &Variant) -> [Variant; 2] {
    let character = |name, trainable, vocab, seq, recipe| Variant {
        name,
        paper: "Merity, Keskar, Socher 2018, An Analysis of Neural Language Modeling at Multiple Scales, arXiv 1803.08240",
        counts: Counts {
            trainable,
            ..words.counts
        },
        input: Input {
            seq: Some(seq),
            vocab: Some(vocab),
            ..words.input
        },
        batch: 128,
        optimizer: OptimizerKind::Adam,
        recipe,
        differences: &[
            "every sequence has --seq characters, where the reference draws lengths around that",
            "the LSTM runs step by step instead of in a fused kernel",
            "gradient clipping and weight decay are left out: they need no memory that outlives an operation",
        ],
        ..words.clone()
    };
    [
        character(
            "char-lm-ptb",
            13_787_650,
            50,
            150,
            "Penn Treebank by characters, 128 sequences of 150, Adam, DropConnect 0.5, variational dropouts",
        ),
        character(
            "char-lm-enwik8",
            47_270_045,
            205,
            200,
            "enwik8 by characters, 128 sequences of 200, Adam, DropConnect 0.2, variational dropouts",
        ),
    ]
}

impl Network for AwdLstm {
    fn variants(file: &'static str) -> Vec<Variant> {
        let word = |name, trainable, vocab, batch, recipe| Variant {
            name,
            family: "AWD-LSTM",
            file,
            paper: "Merity, Keskar, Socher 2017, Regularizing and Optimizing LSTM Language Models, arXiv 1708.02182",
            reference: "salesforce/awd-lstm-lm model.py, main.py",
            counts: Counts {
                trainable,
                tensors: 14,
                buffers: 0,
            },
            input: Input {
                seq: Some(70),
                vocab: Some(vocab),
                ..Input::default()
            },
            batch,
            optimizer: OptimizerKind::Sgd,
            recipe,
            differences: &[
                "every sequence has --seq tokens, where the reference draws lengths around 70",
                "training's second half, under averaged SGD, is left out: it keeps one more value per parameter",
                "the LSTM runs step by step instead of in a fused kernel",
                "gradient clipping and weight decay are left out: they need no memory that outlives an operation",
            ],
        };
        let mut variants = vec![
            word(
                "awd-lstm-ptb",
                24_221_600,
                10_000,
                20,
                "Penn Treebank, 20 sequences of 70 words, SGD, DropConnect 0.5, variational dropouts, penalties on activations",
            ),
            word(
                "awd-lstm-wt2",
                33_556_078,
                33_278,
                80,
                "WikiText-2, 80 sequences of 70 words, SGD, DropConnect 0.5, variational dropouts, penalties on activations",
            ),
        ];
        variants.extend(character_models(&variants[0]));
        variants
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        check_steps(job)
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "awd-lstm-mini" => AwdLstmConfig::tiny(job.vocab()),
            published => AwdLstmConfig::published(published, job.vocab()),
        };
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    #[test]
    fn each_word_has_scores_and_each_layer_a_state() {
        let device = test_support::flex();
        let config = AwdLstmConfig::tiny(30);
        let words = Tensor::zeros([5, 3], &device);
        let output = config
            .init(&device)
            .forward(words, config.initial(3, &device));
        assert_eq!(output.scores.dims(), [15, 30]);
        let widths: Vec<_> = output.states.iter().map(|s| s.hidden.dims()).collect();
        assert_eq!(widths, [[3, 12], [3, 12], [3, 8]]);
    }

    #[test]
    fn a_sequence_that_takes_minutes_to_unroll_is_refused() {
        for name in ["awd-lstm-ptb", "elmo-bilm", "infersent", "bilstm-cnn-crf"] {
            test_support::longest(name, 500);
        }
    }
}
