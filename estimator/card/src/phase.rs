//! The stretches of a training step.

use serde::{Deserialize, Serialize};

/// A stretch of a training step.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// Modules and optimizers are made.
    Init,
    /// One batch is put on the device.
    Data,
    /// From the batch to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
    /// Parameters and optimizer state are brought up to date.
    Optimizer,
}
