//! ELMo's bidirectional language model. See `variants` for paper, reference and differences.
//!
//! The file is long because a network is one file: its modules, its training step and its published sizes.

use std::cell::RefCell;

use burn::module::{Module, Param};
use burn::nn::conv::{Conv1d, Conv1dConfig};
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig,
    LstmState,
};
use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::{Device, Int, Tensor};

use super::Network;
use crate::blocks::cross_entropy;
use crate::blocks::lstm::{advance, check_steps, detached};
use crate::{Counts, Error, Input, InputSize, Job, Observer, OptimizerKind, Variant, supervised};

/// The configuration of an [`Elmo`].
#[derive(Clone, Debug)]
pub(crate) struct ElmoConfig {
    /// Words in the vocabulary of the output layer: 793,471.
    pub vocab: usize,
    /// Characters in the vocabulary: 261.
    pub characters: usize,
    /// Characters of each word, with padding: 50.
    pub word_length: usize,
    /// Width of a character's vector: 16.
    pub character_width: usize,
    /// Kernel and channels of each convolution over the characters.
    pub filters: Vec<[usize; 2]>,
    /// Highway layers: 2.
    pub highways: usize,
    /// LSTM layers in each direction: 2.
    pub layers: usize,
    /// Width of an LSTM's cell: 4,096.
    pub cell: usize,
    /// Width of the projected words and outputs: 512.
    pub projected: usize,
    /// Bound of the absolute values of cells and projections: 3.
    pub clip: f64,
    /// Dropout: 0.1.
    pub dropout: f64,
    /// Words that the sampled softmax draws for a batch: 8,192.
    pub negatives: usize,
}

impl ElmoConfig {
    /// The published network.
    pub fn new(vocab: usize) -> Self {
        let filters = [32, 32, 64, 128, 256, 512, 1024];
        Self {
            vocab,
            characters: 261,
            word_length: 50,
            character_width: 16,
            filters: (1..).zip(filters).map(|(kernel, n)| [kernel, n]).collect(),
            highways: 2,
            layers: 2,
            cell: 4096,
            projected: 512,
            clip: 3.0,
            dropout: 0.1,
            negatives: 8192,
        }
    }

    fn tiny(vocab: usize) -> Self {
        Self {
            word_length: 6,
            filters: vec![[1, 4], [2, 6]],
            cell: 12,
            projected: 8,
            negatives: 5,
            ..Self::new(vocab)
        }
    }

    /// The language model without its output layer, on `device`.
    pub fn init(&self, device: &Device) -> Elmo {
        let width = self.filters.iter().map(|[_, n]| n).sum();
        let highway = || Highway {
            carry: LinearConfig::new(width, width).init(device),
            transform: LinearConfig::new(width, width).init(device),
        };
        let direction = || Direction {
            layers: (0..self.layers).map(|_| self.lstm(device)).collect(),
            dropout: DropoutConfig::new(self.dropout).init(),
        };
        Elmo {
            characters: EmbeddingConfig::new(self.characters, self.character_width).init(device),
            filters: self
                .filters
                .iter()
                .map(|&[kernel, n]| Conv1dConfig::new(self.character_width, n, kernel).init(device))
                .collect(),
            highways: (0..self.highways).map(|_| highway()).collect(),
            projection: LinearConfig::new(width, self.projected).init(device),
            forward: direction(),
            backward: direction(),
        }
    }

    fn lstm(&self, device: &Device) -> ProjectedLstm {
        ProjectedLstm {
            kernel: LinearConfig::new(2 * self.projected, 4 * self.cell).init(device),
            projection: LinearConfig::new(self.cell, self.projected)
                .with_bias(false)
                .init(device),
            clip: self.clip,
        }
    }

    /// The language model with the output layer that its training needs, on `device`.
    pub fn training(&self, device: &Device) -> Training {
        Training {
            bilm: self.init(device),
            table: EmbeddingConfig::new(self.vocab, self.projected)
                .with_initializer(Initializer::Normal {
                    mean: 0.0,
                    // The scale of the reference.
                    std: (self.projected as f64).powf(-0.5),
                })
                .init(device),
            bias: Initializer::Zeros.init([self.vocab], device),
        }
    }

    /// The states of all layers of one direction before the first batch: zeros.
    fn initial(&self, batch: usize, device: &Device) -> States {
        let state = |_| LstmState {
            cell: Tensor::zeros([batch, self.cell], device),
            hidden: Tensor::zeros([batch, self.projected], device),
        };
        (0..self.layers).map(state).collect()
    }
}

