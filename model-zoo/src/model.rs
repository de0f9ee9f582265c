//! The interface of everything that can be trained.

use burn::tensor::Device;

use crate::{Error, Input, Job, Observer, OptimizerKind, Variant, networks};

/// The defaults of a model's training step, which a request can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Sizes of a sample. A request can change those that are `Some`.
    pub input: Input,
    /// Samples in a batch on one card.
    pub batch: usize,
    /// Optimizer.
    pub optimizer: OptimizerKind,
}

/// A network and its training step.
pub trait Model {
    /// Its name, as reports and errors show it.
    fn name(&self) -> &str;

    /// The defaults of its training step.
    fn defaults(&self) -> Defaults;

    /// The file of `src/networks/` that defines its layers; `None` if the zoo has no such file.
    fn file(&self) -> Option<&'static str>;

    /// The name by which [`find`](crate::find) knows it; `None` if it is not published.
    fn published(&self) -> Option<&'static str> {
        None
    }

    /// Checks that the network can be built and trained at the sizes of `job`.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] about a size that it cannot work with.
    fn check(&self, job: &Job) -> Result<(), Error>;

    /// Trains the network on `device` for `steps` optimizer steps; 0 only builds it. `device`
    /// is as [`Network::train`](crate::Network::train) says.
    ///
    /// # Errors
    ///
    /// The error of the observer, if it stops the step.
    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop>;
}

impl Model for Variant {
    fn name(&self) -> &str {
        self.name
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: self.input,
            batch: self.batch,
            optimizer: self.optimizer,
        }
    }

    fn file(&self) -> Option<&'static str> {
        Some(self.file)
    }

    fn published(&self) -> Option<&'static str> {
        Some(self.name)
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        networks::check(self, job)
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        networks::train(self, job, device, steps, observer)
    }
}
