//! MT-DNN large: BERT with a head for each of eight GLUE tasks. See `variants` for paper, reference
//! and differences.

use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::activation::{sigmoid, softmax};
use burn::tensor::{Device, Int, Tensor};

use super::Network;
use super::bert::{Bert, BertConfig};
use crate::blocks::cross_entropy;
use crate::blocks::locked_dropout::locked_dropout;
use crate::blocks::tokens::{check_positions, words};
use crate::{
    Counts, Error, Input, InputSize, Job, Observer, OptimizerKind, Phase, Trainer, Variant,
};

/// Steps of an answer network: it attends to the sentences and answers in each.
const ANSWERS: usize = 5;

/// Added to each likelihood, so that its logarithm is finite even if dropout removes all answers
/// (the reference always keeps one). It can be represented in 16 bits.
const EPSILON: f64 = 1e-4;

/// A task of GLUE, with the index of its head among those of its kind.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// A task on pairs of sentences, with an answer network.
    Pair(usize),
    /// A task with a linear layer on the pooled output.
    Pooled(usize),
}

/// Classes of MNLI, RTE, QQP, QNLI and MRPC.
const PAIRS: [usize; 5] = [3, 2, 2, 2, 2];

/// Outputs of SST-2, CoLA and STS-B; a task with one output is a regression.
const POOLED: [usize; 3] = [2, 2, 1];

/// The configuration of an [`MtDnn`].
#[derive(Clone, Debug)]
pub(crate) struct MtDnnConfig {
    /// The encoder of all tasks: BERT large.
    pub bert: BertConfig,
    /// Dropout in the heads: 0.1.
    pub dropout: f64,
}

impl MtDnnConfig {
    /// The published network.
    pub fn large(vocab: usize) -> Self {
        Self {
            bert: BertConfig::large(vocab),
            dropout: 0.1,
        }
    }

