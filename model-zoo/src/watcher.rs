//! What a training step tells whoever follows it.

use std::convert::Infallible;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::kind::Basic;
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
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// The modules and optimizers are made. burn creates a parameter when it is
    /// first used, so most of them appear in the first forward pass.
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

/// Follows a training step as it runs.
///
/// The calls come in the order in which things happen. A step with several
/// networks (a generator and a discriminator) reports each of them, and ends a
/// phase as often as it passes through it.
pub trait Watcher {
    /// Why the watcher wants the step to stop.
    type Stop;

    /// `module`, as it is now; `name` is empty if the step trains only one. A
    /// parameter that was never used does not exist yet: looking must not create it.
    fn module<M: Module>(&mut self, name: &str, module: &M);

    /// The gradients that belong to `module`.
    fn gradients<M: Module>(&mut self, module: &M, gradients: &GradientsParams);

    /// A tensor of the batch.
    fn input<const D: usize, K: Basic>(&mut self, tensor: &Tensor<D, K>);

    /// The loss, before the backward pass starts from it.
    fn loss(&mut self, loss: &Tensor<1>);

    /// `phase` ends here.
    ///
    /// # Errors
    ///
    /// The watcher has seen enough; the step returns this at once.
    fn end(&mut self, phase: Phase) -> Result<(), Self::Stop>;
}

/// Watches nothing: the step just runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watcher for Unwatched {
    type Stop = Infallible;

    fn module<M: Module>(&mut self, _name: &str, _module: &M) {}

    fn gradients<M: Module>(&mut self, _module: &M, _gradients: &GradientsParams) {}

    fn input<const D: usize, K: Basic>(&mut self, _tensor: &Tensor<D, K>) {}

    fn loss(&mut self, _loss: &Tensor<1>) {}

    fn end(&mut self, _phase: Phase) -> Result<(), Infallible> {
        Ok(())
    }
}
