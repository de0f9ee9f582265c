//! The interface through which a training step reports what it does.

use std::convert::Infallible;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::kind::Basic;

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The step makes the modules and optimizers. burn creates a parameter at its first use,
    /// so most parameters appear in the first forward pass.
    Init,
    /// The step puts one batch on the device.
    Data,
    /// The step computes the loss of the batch.
    Forward,
    /// The step computes the gradients of the loss.
    Backward,
    /// The optimizer updates its state and the parameters.
    Optimizer,
}

/// Receives reports from a training step while it runs.
///
/// The step makes the calls in the order of its work. A step with several networks (a
/// generator and a discriminator) reports each of them, and calls [`end`](Self::end) each time
/// that a phase ends. An observer ignores the reports that it has no method for.
pub trait Observer {
    /// The error with which the observer stops the step.
    type Stop;

    /// The current state of `module`; `name` is empty if the step trains only one module. A
    /// parameter that the step has not used yet does not exist, and the observer must not
    /// create it.
    fn module<M: Module>(&mut self, _name: &str, _module: &M) {}

    /// A copy of the module called `name` that the loop keeps and does not train.
    fn kept<M: Module>(&mut self, _name: &str, _module: &M) {}

    /// The gradients of the parameters of `module`.
    fn gradients<M: Module>(&mut self, _module: &M, _gradients: &GradientsParams) {}

    /// One tensor of the batch.
    fn input<const D: usize, K: Basic>(&mut self, _tensor: &Tensor<D, K>) {}

    /// The loss `[1]`, before the backward pass starts.
    fn loss(&mut self, _loss: &Tensor<1>) {}

    /// The end of `phase`.
    ///
    /// # Errors
    ///
    /// An error stops the step, which returns it at once.
    fn end(&mut self, phase: Phase) -> Result<(), Self::Stop>;

    /// The end of a whole step: the next one does the same once more.
    ///
    /// # Errors
    ///
    /// An error ends the training.
    fn step_ends(&mut self) -> Result<(), Self::Stop> {
        Ok(())
    }
}

/// Ignores all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopObserver;

impl Observer for NoopObserver {
    type Stop = Infallible;

    fn end(&mut self, _phase: Phase) -> Result<(), Infallible> {
        Ok(())
    }
}
