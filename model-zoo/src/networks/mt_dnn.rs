//! MT-DNN large: BERT under the heads of the GLUE tasks.
//!
//! Papers: Liu, He, Chen, Gao 2019, "Multi-Task Deep Neural Networks for Natural Language
//! Understanding", arXiv 1901.11504; Liu, Duh, Gao 2018, "Stochastic Answer Networks for
//! Natural Language Inference", arXiv 1804.07888. Reference: namisan/mt-dnn
//! `mt_dnn/matcher.py`, `module/san.py` (first release), the eight tasks without WNLI.
//!
//! Differences: Adam instead of Adamax, with as much state; the reference shuffles the
//! batches of all tasks, here every step is of MNLI, whose head is the largest, and after
//! the first each other head takes a step of its own, on what the encoder makes of a batch,
//! so that it and its optimizer state exist; the hypothesis is half of the tokens; gradients
//! are not clipped; the five frozen scalars are left out.

use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::activation::{sigmoid, softmax};
use burn::tensor::{Device, Int, Tensor};

use super::Network;
use super::bert::{Bert, BertConfig};
use crate::blocks::locked_dropout::locked_dropout;
use crate::blocks::tokens::{cross_entropy, fits, words};
use crate::{Counts, Error, Input, Job, OptimizerKind, Phase, Trainee, Variant, Watcher};

/// Times that an answer network looks at the sentences.
const TURNS: usize = 5;

/// Added to a likelihood, so that its logarithm is finite even if all answers were
/// dropped (the reference always keeps one); 16-bit floats can hold it.
const UNANSWERED: f64 = 1e-4;

/// A task of GLUE: which head, of those for pairs or of those for the pooled output.
#[derive(Clone, Copy, Debug)]
enum Task {
    Pair(usize),
    Pooled(usize),
}

/// Classes of MNLI, RTE, QQP, QNLI and MRPC.
const PAIRS: [usize; 5] = [3, 2, 2, 2, 2];

/// Outputs of SST-2, CoLA and STS-B; one output is a regression.
const POOLED: [usize; 3] = [2, 2, 1];

/// How an [`MtDnn`] is made.
#[derive(Clone, Debug)]
pub(crate) struct MtDnnConfig {
    /// The encoder that all tasks share: BERT large.
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
    fn mini(vocab: usize) -> Self {
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
    /// Scores `[batch, classes]` of `task`, for the encoder's `hidden: [batch, seq, width]`.
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

/// A stochastic answer network: it attends to both sentences several times, classifies
/// each time, and averages some of the answers.
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
    /// The logarithm of the likelihoods `[batch, classes]`, for `tokens: [batch, seq,
    /// width]`.
    fn forward(&self, tokens: Tensor<3>) -> Tensor<2> {
        let [_, seq, _] = tokens.dims();
        let mut state = self.summarise(tokens.clone().narrow(1, 0, seq.div_ceil(2)));
        let mut answers = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            let seen = self.attend(tokens.clone(), state.clone());
            answers.push(softmax(self.classify(seen.clone(), state.clone()), 1));
            state = self.gated(seen, self.dropped(state));
        }
        // An answer is dropped as a whole, for all classes.
        let answers = locked_dropout(Tensor::stack(answers, 2), self.dropout, 1);
        let mean: Tensor<2> = answers.mean_dim(2).squeeze_dim(2);
        (mean + UNANSWERED).log()
    }

    /// The mean of the hypothesis `[batch, words, width]`, weighted: `[batch, width]`.
    fn summarise(&self, hypothesis: Tensor<3>) -> Tensor<2> {
        let dropped = locked_dropout(hypothesis.clone(), self.dropout, 1);
        let weights = softmax(self.summary.forward(dropped), 1);
        weights.swap_dims(1, 2).matmul(hypothesis).squeeze_dim(1)
    }

    /// What the state `[batch, width]` looks for in `tokens: [batch, seq, width]`.
    fn attend(&self, tokens: Tensor<3>, state: Tensor<2>) -> Tensor<2> {
        let query = self.attention.forward(self.dropped(state));
        let scores = locked_dropout(tokens.clone(), self.dropout, 1)
            .matmul(query.unsqueeze_dim(2))
            .swap_dims(1, 2);
        softmax(scores, 2).matmul(tokens).squeeze_dim(1)
    }

    /// Scores `[batch, classes]` of what was seen and of the state, `[batch, width]` each.
    fn classify(&self, seen: Tensor<2>, state: Tensor<2>) -> Tensor<2> {
        let difference = (seen.clone() - state.clone()).abs();
        let product = seen.clone() * state.clone();
        let features = Tensor::cat(vec![seen, state, difference, product], 1);
        self.classifier.forward(self.dropped(features))
    }

