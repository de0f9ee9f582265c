//! Published networks and the training steps that practitioners run, as plain burn code.
//!
//! Invariant: nothing here knows that it is measured. A training step is a function of a
//! [`Device`](burn::tensor::Device), and reports to an [`Observer`] what it does and when a phase
//! ends.
//!
//! One architecture is one file and one line in `networks.rs`. The order within such a file:
//! configuration, module and `forward`, blocks, training step, published variants (names, paper,
//! reference implementation, counts, recipe and differences, see [`Variant`]), tests.

#![recursion_limit = "256"]

mod blocks;
mod classify;
mod error;
mod find;
mod from_config;
mod input;
mod job;
mod lora;
mod mixed;
mod model;
mod networks;
mod observer;
mod optimizer;
mod strategy;
#[cfg(test)]
mod test_support;
mod tiny;
mod trainer;
mod variant;

pub use error::{Error, Setting};
pub use find::find;
pub use from_config::{ConfigModel, PublishedTensor, PublishedTensors};
pub use input::{Input, InputSize, SizeValue};
pub use job::{Job, Precision, Request};
pub use lora::{BaseFormat, Lora, LoraRequest};
pub use model::{Defaults, Model};
pub use networks::{
    BertConfig, Network, check, frozen_paths, train, train_bert_classifier, variants,
};
pub use observer::{NoopObserver, Observer, Phase};
pub use optimizer::OptimizerKind;
pub use strategy::{Rank, Strategy};
pub use tiny::{TinyModel, find_tiny, tiny_models};
pub use trainer::{Batch, Trainer, supervised};
pub use variant::{Counts, Variant};
