//! What can go wrong.

use simulated_card::upstream;

use crate::Bytes;
use crate::Phase;
use crate::record::Refusal;

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The program panicked.
    #[error("the training step panicked: {0}")]
    Panicked(String),
    /// burn has no kernel for a call of the program that such a card could launch.
    #[error("burn has no kernel for this step on such a card: {0}")]
    NoKernel(String),
    /// More cards than a process can have.
    #[error("no more than 65,535 simulated cards fit into one process")]
    TooManyCards,
    /// Every batch that was tried fits.
    #[error("a batch of {batch} still fits: there is no limit to find")]
    NoLimit {
        /// The largest that was tried.
        batch: u64,
    },
    /// Whoever asked wants no answer any more.
    #[error("interrupted")]
    Interrupted,
    /// burn refused the number format.
    #[error("the card does not offer this number format: {0}")]
    Precision(String),
    /// The card refused an allocation of a step that was to run to its end: on a card without a limit, a
    /// single buffer that is larger than a shader can bind.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// burn's tuner does not settle on kernels.
    #[error("burn tunes the kernels of this step anew in each run")]
    NeverTuned,
}

impl Error {
    /// Why a program that panicked with `message` did so.
    pub(crate) fn of_panic(message: String) -> Self {
        match upstream::unavailable_feature(&message) {
            Some(feature) => Self::NoKernel(feature.into()),
            None => Self::Panicked(message),
        }
    }
}

/// The allocation that a card refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "an allocation of {bytes} in the {phase} phase{} does not fit",
    layer.as_ref().map(|layer| format!(", layer {layer},")).unwrap_or_default()
)]
pub struct OutOfMemory {
    /// How large it is.
    pub bytes: Bytes,
    /// What was in use by then.
    pub live: Bytes,
    /// Why it was refused.
    pub refusal: Refusal,
    /// The phase that it happened in.
    pub phase: Phase,
    /// The layer that wanted it.
    pub layer: Option<String>,
    /// The kernel that was to write it.
    pub kernel: Option<String>,
}