/// The states of the layers of one direction.
type States = Vec<LstmState<2>>;

/// Two stacks of LSTMs, one for each direction, over vectors of words that convolutions compute
/// from their characters.
#[derive(Module, Debug)]
pub(crate) struct Elmo {
    characters: Embedding,
    filters: Vec<Conv1d>,
    highways: Vec<Highway>,
    projection: Linear,
    forward: Direction,
    backward: Direction,
}

impl Elmo {
    /// The vectors `[seq, batch, projected]` of the words that `characters: [seq * batch,
    /// word_length]` spell.
    fn embed(&self, characters: Tensor<2, Int>, batch: usize) -> Tensor<3> {
        let x = self.characters.forward(characters).swap_dims(1, 2);
        let filtered = self
            .filters
            .iter()
            .map(|filter| relu(filter.forward(x.clone()).max_dim(2).squeeze_dim(2)));
        let x = Tensor::cat(filtered.collect(), 1);
        let x = self.highways.iter().fold(x, |x, layer| layer.forward(x));
        let x: Tensor<2> = self.projection.forward(x);
        let [words, width] = x.dims();
        x.reshape([words / batch, batch, width])
    }
}

/// A layer whose output is a weighted mean of its input and of a linear layer's output.
#[derive(Module, Debug)]
struct Highway {
    carry: Linear,
    transform: Linear,
}

impl Highway {
    /// `[words, width]` from `x` of the same shape.
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let carry = sigmoid(self.carry.forward(x.clone()));
        let transformed = relu(self.transform.forward(x.clone()));
        carry.clone() * transformed + (-carry + 1.0) * x
    }
}

/// The LSTMs of one direction, with a shortcut around each but the first.
#[derive(Module, Debug)]
struct Direction {
    layers: Vec<ProjectedLstm>,
    dropout: Dropout,
}

impl Direction {
    /// The output `[seq, batch, projected]` and the states after it, from `x` of the same shape
    /// and the `states` before.
    fn forward(&self, x: Tensor<3>, states: States) -> (Tensor<3>, States) {
        let (mut x, mut after) = (x, Vec::with_capacity(states.len()));
        for (layer, (lstm, state)) in self.layers.iter().zip(states).enumerate() {
            let entering = self.dropout.forward(x);
            let (output, state) = lstm.forward(entering.clone(), state);
            x = match layer {
                0 => output,
                _ => output + entering,
            };
            after.push(state);
        }
        (self.dropout.forward(x), after)
    }
}

/// An LSTM that projects its output to fewer channels before the next step reads it (Sak, Senior,
/// Beaufays 2014, arXiv 1402.1128). Its parameters are those of TensorFlow's: one kernel for the
/// input and the last output.
#[derive(Module, Debug)]
struct ProjectedLstm {
    kernel: Linear,
    projection: Linear,
    clip: f64,
}

impl ProjectedLstm {
    /// The output `[seq, batch, projected]` and the state after it, from `x` of the same shape and
    /// the `state` before.
    fn forward(&self, x: Tensor<3>, mut state: LstmState<2>) -> (Tensor<3>, LstmState<2>) {
        let [seq, ..] = x.dims();
        let mut outputs = Vec::with_capacity(seq);
        for step in 0..seq {
            let now = x.clone().narrow(0, step, 1).squeeze_dim(0);
            let gates = self.kernel.forward(Tensor::cat(vec![now, state.hidden], 1));
            let LstmState { cell, hidden } = advance(gates, state.cell, Some(self.clip));
            let hidden: Tensor<2> = self.projection.forward(hidden);
            let hidden = hidden.clamp(-self.clip, self.clip);
            outputs.push(hidden.clone());
            state = LstmState { cell, hidden };
        }
        (Tensor::stack(outputs, 0), state)
    }
}

/// The language model and the output layer that both directions share.
#[derive(Module, Debug)]
pub(crate) struct Training {
    bilm: Elmo,
    table: Embedding,
    bias: Param<Tensor<1>>,
}

