//! Published networks and the training steps that practitioners run, as plain burn code.
//!
//! Invariant: nothing here knows that it is being measured. A training step is a
//! function over a [`Device`](burn::tensor::Device); whoever wants to know what it
//! does passes a [`Watcher`] and is told where each phase ends.
//!
//! One architecture is one file and one line in `networks.rs`. The order within such
//! a file: header (paper, reference implementation, differences), configuration,
//! module and `forward`, blocks, training step, tests.

#![recursion_limit = "256"]

mod blocks;
mod classify;
mod configured;
mod error;
mod job;
mod lora;
mod miniature;
mod mixed;
mod model;
mod networks;
#[cfg(test)]
mod toy;
mod trainee;
mod variant;
mod watcher;
mod weights;

pub use configured::{Configured, PublishedTensor, PublishedTensors, published_tensors};
pub use error::Error;
pub use job::{Input, Job, OptimizerKind, Precision, Request};
pub use lora::{BaseFormat, Lora, LoraRequest};
pub use miniature::{Miniature, find_miniature, miniatures};
pub use model::{Model, Recipe};
pub use networks::{
    BertConfig, Network, check, find, frozen_paths, train, train_bert_classifier, variants,
};
pub use trainee::{Batch, Trainee, frozen, supervised};
pub use variant::{Counts, Variant};
pub use watcher::{Phase, Unwatched, Watcher};
pub use weights::{WeightTensor, Weights};
