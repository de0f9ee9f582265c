//! The adaptive input and output layers of Transformer-XL: words in clusters from the
//! frequent to the rare, each cluster with narrower vectors than the one before.
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

/// How an [`Adaptive`] is made.
#[derive(Clone, Debug)]
pub(crate) struct AdaptiveConfig {
    /// The first word of each cluster but the first, and the size of the vocabulary.
    pub ends: Vec<usize>,
    /// Width of the model.
    pub d_model: usize,
    /// By how much the vectors of a cluster are narrower than those before; 1: one table.
    pub narrowing: usize,
}

impl AdaptiveConfig {
    /// The words of each cluster.
    fn clusters(&self) -> Vec<Range<usize>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(a, &b)| a..b).collect()
    }

    /// How many of `tokens` fall into each cluster if the word of rank r is as frequent
    /// as 1/r (Zipf's law). The reference asks the data.
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

    /// Word ids `[tokens]` that fall into the clusters as [`shares`](Self::shares) says.
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

    /// Words and width of each table.
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

/// Tables of words that are both the input and the output layer.
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
    /// Their places, as many as the cluster's share.
    places: Tensor<1, Int>,
    /// The words of the cluster.
    words: Range<usize>,
    cluster: usize,
}

impl Adaptive {
    /// The shares of `tokens` by cluster, without those that no token falls into.
    pub fn split(&self, shares: &[usize], device: &Device) -> Vec<Share> {
        let mut next = 0;
        let mut start = 0;
        let mut split = Vec::with_capacity(shares.len());
        for (cluster, (&share, &end)) in shares.iter().zip(&self.ends).enumerate() {
            if share > 0 {
                split.push(Share {
                    places: Tensor::arange(next..next + share as i64, device),
                    words: start..end,
                    cluster,
                });
            }
            (next, start) = (next + share as i64, end);
        }
        split
    }

    /// `[tokens]` word ids, which `shares` divides, to `[tokens, d_model]`.
    pub fn embed(&self, words: Tensor<1, Int>, shares: &[Share]) -> Tensor<2> {
        let [tokens] = words.dims();
        if self.projections.is_empty() {
            return self.tables[0].weight.val().select(0, words);
        }
        let d_model = self.cluster_weight.val().dims()[1];
        let mut embedded = Tensor::zeros([tokens, d_model], &words.device());
        for share in shares {
            let own = words.clone().select(0, share.places.clone()) - share.words.start as i64;
            let vectors = self.tables[share.cluster].weight.val().select(0, own);
            let vectors = vectors.matmul(self.projections[share.cluster].val());
            let places = share.places.clone();
            embedded = embedded.select_assign(0, places, vectors, IndexingUpdateOp::Add);
        }
        embedded
    }

    /// The mean negative log-likelihood of the words `next: [tokens]`, which `shares`
    /// divides, after `hidden: [tokens, d_model]`.
    pub fn loss(&self, hidden: Tensor<2>, next: Tensor<1, Int>, shares: &[Share]) -> Tensor<1> {
        let (weight, bias) = self.output(0, 0..self.ends[0]);
        let weight = Tensor::cat(vec![weight, self.cluster_weight.val()], 0);
        let bias = Tensor::cat(vec![bias, self.cluster_bias.val()], 0);
        let projection = self.head_projection.as_ref().map(Param::val);
        let head = log_softmax(scores(hidden.clone(), weight, bias, projection), 1);
        let [_, columns] = head.dims();

        let likelihoods = shares.iter().map(|share| {
            let own = next.clone().select(0, share.places.clone()) - share.words.start as i64;
            let head = head.clone().select(0, share.places.clone());
            if share.cluster == 0 {
                return head.gather(1, own.unsqueeze_dim(1));
            }
            // The last columns of the head stand for the clusters, the first of them last.
            let chosen = head.narrow(1, columns - share.cluster, 1);
            let (weight, bias) = self.output(share.cluster, share.words.clone());
            let projection = self.projections.get(share.cluster).map(Param::val);
            let hidden = hidden.clone().select(0, share.places.clone());
            let within = log_softmax(scores(hidden, weight, bias, projection), 1);
            chosen + within.gather(1, own.unsqueeze_dim(1))
        });
        Tensor::cat(likelihoods.collect(), 0).mean().neg()
    }

    /// Weight and bias of the output layer for `words`, the words of `cluster`.
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

/// `hidden: [tokens, d_model]` against `weight: [words, width]`, after the transposed
/// `projection: [width, d_model]`.
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
    use crate::toy;

    /// Of the harmonic numbers of the cut-offs: H(20,000) / H(267,735) and so on.
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

    /// With one table and all words equally likely, every word's likelihood is that of
    /// its cluster's column among those of the head, by its share of the cluster.
    #[test]
    fn equal_scores_give_the_likelihood_by_hand() {
        let device = toy::flex();
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