impl Training {
    /// The loss `[1]` of the words `next: [seq * batch]` given `context: [seq, batch, projected]`:
    /// a softmax over the word and the sampled words `negatives: [negatives]`.
    fn loss(
        &self,
        context: Tensor<3>,
        next: Tensor<1, Int>,
        negatives: Tensor<1, Int>,
    ) -> Tensor<1> {
        let context: Tensor<2> = context.flatten(0, 1);
        let ([tokens], [sampled]) = (next.dims(), negatives.dims());
        let words = Tensor::cat(vec![next, negatives], 0);
        let rows = self.table.weight.val().select(0, words.clone());
        let bias = self.bias.val().select(0, words);

        let true_rows = rows.clone().narrow(0, 0, tokens);
        let true_bias = bias.clone().narrow(0, 0, tokens).unsqueeze_dim(1);
        let true_scores = (context.clone() * true_rows).sum_dim(1) + true_bias;
        let sampled_rows = rows.narrow(0, tokens, sampled).transpose();
        let sampled_bias = bias.narrow(0, tokens, sampled).unsqueeze_dim(0);
        let sampled_scores = context.matmul(sampled_rows) + sampled_bias;

        let scores = Tensor::cat(vec![true_scores, sampled_scores], 1);
        let first = Tensor::zeros([tokens], &scores.device());
        cross_entropy(scores, first)
    }
}

fn train_on<O: Observer>(
    config: &ElmoConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, tokens) = (job.batch, job.batch * job.seq());
    let carried = RefCell::new([config.initial(batch, device), config.initial(batch, device)]);
    supervised(
        config.training(device),
        job,
        device,
        steps,
        observer,
        |device| {
            let spelled = || Tensor::<2, Int>::zeros([tokens, config.word_length], device);
            let next = || Tensor::<1, Int>::zeros([tokens], device);
            let negatives = || Tensor::<1, Int>::ones([config.negatives], device);
            (
                spelled(),
                spelled(),
                next(),
                next(),
                negatives(),
                negatives(),
            )
        },
        |network, (forwards, backwards, next, before, negatives, more_negatives)| {
            let [ahead, back] = carried.take();
            let bilm = &network.bilm;
            let (forwards, ahead) = bilm.forward.forward(bilm.embed(forwards, batch), ahead);
            let (backwards, back) = bilm.backward.forward(bilm.embed(backwards, batch), back);
            carried.replace([ahead, back].map(detached));
            let ahead = network.loss(forwards, next, negatives);
            let back = network.loss(backwards, before, more_negatives);
            (ahead + back) * 0.5
        },
    )
}

impl Network for Elmo {
    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "elmo-bilm",
            family: "BiLSTM",
            file,
            paper: "Peters et al. 2018, Deep contextualized word representations, arXiv 1802.05365",
            reference: "allenai/bilm-tf bilm/training.py, bin/train_elmo.py",
            counts: Counts {
                // The language model, 93,600,848 in 37, and its output layer.
                trainable: 500_651_471,
                tensors: 39,
                buffers: 0,
            },
            input: Input {
                seq: Some(20),
                vocab: Some(793_471),
                ..Input::default()
            },
            batch: 128,
            optimizer: OptimizerKind::AdaGrad,
            recipe: "One Billion Word Benchmark, 128 sequences of 20 words a card (384 on 3) in both directions, sampled softmax over 8,192 words, Adagrad, dropout 0.1",
            differences: &[
                "burn's gradient of the output table is as large as the table, 1.6 GB for each direction; TensorFlow keeps the rows that were used, 22 MB",
                "the forget gate's constant offset of 1 and gradient clipping are left out: they need no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        check_steps(job)?;
        if job.vocab() > 1 {
            return Ok(());
        }
        Err(Error::Size {
            what: InputSize::Vocab.into(),
            must: "at least 2, a word and another to compare it to".into(),
            got: job.vocab().to_string(),
        })
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "elmo-bilm" => ElmoConfig::new(job.vocab()),
            "elmo-mini" => ElmoConfig::tiny(job.vocab()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    /// Expected: the counts of the reference without its output layer.
    #[test]
    fn the_language_model_has_the_published_counts() {
        let bilm = ElmoConfig::new(793_471).init(&test_support::flex());
        assert_eq!(test_support::parameters(&bilm), (93_600_848, 37));
    }

    #[test]
    fn words_keep_their_places() {
        let device = test_support::flex();
        let (config, bilm) = (ElmoConfig::tiny(30), ElmoConfig::tiny(30).init(&device));
        let words = bilm.embed(Tensor::zeros([15, 6], &device), 3);
        assert_eq!(words.dims(), [5, 3, 8]);
        let (output, states) = bilm.forward.forward(words, config.initial(3, &device));
        assert_eq!(output.dims(), [5, 3, 8]);
        assert_eq!(states[1].cell.dims(), [3, 12]);
    }
}
