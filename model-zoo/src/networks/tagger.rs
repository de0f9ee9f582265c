//! The BiLSTM-CNN-CRF sequence tagger. See `variants` for paper, reference and differences.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv1d, Conv1dConfig};
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig,
    PaddingConfig1d,
};
use burn::tensor::{Device, Int, Tensor};

use super::Network;
use crate::blocks::lstm::{BiLstm, LstmConfig, check_steps};
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// Characters of each word: `MAX_CHAR_LENGTH` of the reference.
const WORD_LENGTH: usize = 45;

/// The configuration of a [`Tagger`].
#[derive(Clone, Debug)]
pub(crate) struct TaggerConfig {
    /// Words in the vocabulary: the 400,000 of GloVe.
    pub vocab: usize,
    /// Characters in the vocabulary: 85 in CoNLL-2003.
    pub characters: usize,
    /// Width of a word's vector: 100.
    pub word_width: usize,
    /// Width of a character's vector, and channels of the convolution over it: 30.
    pub character_width: usize,
    /// Width of the state in each direction: 200.
    pub hidden: usize,
    /// Tags.
    pub tags: usize,
    /// Dropout on characters, and before and after the LSTM: 0.5.
    pub dropout: f64,
}

impl TaggerConfig {
    /// The published network.
    pub fn new(vocab: usize, tags: usize) -> Self {
        Self {
            vocab,
            characters: 85,
            word_width: 100,
            character_width: 30,
            hidden: 200,
            tags,
            dropout: 0.5,
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> Tagger {
        let width = self.character_width;
        Tagger {
            words: EmbeddingConfig::new(self.vocab, self.word_width).init(device),
            characters: EmbeddingConfig::new(self.characters, width).init(device),
            filters: Conv1dConfig::new(width, width, 3)
                .with_padding(PaddingConfig1d::Explicit(2, 2))
                .init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            lstm: LstmConfig::new(self.word_width + width, self.hidden).bidirectional(device),
            tags: LinearConfig::new(2 * self.hidden, self.tags).init(device),
            transitions: Initializer::Zeros.init([self.tags, self.tags], device),
        }
    }
}

/// Vectors of words and of their characters, a BiLSTM over them, and a CRF over the tags.
#[derive(Module, Debug)]
pub(crate) struct Tagger {
    words: Embedding,
    characters: Embedding,
    filters: Conv1d,
    dropout: Dropout,
    lstm: BiLstm,
    tags: Linear,
    transitions: Param<Tensor<2>>,
}

impl Tagger {
    /// Scores `[seq, batch, tags]` of `words: [seq, batch]` with `characters: [seq * batch,
    /// characters of a word]`.
    pub fn forward(&self, words: Tensor<2, Int>, characters: Tensor<2, Int>) -> Tensor<3> {
        let [seq, batch] = words.dims();
        let spelled = self.dropout.forward(self.characters.forward(characters));
        let spelled = self.filters.forward(spelled.swap_dims(1, 2)).max_dim(2);
        let spelled = spelled.tanh().reshape([seq as i32, batch as i32, -1]);
        let x = Tensor::cat(vec![self.words.forward(words), spelled], 2);
        let x = self.lstm.forward(self.dropout.forward(x));
        self.tags.forward(self.dropout.forward(x))
    }

    /// The mean negative log-likelihood `[1]` of `tags: [seq, batch]` under `scores: [seq, batch,
    /// tags]`.
    pub fn loss(&self, scores: Tensor<3>, tags: Tensor<2, Int>) -> Tensor<1> {
        let path = self.path_score(scores.clone(), tags);
        (self.log_partition(scores) - path).mean()
    }

    /// The scores `[batch]` of the paths `tags: [seq, batch]` under `scores: [seq, batch, tags]`.
    fn path_score(&self, scores: Tensor<3>, tags: Tensor<2, Int>) -> Tensor<1> {
        let [seq, batch, kinds] = scores.dims();
        let emitted = scores.gather(2, tags.clone().unsqueeze_dim(2));
        let emitted = emitted.sum_dim(0).reshape([batch]);
        if seq == 1 {
            return emitted;
        }
        let from = tags.clone().narrow(0, 0, seq - 1);
        let to = tags.narrow(0, 1, seq - 1);
        let pairs = (from * kinds as i64 + to).flatten::<1>(0, 1);
        let moved = self.transitions.val().flatten::<1>(0, 1).select(0, pairs);
        let moved = moved.reshape([seq - 1, batch]).sum_dim(0).reshape([batch]);
        emitted + moved
    }

    /// The logarithm `[batch]` of the sum over all paths, by the forward algorithm, from `scores:
    /// [seq, batch, tags]`.
    fn log_partition(&self, scores: Tensor<3>) -> Tensor<1> {
        let [seq, batch, kinds] = scores.dims();
        let emitted = |word| scores.clone().narrow(0, word, 1).squeeze_dim::<2>(0);
        // `[batch, previous tag, tag]`, summed over the previous tag.
        let transitions = self.transitions.val().unsqueeze::<3>();
        let mut total = emitted(0);
        for word in 1..seq {
            let paths = total.unsqueeze_dim::<3>(2) + transitions.clone();
            total = log_sum_exp(paths).reshape([batch, kinds]) + emitted(word);
        }
        log_sum_exp(total.unsqueeze_dim::<3>(2)).reshape([batch])
    }
}

/// `log(sum(exp(x)))` over the second dimension, whose size becomes 1.
fn log_sum_exp(x: Tensor<3>) -> Tensor<3> {
    let largest = x.clone().detach().max_dim(1);
    (x - largest.clone()).exp().sum_dim(1).log() + largest
}

fn train_on<O: Observer>(
    config: &TaggerConfig,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    supervised(
        config.init(device),
        job,
        device,
        steps,
        observer,
        |device| {
            (
                Tensor::<2, Int>::zeros([seq, batch], device),
                Tensor::<2, Int>::zeros([seq * batch, WORD_LENGTH], device),
                Tensor::<2, Int>::zeros([seq, batch], device),
            )
        },
        |network, (words, characters, tags)| network.loss(network.forward(words, characters), tags),
    )
}

impl Network for Tagger {
    const OUTPUT_LAYERS: &'static [&'static str] = &["tags", "transitions"];

    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "bilstm-cnn-crf",
            family: "BiLSTM",
            file,
            paper: "Ma, Hovy 2016, End-to-end Sequence Labeling via Bi-directional LSTM-CNNs-CRF, arXiv 1603.01354",
            reference: "XuezheMax/LasagneNLP",
            counts: Counts {
                // 543,586 and 100 for each of GloVe's 400,000 words.
                trainable: 40_543_586,
                tensors: 15,
                buffers: 0,
            },
            input: Input {
                seq: Some(32),
                classes: Some(17),
                vocab: Some(400_000),
                ..Input::default()
            },
            batch: 10,
            optimizer: OptimizerKind::Momentum,
            recipe: "CoNLL-2003 named entities, 10 sentences, GloVe vectors trained along, SGD with momentum 0.9, dropout 0.5",
            differences: &[
                "every sentence has --seq words and every word 45 characters, where the reference fills a batch up to its longest",
                "the LSTM runs step by step instead of in a fused kernel",
                "gradient clipping is left out: it needs no memory that outlives an operation",
            ],
        }]
    }

    fn check(_variant: &Variant, job: &Job) -> Result<(), Error> {
        check_steps(job)
    }

    fn train<O: Observer>(
        _variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let config = TaggerConfig::new(job.vocab(), job.classes());
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tolerance};

    use super::*;
    use crate::{Request, test_support};

    fn tiny() -> TaggerConfig {
        TaggerConfig {
            word_width: 6,
            character_width: 4,
            hidden: 8,
            ..TaggerConfig::new(20, 3)
        }
    }

    #[test]
    fn each_word_has_scores() {
        let device = test_support::flex();
        let words = Tensor::zeros([5, 2], &device);
        let characters = Tensor::zeros([10, 7], &device);
        let scores = tiny().init(&device).forward(words, characters);
        assert_eq!(scores.dims(), [5, 2, 3]);
    }

    /// Brute force: the likelihoods of all paths sum to 1.
    #[test]
    fn likelihoods_of_all_paths_sum_to_one() {
        let device = test_support::flex();
        let mut network = tiny().init(&device);
        let random = |shape| Tensor::random(shape, Distribution::Default, &device);
        network.transitions = Param::from_tensor(random([3, 3]));
        let scores = random([9, 3]).slice([0..2, 0..3]).reshape([2, 1, 3]);
        let mut sum = Tensor::<1>::zeros([1], &device);
        for path in (0..3).flat_map(|a| (0..3).map(move |b| [[a], [b]])) {
            let tags = Tensor::<2, Int>::from_data(path, &device);
            sum = sum + (-network.loss(scores.clone(), tags)).exp();
        }
        sum.into_data()
            .assert_approx_eq::<f32>(&[1.0f32].into(), Tolerance::default());
    }

    #[test]
    fn trains() {
        let request = Request {
            batch: Some(2),
            input: Input {
                seq: Some(4),
                vocab: Some(20),
                classes: Some(3),
                ..Input::default()
            },
            ..Request::default()
        };
        test_support::assert_loss_decreases(
            "bilstm-cnn-crf",
            &request,
            |job, device, _, losses| train_on(&tiny(), job, device, 16, losses),
        );
    }
}
