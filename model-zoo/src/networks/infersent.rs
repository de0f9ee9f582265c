//! InferSent: a BiLSTM sentence encoder and a classifier of sentence pairs. See `variants` for
//! paper, reference and differences.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Distribution, Int, Tensor};

use super::Network;
use crate::blocks::cross_entropy;
use crate::blocks::lstm::{BiLstm, LstmConfig, check_steps};
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant, supervised};

/// Width of the GloVe vectors. The network does not contain their table: a batch holds vectors.
const GLOVE: usize = 300;

/// The configuration of an [`InferSent`].
#[derive(Clone, Debug)]
pub(crate) struct InferSentConfig {
    /// Width of the state in each direction: 2,048.
    pub hidden: usize,
    /// Width of the classifier's hidden layers: 512.
    pub classifier: usize,
    /// Classes of a pair: entailed, neutral, contradicted.
    pub classes: usize,
}

impl InferSentConfig {
    /// The published network.
    pub fn new(classes: usize) -> Self {
        Self {
            hidden: 2048,
            classifier: 512,
            classes,
        }
    }

    fn tiny(classes: usize) -> Self {
        Self {
            hidden: 8,
            classifier: 6,
            classes,
        }
    }

    /// The network on `device`.
    pub fn init(&self, device: &Device) -> InferSent {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        InferSent {
            encoder: LstmConfig::new(GLOVE, self.hidden).bidirectional(device),
            classifier: vec![
                linear(4 * 2 * self.hidden, self.classifier),
                linear(self.classifier, self.classifier),
                linear(self.classifier, self.classes),
            ],
        }
    }
}

/// One encoder for both sentences, and a classifier of three linear layers without activations.
#[derive(Module, Debug)]
pub(crate) struct InferSent {
    encoder: BiLstm,
    classifier: Vec<Linear>,
}

impl InferSent {
    /// Class scores `[batch, classes]` of pairs of sentences, each `[seq, batch, 300]`.
    pub fn forward(&self, premise: Tensor<3>, hypothesis: Tensor<3>) -> Tensor<2> {
        let (u, v) = (self.encode(premise), self.encode(hypothesis));
        let difference = (u.clone() - v.clone()).abs();
        let product = u.clone() * v.clone();
        let features = Tensor::cat(vec![u, v, difference, product], 1);
        self.classifier
            .iter()
            .fold(features, |x, layer| layer.forward(x))
    }

    /// The largest values `[batch, 2 * hidden]` over the words of `sentence: [seq, batch, 300]`.
    fn encode(&self, sentence: Tensor<3>) -> Tensor<2> {
        self.encoder.forward(sentence).max_dim(0).squeeze_dim(0)
    }
}

fn train_on<O: Observer>(
    config: &InferSentConfig,
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
            let sentence =
                || Tensor::<3>::random([seq, batch, GLOVE], Distribution::Default, device);
            (
                sentence(),
                sentence(),
                Tensor::<1, Int>::zeros([batch], device),
            )
        },
        |network, (premise, hypothesis, labels)| {
            cross_entropy(network.forward(premise, hypothesis), labels)
        },
    )
}

impl Network for InferSent {
    const OUTPUT_LAYERS: &'static [&'static str] = &[r"classifier\.2"];

    fn variants(file: &'static str) -> Vec<Variant> {
        vec![Variant {
            name: "infersent",
            family: "BiLSTM",
            file,
            paper: "Conneau, Kiela, Schwenk, Barrault, Bordes 2017, Supervised Learning of Universal Sentence Representations from Natural Language Inference Data, arXiv 1705.02364",
            reference: "facebookresearch/InferSent models.py, train_nli.py",
            counts: Counts {
                trainable: 47_155_715,
                tensors: 14,
                buffers: 0,
            },
            input: Input {
                seq: Some(32),
                classes: Some(3),
                ..Input::default()
            },
            batch: 64,
            optimizer: OptimizerKind::Sgd,
            recipe: "SNLI, 64 pairs of sentences as GloVe vectors, BiLSTM with max-pooling, cross-entropy, SGD",
            differences: &[
                "both sentences have --seq words, where the reference fills a batch up to its longest and skips the filling in a packed sequence",
                "the LSTM runs step by step instead of in a fused kernel",
                "gradient clipping is left out: it needs no memory that outlives an operation",
            ],
        }]
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
            "infersent" => InferSentConfig::new(job.classes()),
            "infersent-mini" => InferSentConfig::tiny(job.classes()),
            other => unreachable!("{other} is not a variant of this file"),
        };
        train_on(&config, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    #[test]
    fn scores_have_a_row_for_each_pair() {
        let device = test_support::flex();
        let sentence = |words| Tensor::zeros([words, 2, GLOVE], &device);
        let scores = InferSentConfig::tiny(3)
            .init(&device)
            .forward(sentence(5), sentence(4));
        assert_eq!(scores.dims(), [2, 3]);
    }
}
