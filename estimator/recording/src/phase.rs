//! The phases of a training step.

use serde::{Deserialize, Serialize};

/// A phase of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::Display)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// The program creates modules and optimizers.
    Init,
    /// The program puts one batch on the device.
    Data,
    /// The forward pass, from the batch to the loss.
    Forward,
    /// The backward pass, from the loss to the gradients.
    Backward,
    /// The optimizer updates parameters and optimizer state.
    Optimizer,
}

/// A phase of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseOfStep {
    /// The phase.
    pub phase: Phase,
    /// Optimizer steps completed before it.
    pub step: usize,
}
