//! The adaptive input and output layers of Transformer-XL. They divide the words into clusters
//! by frequency; the vectors of each cluster are narrower than those of the cluster before.
//!
//! Papers: Grave, Joulin, Cissé, Grangier, Jégou 2016, "Efficient softmax approximation
//! for GPUs", arXiv 1609.04309; Baevski, Auli 2018, "Adaptive Input Representations for
//! Neural Language Modeling", arXiv 1809.10853. Reference: kimiyoung/transformer-xl
//! `pytorch/utils/proj_adaptive_softmax.py`, `pytorch/mem_transformer.py`.

use std::ops::Range;

use burn::module::{Module, Param};
use burn::nn::{Embedding, EmbeddingConfig, Initializer};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};

/// The configuration of an [`Adaptive`].
#[derive(Clone, Debug)]
pub(crate) struct AdaptiveConfig {
    /// For each cluster the id after its last word; the last of them is the vocabulary size.
    pub ends: Vec<usize>,
    /// Width of the model.
    pub d_model: usize,
    /// The width of a cluster's vectors divided by the width in the next; with 1 there is one
    /// table for all clusters.
    pub narrowing: usize,
}

impl AdaptiveConfig {
    /// The word ids of each cluster.
    fn clusters(&self) -> Vec<Range<usize>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(a, &b)| a..b).collect()
    }

    /// The number of `tokens` in each cluster if the frequency of a word is proportional to
    /// 1 / rank (Zipf's law). The reference counts them in each batch.
    pub fn shares(&self, tokens: usize) -> Vec<usize> {
        let frequency =
            |words: Range<usize>| words.map(|word| 1.0 / (word + 1) as f64).sum::<f64>();
        let clusters = self.clusters();
        let all = frequency(0..clusters.last().map_or(0, |rarest| rarest.end));
        let rare: Vec<_> = clusters[1..]
            .iter()
            .map(|words| (tokens as f64 * frequency(words.clone()) / all).round() as usize)
            .collect();
        let frequent = tokens - rare.iter().sum::<usize>();
        std::iter::once(frequent).chain(rare).collect()
    }

    /// Word ids `[tokens]`, of which each cluster has its [`shares`](Self::shares).
    pub fn words(&self, tokens: usize, device: &Device) -> Tensor<1, Int> {
        let shares = self.shares(tokens).into_iter().zip(self.clusters());
        let words = shares
            .filter(|(share, _)| *share > 0)
            .map(|(share, cluster)| Tensor::full([share], cluster.start as i64, device));
        Tensor::cat(words.collect(), 0)
    }

    /// The layers on `device`.
    pub fn init(&self, device: &Device) -> Adaptive {
        // The scale of the reference.
        let small = Initializer::Normal {
            mean: 0.0,
            std: 0.02,
        };
        let projection = |width| small.init([width, self.d_model], device);
        let table = |&[words, width]: &[usize; 2]| {
            EmbeddingConfig::new(words, width)
                .with_initializer(small.clone())
                .init(device)
        };
        let tables = self.tables();
        let rare = self.ends.len() - 1;
        let own_widths = self.narrowing > 1;
        let projected = if own_widths { &tables[..] } else { &[] };
        Adaptive {
            tables: tables.iter().map(table).collect(),
            projections: projected
                .iter()
                .map(|&[_, width]| projection(width))
                .collect(),
            head_projection: own_widths.then(|| projection(self.d_model)),
            biases: tables
                .iter()
                .map(|&[words, _]| Initializer::Zeros.init([words], device))
                .collect(),
            cluster_weight: Initializer::Zeros.init([rare, self.d_model], device),
            cluster_bias: Initializer::Zeros.init([rare], device),
            ends: self.ends.clone(),
        }
    }

    /// Rows and columns of each table: words and width of their vectors.
    fn tables(&self) -> Vec<[usize; 2]> {
        let clusters = self.clusters();
        if self.narrowing == 1 {
            let words = clusters.iter().map(Range::len).sum();
            return vec![[words, self.d_model]];
        }
        let widths = (0..).map(|cluster| self.d_model / self.narrowing.pow(cluster));
        clusters
            .iter()
            .map(Range::len)
            .zip(widths)
            .map(|(words, width)| [words, width])
            .collect()
    }
}

/// Embedding tables that are both the input and the output layer.
#[derive(Module, Debug)]
pub(crate) struct Adaptive {
    tables: Vec<Embedding>,
    projections: Vec<Param<Tensor<2>>>,
    head_projection: Option<Param<Tensor<2>>>,
    biases: Vec<Param<Tensor<1>>>,
    cluster_weight: Param<Tensor<2>>,
    cluster_bias: Param<Tensor<1>>,
    ends: Vec<usize>,
}

/// The tokens of one cluster within a batch.
pub(crate) struct Share {
    /// Their indices in the batch.
    indices: Tensor<1, Int>,
    /// The word ids of the cluster.
    words: Range<usize>,
    cluster: usize,
}

