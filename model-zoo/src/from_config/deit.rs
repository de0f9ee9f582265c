//! `model_type` deit: transformers `DeiTConfig`. It is a Vision Transformer with the token of a teacher, which its class
//! for classification leaves out of the loss.

use burn::tensor::Device;

use super::Architecture;
use super::fields::Fields;
use super::names::{Names, rows};
use super::vit::OwnVit;
use crate::{Defaults, Error, Job, Observer};

/// A DeiT with the dimensions of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnDeit(OwnVit);

impl Architecture for OwnDeit {
    const MODEL_TYPE: &'static str = "deit";

    const FILE: &'static str = OwnVit::FILE;

    fn read(fields: &Fields) -> Result<Self, Error> {
        let classes = ["DeiTForImageClassification", "DeiTModel"];
        OwnVit::read_as(fields, &classes, true).map(Self)
    }

    fn defaults(&self) -> Defaults {
        self.0.defaults()
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        self.0.check(job)
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        self.0.train(job, device, steps, observer)
    }

    fn names() -> Names {
        let mut names = OwnVit::names_as("deit.");
        names
            .rows
            .extend(rows("distillation = deit.embeddings.distillation_token"));
        names
    }
}
