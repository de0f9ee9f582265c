//! Training steps that several text networks share.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, Int, Tensor};

use super::tokens::{cross_entropy, words};
use crate::{Job, Watcher, supervised};

/// The word that fills a sentence up: fairseq's dictionaries have it second.
pub(crate) const PAD: usize = 1;

/// Label smoothing of translation: Vaswani et al. 2017, section 5.4, and fairseq's
/// published commands.
const SMOOTHING: f32 = 0.1;

/// Trains a language model: `scores` gives those of the next words, `[batch * seq,
/// vocab]`, after words `[batch, seq]`.
pub(crate) fn language_model<M: Module, W: Watcher>(
    module: M,
    job: &Job,
    device: &Device,
    steps: usize,
    watcher: &mut W,
    scores: impl Fn(&M, Tensor<2, Int>) -> Tensor<2>,
) -> Result<(), W::Stop> {
    let (batch, seq) = (job.batch, job.seq());
    supervised(
        module,
        job,
        device,
        steps,
        watcher,
        |device| (words(batch, seq, device), words(batch, seq, device)),
        |network, (words, next)| cross_entropy(scores(network, words), next.flatten(0, 1)),
    )
}

/// Trains a translation: `scores` gives those of the next words, `[batch * seq,
/// vocab]`, for a source `[batch, src_seq]` and the target so far `[batch, seq]`.
pub(crate) fn translation<M: Module, W: Watcher>(
    module: M,
    job: &Job,
    device: &Device,
    steps: usize,
    watcher: &mut W,
    scores: impl Fn(&M, Tensor<2, Int>, Tensor<2, Int>) -> Tensor<2>,
) -> Result<(), W::Stop> {
    let (batch, seq, src_seq) = (job.batch, job.seq(), job.src_seq());
    supervised(
        module,
        job,
        device,
        steps,
        watcher,
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
