//! The errors of this crate.

use std::any::Any;

use recording::{Analysis, Bytes, Failure, Phase, Recording, Refusal};
use serde::{Deserialize, Serialize};
use simulated_card::upstream;

use crate::run_kind::RunKind;

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum Error {
    /// The program panicked.
    #[error("the training step panicked: {0}")]
    Panicked(String),
    /// burn has no kernel for a call of the program that such a card could launch.
    #[error("burn has no kernel for this step on such a card: {0}")]
    NoKernel(String),
    /// The process has no index left for another card.
    #[error("no more than 65,535 simulated cards fit into one process")]
    TooManyCards,
    /// Every batch that was tried fits.
    #[error("a batch of {batch} still fits: there is no limit to find")]
    NoLimit {
        /// The largest batch that was tried.
        batch: u64,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// burn refused the number format.
    #[error("the card does not offer this number format: {0}")]
    Precision(String),
    /// The card refused an allocation of a step that should run to its end; on a card with unlimited memory,
    /// this is a single buffer that is larger than a shader can bind.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// burn's tuner does not settle on kernels.
    #[error("burn tunes the kernels of this step anew in each run")]
    NeverTuned,
    /// A caller that simulates in a process of its own had no answer from it.
    #[error("the process that simulates the step {0}")]
    Process(String),
}

impl Error {
    /// `result`, or `None` if burn has no kernel for that program. With fewer samples it may have one.
    pub(crate) fn if_kernels<T>(result: Result<T, Self>) -> Result<Option<T>, Self> {
        match result {
            Err(Self::NoKernel(_)) => Ok(None),
            result => result.map(Some),
        }
    }

    /// The error of a program that panicked with `message`.
    pub(crate) fn of_panic(message: String) -> Self {
        match upstream::unavailable_feature(&message) {
            Some(feature) => Self::NoKernel(feature.into()),
            None => Self::Panicked(message),
        }
    }
}

/// The message of a panic, from its payload; none if the payload is no text.
pub fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

/// What is said of an allocation that is too large for one.
fn too_large(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Full => String::new(),
        Refusal::TooLarge { largest } => {
            format!(": it is too large for one, of which the runtime allows {largest} on this card")
        }
    }
}

/// The allocation that a card refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error(
    "an allocation of {bytes} in the {phase} phase{} does not fit{run}{}",
    layer.as_ref().map(|layer| format!(", layer {layer},")).unwrap_or_default(),
    too_large(refusal)
)]
pub struct OutOfMemory {
    /// The size of the allocation.
    pub bytes: Bytes,
    /// Bytes in use at that time.
    pub live: Bytes,
    /// Why the card refused it.
    pub refusal: Refusal,
    /// The phase in which it happened.
    pub phase: Phase,
    /// The layer that needed it, if known.
    pub layer: Option<String>,
    /// The run in which the card refused it.
    pub run: RunKind,
}

impl OutOfMemory {
    /// The allocation of `failure`, which is the failure of `recording`, a run of the kind `run`.
    pub(crate) fn of(
        failure: &Failure,
        recording: &Recording,
        analysis: &Analysis,
        run: RunKind,
    ) -> Self {
        let bytes = recording.buffer(failure.buffer).bytes;
        let born = analysis.lifetimes.get(failure.buffer).born;
        let mark = recording.marks.get(recording.marks_before(born));
        Self {
            bytes,
            live: analysis.timeline.live(born).saturating_sub(bytes),
            refusal: failure.refusal,
            phase: mark.map_or(Phase::Init, |mark| mark.phase),
            layer: analysis.active_op(recording, born).layer,
            run,
        }
    }
}
