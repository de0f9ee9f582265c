//! Word ids, position ids and scores of words.

use burn::nn::Embedding;
use burn::tensor::{Device, Int, Tensor};

use crate::{Error, InputSize};

/// Word ids `[batch, seq]`, all of them the first word.
pub(crate) fn words(batch: usize, seq: usize, device: &Device) -> Tensor<2, Int> {
    Tensor::zeros([batch, seq], device)
}

/// Position ids `[1, seq]`, from zero.
pub(crate) fn positions(seq: usize, device: &Device) -> Tensor<2, Int> {
    Tensor::arange(0..seq as i64, device).unsqueeze()
}

/// Scores `[tokens, vocab]` of `hidden: [tokens, d_model]`: the table of `embedding` is the
/// output layer too.
pub(crate) fn tied_scores(hidden: Tensor<2>, embedding: &Embedding) -> Tensor<2> {
    hidden.matmul(embedding.weight.val().transpose())
}

/// Checks that a sequence of `got` tokens has no more than the `limit` positions of a network.
///
/// # Errors
///
/// [`Error::Size`] about `size` if it has more.
pub(crate) fn check_positions(size: InputSize, got: usize, limit: usize) -> Result<(), Error> {
    check_at_most(size, got, limit, "the positions that this network has")
}

/// Checks that a sequence of `got` tokens has at most `limit`; `why` says what the limit is.
///
/// # Errors
///
/// [`Error::Size`] about `size` if it has more.
pub(crate) fn check_at_most(
    size: InputSize,
    got: usize,
    limit: usize,
    why: &str,
) -> Result<(), Error> {
    if got <= limit {
        return Ok(());
    }
    Err(Error::Size {
        what: size.into(),
        must: format!("at most {limit}, {why}"),
        got: got.to_string(),
    })
}
