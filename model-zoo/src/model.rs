//! What can be trained.

use burn::tensor::Device;

use crate::{Error, Input, Job, OptimizerKind, Variant, Watcher, networks};

/// How a network is trained where a request does not say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Sizes of a sample; only the sizes that mean something for this network are `Some`,
    /// and only those can be changed by a request.
    pub input: Input,
    /// Samples in a batch, on one card.
    pub batch: usize,
    /// Optimizer.
    pub optimizer: OptimizerKind,
}

/// A network and its training step: a published one, one in miniature, or somebody's own.
pub trait Model {
    /// What people call it.
    fn name(&self) -> &str;

    /// How it is trained where a request does not say otherwise.
    fn recipe(&self) -> Recipe;

    /// The file of `src/networks/` that defines its layers; none if that is not known.
    fn file(&self) -> Option<&'static str>;

    /// The name by which [`find`](crate::find) has it; none if it is not of the zoo.
    fn published(&self) -> Option<&'static str> {
        None
    }

    /// Whether it can be built and run at the sizes of `job`.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] with what the size must be.
    fn check(&self, job: &Job) -> Result<(), Error>;

    /// Trains it on `device` for `steps` optimizer steps; 0 only builds it. The device is as
    /// [`Network::train`](crate::Network::train) says.
    ///
    /// # Errors
    ///
    /// What the watcher stopped with.
    fn train<W: Watcher>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        watcher: &mut W,
    ) -> Result<(), W::Stop>;
}

impl Model for Variant {
    fn name(&self) -> &str {
        self.name
    }

    fn recipe(&self) -> Recipe {
        Recipe {
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

    fn train<W: Watcher>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        watcher: &mut W,
    ) -> Result<(), W::Stop> {
        networks::train(self, job, device, steps, watcher)
    }
}