impl Adaptive {
    /// The tokens of each cluster that has any; `shares` are the numbers of them.
    pub fn split(&self, shares: &[usize], device: &Device) -> Vec<Share> {
        let mut next = 0;
        let mut start = 0;
        let mut split = Vec::with_capacity(shares.len());
        for (cluster, (&share, &end)) in shares.iter().zip(&self.ends).enumerate() {
            if share > 0 {
                split.push(Share {
                    indices: Tensor::arange(next..next + share as i64, device),
                    words: start..end,
                    cluster,
                });
            }
            (next, start) = (next + share as i64, end);
        }
        split
    }

    /// The vectors `[tokens, d_model]` of the word ids `words: [tokens]`, which `shares` divides.
    pub fn embed(&self, words: Tensor<1, Int>, shares: &[Share]) -> Tensor<2> {
        let [tokens] = words.dims();
        if self.projections.is_empty() {
            return self.tables[0].weight.val().select(0, words);
        }
        let d_model = self.cluster_weight.val().dims()[1];
        let mut embedded = Tensor::zeros([tokens, d_model], &words.device());
        for share in shares {
            let own = words.clone().select(0, share.indices.clone()) - share.words.start as i64;
            let vectors = self.tables[share.cluster].weight.val().select(0, own);
            let vectors = vectors.matmul(self.projections[share.cluster].val());
            let indices = share.indices.clone();
            embedded = embedded.select_assign(0, indices, vectors, IndexingUpdateOp::Add);
        }
        embedded
    }

    /// The mean negative log-likelihood `[1]` of the words `next: [tokens]`, which `shares`
    /// divides, given `hidden: [tokens, d_model]`.
    pub fn loss(&self, hidden: Tensor<2>, next: Tensor<1, Int>, shares: &[Share]) -> Tensor<1> {
        let (weight, bias) = self.output(0, 0..self.ends[0]);
        let weight = Tensor::cat(vec![weight, self.cluster_weight.val()], 0);
        let bias = Tensor::cat(vec![bias, self.cluster_bias.val()], 0);
        let projection = self.head_projection.as_ref().map(Param::val);
        let head = log_softmax(scores(hidden.clone(), weight, bias, projection), 1);
        let [_, columns] = head.dims();

        let likelihoods = shares.iter().map(|share| {
            let own = next.clone().select(0, share.indices.clone()) - share.words.start as i64;
            let head = head.clone().select(0, share.indices.clone());
            if share.cluster == 0 {
                return head.gather(1, own.unsqueeze_dim(1));
            }
            // The last columns of the head are the clusters, in reverse order.
            let chosen = head.narrow(1, columns - share.cluster, 1);
            let (weight, bias) = self.output(share.cluster, share.words.clone());
            let projection = self.projections.get(share.cluster).map(Param::val);
            let hidden = hidden.clone().select(0, share.indices.clone());
            let within = log_softmax(scores(hidden, weight, bias, projection), 1);
            chosen + within.gather(1, own.unsqueeze_dim(1))
        });
        Tensor::cat(likelihoods.collect(), 0).mean().neg()
    }

    /// Weight `[words, width]` and bias `[words]` of the output layer for `words`, those of
    /// `cluster`.
    fn output(&self, cluster: usize, words: Range<usize>) -> (Tensor<2>, Tensor<1>) {
        match self.projections.is_empty() {
            true => {
                let (start, length) = (words.start, words.len());
                (
                    self.tables[0].weight.val().narrow(0, start, length),
                    self.biases[0].val().narrow(0, start, length),
                )
            }
            false => (
                self.tables[cluster].weight.val(),
                self.biases[cluster].val(),
            ),
        }
    }
}

/// Scores `[tokens, words]` of `hidden: [tokens, d_model]` against `weight: [words, width]` and
/// `bias: [words]`, after the transposed `projection: [width, d_model]`.
fn scores(
    hidden: Tensor<2>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    projection: Option<Tensor<2>>,
) -> Tensor<2> {
    let narrowed = match projection {
        Some(projection) => hidden.matmul(projection.transpose()),
        None => hidden,
    };
    narrowed.matmul(weight.transpose()) + bias.unsqueeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support;

    /// Expected: ratios of harmonic numbers, H(20,000) / H(267,735) and so on.
    #[test]
    fn shares_follow_zipf() {
        let wikitext = AdaptiveConfig {
            ends: vec![20_000, 40_000, 200_000, 267_735],
            d_model: 4,
            narrowing: 1,
        };
        assert_eq!(wikitext.shares(10_000), [8016, 530, 1231, 223]);
        assert_eq!(wikitext.shares(1), [1, 0, 0, 0]);
    }

    /// With equal scores, the likelihood of a word in the head is 1 / columns of the head; of
    /// another word it is that, divided by the words of its cluster.
    #[test]
    fn equal_scores_give_the_likelihood_by_hand() {
        let device = test_support::flex();
        let config = AdaptiveConfig {
            ends: vec![3, 8],
            d_model: 4,
            narrowing: 1,
        };
        let layers = config.init(&device);
        let hidden = Tensor::zeros([2, 4], &device);
        let words = Tensor::from_data([0, 3], &device);
        let shares = layers.split(&[1, 1], &device);
        let loss: f32 = layers.loss(hidden, words, &shares).into_scalar();
        // Three words and one cluster in the head; five words in the cluster.
        let expected = (4f32.ln() + 4f32.ln() + 5f32.ln()) / 2.0;
        assert!((loss - expected).abs() < 1e-5, "{loss} {expected}");
    }
}