    /// A network for sequences of 8 tokens.
    fn tiny(vocab: usize) -> Self {
        Self {
            bert: BertConfig {
                d_model: 16,
                layers: 2,
                heads: 2,
                d_ff: 32,
                positions: 8,
                ..BertConfig::base(vocab)
            },
            dropout: 0.1,
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> MtDnn {
        let width = self.bert.d_model;
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        let pair = |classes| AnswerNetwork {
            summary: linear(width, 1),
            attention: linear(width, width),
            input: linear(width, 3 * width),
            hidden: linear(width, 3 * width),
            classifier: linear(4 * width, classes),
            dropout: self.dropout,
        };
        MtDnn {
            bert: self.bert.init(device),
            pairs: PAIRS.into_iter().map(pair).collect(),
            dropout: DropoutConfig::new(self.dropout).init(),
            pooled: POOLED.map(|classes| linear(width, classes)).into(),
        }
    }
}

/// BERT with a head for each task.
#[derive(Module, Debug)]
pub(crate) struct MtDnn {
    bert: Bert,
    pairs: Vec<AnswerNetwork>,
    dropout: Dropout,
    pooled: Vec<Linear>,
}

impl MtDnn {
    /// Scores `[batch, classes]` of `task` for the hidden states `hidden: [batch, seq, width]`.
    fn score(&self, task: Task, hidden: Tensor<3>) -> Tensor<2> {
        match task {
            Task::Pair(head) => self.pairs[head].forward(hidden),
            Task::Pooled(head) => {
                let pooled = self.dropout.forward(self.bert.pool(hidden));
                self.pooled[head].forward(pooled)
            }
        }
    }
}

/// A stochastic answer network. It attends to both sentences in several steps, makes an answer in
/// each, and averages the answers that dropout keeps.
#[derive(Module, Debug)]
struct AnswerNetwork {
    summary: Linear,
    attention: Linear,
    input: Linear,
    hidden: Linear,
    classifier: Linear,
    dropout: f64,
}

impl AnswerNetwork {
    /// The logarithms of the likelihoods `[batch, classes]` for `tokens: [batch, seq, width]`.
    fn forward(&self, tokens: Tensor<3>) -> Tensor<2> {
        let [_, seq, _] = tokens.dims();
        let mut state = self.summarise(tokens.clone().narrow(1, 0, seq.div_ceil(2)));
        let mut answers = Vec::with_capacity(ANSWERS);
        for _ in 0..ANSWERS {
            let read = self.attend(tokens.clone(), state.clone());
            answers.push(softmax(self.classify(read.clone(), state.clone()), 1));
            state = self.next_state(read, self.dropped(state));
        }
        // Dropout removes an answer for all classes.
        let answers = locked_dropout(Tensor::stack(answers, 2), self.dropout, 1);
        let mean: Tensor<2> = answers.mean_dim(2).squeeze_dim(2);
        (mean + EPSILON).log()
    }

    /// A weighted mean `[batch, width]` over the words of `hypothesis: [batch, words, width]`.
    fn summarise(&self, hypothesis: Tensor<3>) -> Tensor<2> {
        let dropped = locked_dropout(hypothesis.clone(), self.dropout, 1);
        let weights = softmax(self.summary.forward(dropped), 1);
        weights.swap_dims(1, 2).matmul(hypothesis).squeeze_dim(1)
    }

    /// `[batch, width]`: `state: [batch, width]` attends to `tokens: [batch, seq, width]`.
    fn attend(&self, tokens: Tensor<3>, state: Tensor<2>) -> Tensor<2> {
        let query = self.attention.forward(self.dropped(state));
        let scores = locked_dropout(tokens.clone(), self.dropout, 1)
            .matmul(query.unsqueeze_dim(2))
            .swap_dims(1, 2);
        softmax(scores, 2).matmul(tokens).squeeze_dim(1)
    }

    /// Scores `[batch, classes]` from the result of [`attend`](Self::attend), `read: [batch,
    /// width]`, and `state: [batch, width]`.
    fn classify(&self, read: Tensor<2>, state: Tensor<2>) -> Tensor<2> {
        let difference = (read.clone() - state.clone()).abs();
        let product = read.clone() * state.clone();
        let features = Tensor::cat(vec![read, state, difference, product], 1);
        self.classifier.forward(self.dropped(features))
    }

    /// The next state `[batch, width]` of a gated recurrent unit with the parameters of torch's,
    /// for the input `read: [batch, width]` and `state: [batch, width]`.
    fn next_state(&self, read: Tensor<2>, state: Tensor<2>) -> Tensor<2> {
        let thirds = |x: Tensor<2>| -> [Tensor<2>; 3] {
            let thirds = x.chunk(3, 1).try_into();
            thirds.expect("the projection is three times as wide as the state")
        };
        let [reset, update, new] = thirds(self.input.forward(read));
        let [reset_state, update_state, new_state] = thirds(self.hidden.forward(state.clone()));
        let reset = sigmoid(reset + reset_state);
        let update = sigmoid(update + update_state);
        let new = (new + reset * new_state).tanh();
        (-update.clone() + 1.0) * new + update * state
    }

    /// Dropout of `x: [batch, width]`.
    fn dropped(&self, x: Tensor<2>) -> Tensor<2> {
        locked_dropout(x.unsqueeze_dim(1), self.dropout, 1).squeeze_dim(1)
    }
}

/// The loss `[1]` of `scores: [batch, outputs]` against `labels: [batch]`: mean squares of one
/// output, cross-entropy of several.
fn task_loss(scores: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    match scores.dims() {
        [_, 1] => MseLoss::new().forward(scores.squeeze_dim(1), labels.float(), Reduction::Mean),
        _ => cross_entropy(scores, labels),
    }
}

fn train_on<O: Observer>(
    config: &MtDnnConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    let sentences = |device: &Device| {
        (
            words(batch, seq, device),
            words(batch, seq, device),
            Tensor::<2, Int>::zeros([batch, seq], device).bool(),
            Tensor::<1, Int>::zeros([batch], device),
        )
    };
    let mnli = Task::Pair(0);
    let pairs = (1..PAIRS.len()).map(Task::Pair);
    let others = pairs.chain((0..POOLED.len()).map(Task::Pooled));

    let mut trainer = Trainer::new(config.init(device), job);
    observer.module("", trainer.module());
    observer.end(Phase::Init)?;
    for step in 0..steps {
        let loss = |network: &MtDnn, (words, segments, padding, labels)| {
            let hidden = network.bert.forward(words, segments, padding);
            task_loss(network.score(mnli, hidden), labels)
        };
        trainer = trainer.train(job, device, observer, sentences, loss)?;
        for task in others.clone().take_while(|_| step == 0) {
            let loss = |network: &MtDnn, (words, segments, padding, labels)| {
                // This step does not train the encoder.
                let encoder = network.bert.clone().no_grad();
                task_loss(
                    network.score(task, encoder.forward(words, segments, padding)),
                    labels,
                )
            };
            trainer = trainer.train(job, device, observer, sentences, loss)?;
        }
        observer.step_ends()?;
    }
    Ok(())
}

impl Network for MtDnn {
    const OUTPUT_LAYERS: &'static [&'static str] = &["classifier", "pooled"];

    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "mt-dnn-large",
            family: "MT-DNN",
            file,
            paper: "Liu, He, Chen, Gao 2019, Multi-Task Deep Neural Networks for Natural Language Understanding, arXiv 1901.11504; Liu, Duh, Gao 2018, Stochastic Answer Networks for Natural Language Inference, arXiv 1804.07888",
            reference: "namisan/mt-dnn mt_dnn/matcher.py, module/san.py (first release)",
            counts: Counts {
                trainable: 371_933_205,
                tensors: 447,
                buffers: 0,
            },
            input: Input {
                seq: Some(512),
                vocab: Some(30_522),
                ..Input::default()
            },
            batch: 32,
            optimizer: OptimizerKind::Adam,
            recipe: "The eight GLUE tasks without WNLI, one task a batch, 32 sequences of 512 tokens, Adamax, dropout 0.1",
            differences: &[
                "Adam instead of Adamax, with as much state",
                "every step is of MNLI, whose head is the largest, and after the first each other head takes one of its own that leaves the encoder as it is, so that the head and its optimizer state exist; the reference shuffles the batches of all tasks",
                "the hypothesis is half of the tokens",
                "the five frozen scalars are left out",
                "gradient clipping is left out: it needs no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        check_positions(
            InputSize::Seq,
            job.seq(),
            BertConfig::large(job.vocab()).positions,
        )
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = match variant.name {
            "mt-dnn-large" => MtDnnConfig::large(job.vocab()),
            "mt-dnn-mini" => MtDnnConfig::tiny(job.vocab()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tolerance};

    use super::*;
    use crate::test_support;

    /// Expected: the counts of the reference's encoder and eight heads, five of them answer
    /// networks.
    #[test]
    fn heads_have_the_published_counts() {
        let network = MtDnnConfig::large(30_522).init(&test_support::flex());
        let pairs = network.pairs.iter().map(test_support::parameters);
        let expected = [7_360_516, 7_356_419, 7_356_419, 7_356_419, 7_356_419];
        assert!(pairs.eq(expected.map(|elements| (elements, 10))));
        assert_eq!(test_support::parameters(&network.pooled), (5_125, 6));
        assert_eq!(test_support::parameters(&network.bert), (335_141_888, 391));
    }

    /// Without dropout the answer is a mean of likelihoods, which sum to 1.
    #[test]
    fn answers_are_likelihoods() {
        let device = test_support::flex();
        let network = MtDnnConfig::tiny(50).init(&device);
        let tokens = Tensor::random([3, 7, 16], Distribution::Default, &device);
        let answer = network.pairs[0].forward(tokens);
        assert_eq!(answer.dims(), [3, 3]);
        let sums = answer.exp().sum_dim(1).into_data();
        sums.assert_approx_eq::<f32>(&[[1.0f32], [1.0], [1.0]].into(), Tolerance::absolute(1e-3));
    }

    #[test]
    fn a_sequence_longer_than_the_positions_is_refused() {
        test_support::longest("mt-dnn-large", 512);
    }
}
