//! Training steps that several text networks share.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, Int, Tensor};

use super::cross_entropy;
use super::tokens::words;
use crate::{Job, Observer, supervised};

/// The id of the padding word in fairseq's dictionaries.
pub(crate) const PAD: usize = 1;

/// Label smoothing of translation (Vaswani et al. 2017, section 5.4, and fairseq's published
/// commands).
const SMOOTHING: f32 = 0.1;

/// Trains a language model: `scores` computes the scores `[batch * seq, vocab]` of the next words
/// from words `[batch, seq]`.
pub(crate) fn language_model<M: Module, O: Observer>(
    module: M,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
    scores: impl Fn(&M, Tensor<2, Int>) -> Tensor<2>,
) -> Result<(), O::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    supervised(
        module,
        job,
        device,
        steps,
        observer,
        |device| (words(batch, seq, device), words(batch, seq, device)),
        |network, (words, next)| cross_entropy(scores(network, words), next.flatten(0, 1)),
    )
}

/// Trains a translation: `scores` computes the scores `[batch * seq, vocab]` of the next words
/// from a source `[batch, src_seq]` and the previous words of the target `[batch, seq]`.
pub(crate) fn translation<M: Module, O: Observer>(
    module: M,
    job: &Job,
    device: &Device,
    steps: usize,
    observer: &mut O,
    scores: impl Fn(&M, Tensor<2, Int>, Tensor<2, Int>) -> Tensor<2>,
) -> Result<(), O::Stop> {
    let (batch, seq, src_seq) = (job.batch, job.seq(), job.src_seq());
    supervised(
        module,
        job,
        device,
        steps,
        observer,
        |device| {
            (
                words(batch, src_seq, device),
                words(batch, seq, device),
                words(batch, seq, device),
            )
        },
        |network, (source, previous, next)| {
            let scores = scores(network, source, previous);
            CrossEntropyLossConfig::new()
                .with_smoothing(Some(SMOOTHING))
                .with_pad_tokens(Some(vec![PAD]))
                .init(&scores.device())
                .forward(scores, next.flatten(0, 1))
        },
    )
}