    /// A gated recurrent unit with torch's tensors: the next state `[batch, width]`.
    fn gated(&self, seen: Tensor<2>, state: Tensor<2>) -> Tensor<2> {
        let thirds = |x: Tensor<2>| -> [Tensor<2>; 3] {
            let thirds = x.chunk(3, 1).try_into();
            thirds.expect("the projection is three times as wide as the state")
        };
        let [reset, update, new] = thirds(self.input.forward(seen));
        let [reset_state, update_state, new_state] = thirds(self.hidden.forward(state.clone()));
        let reset = sigmoid(reset + reset_state);
        let update = sigmoid(update + update_state);
        let new = (new + reset * new_state).tanh();
        (-update.clone() + 1.0) * new + update * state
    }

    /// Dropout of a vector for each sample.
    fn dropped(&self, x: Tensor<2>) -> Tensor<2> {
        locked_dropout(x.unsqueeze_dim(1), self.dropout, 1).squeeze_dim(1)
    }
}

/// Mean squares where there is one output, else cross-entropy.
fn task_loss(scores: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    match scores.dims() {
        [_, 1] => MseLoss::new().forward(scores.squeeze_dim(1), labels.float(), Reduction::Mean),
        _ => cross_entropy(scores, labels),
    }
}

fn train_on<W: Watcher>(
    config: &MtDnnConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    watcher: &mut W,
) -> Result<(), W::Stop> {
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

    let mut trainee = Trainee::new(config.init(device), job);
    watcher.module("", trainee.module());
    watcher.end(Phase::Init)?;
    for step in 0..steps {
        let loss = |network: &MtDnn, (words, segments, padding, labels)| {
            let hidden = network.bert.forward(words, segments, padding);
            task_loss(network.score(mnli, hidden), labels)
        };
        trainee = trainee.train(job, device, watcher, sentences, loss)?;
        for task in others.clone().take_while(|_| step == 0) {
            let loss = |network: &MtDnn, (words, segments, padding, labels)| {
                // The encoder learns nothing from it.
                let encoder = network.bert.clone().no_grad();
                task_loss(network.score(task, encoder.forward(words, segments, padding)), labels)
            };
            trainee = trainee.train(job, device, watcher, sentences, loss)?;
        }
    }
    Ok(())
}

impl Network for MtDnn {
    fn variants() -> Vec<Variant> {
        vec![Variant {
            name: "mt-dnn-large",
            family: "MT-DNN",
            file: "mt_dnn",
            paper: "Liu, He, Chen, Gao 2019, Multi-Task Deep Neural Networks for Natural Language Understanding, arXiv 1901.11504",
            reference: "namisan/mt-dnn mt_dnn/matcher.py, module/san.py",
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
                "every step is of MNLI, and after the first each other head takes one of its own that leaves the encoder as it is; the reference shuffles the batches of all tasks",
                "the hypothesis is half of the tokens",
                "gradient clipping is left out: it needs no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        fits("--seq", job.seq(), BertConfig::large(job.vocab()).positions)
    }

    fn train<W: Watcher>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        watcher: &mut W,
    ) -> Result<(), W::Stop> {
        let config = match variant.name {
            "mt-dnn-mini" => MtDnnConfig::mini(job.vocab()),
            _ => MtDnnConfig::large(job.vocab()),
        };
        train_on(&config, job, device, steps, watcher)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tolerance};

    use super::*;
    use crate::{Request, toy};

    /// The table of the reference: BERT and eight heads, of which five answer networks.
    #[test]
    fn heads_have_the_published_counts() {
        let network = MtDnnConfig::large(30_522).init(&toy::flex());
        let pairs = network.pairs.iter().map(toy::parameters);
        let expected = [7_360_516, 7_356_419, 7_356_419, 7_356_419, 7_356_419];
        assert!(pairs.eq(expected.map(|elements| (elements, 10))));
        assert_eq!(toy::parameters(&network.pooled), (5_125, 6));
        assert_eq!(toy::parameters(&network.bert), (335_141_888, 391));
    }

    /// Without dropout the answer is a mean of likelihoods, which add up to one.
    #[test]
    fn answers_are_likelihoods() {
        let device = toy::flex();
        let network = MtDnnConfig::mini(50).init(&device);
        let tokens = Tensor::random([3, 7, 16], Distribution::Default, &device);
        let answer = network.pairs[0].forward(tokens);
        assert_eq!(answer.dims(), [3, 3]);
        let sums = answer.exp().sum_dim(1).into_data();
        sums.assert_approx_eq::<f32>(&[[1.0f32], [1.0], [1.0]].into(), Tolerance::absolute(1e-3));
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(2),
            input: Input {
                seq: Some(8),
                ..Input::default()
            },
            ..Request::default()
        };
        toy::falls("mt-dnn-large", &request, |job, device, _, losses| {
            train_on(&MtDnnConfig::mini(50), job, device, 6, losses)
        });
    }

    #[test]
    fn a_sequence_longer_than_the_positions_is_refused() {
        toy::longest("mt-dnn-large", 512);
    }
}
