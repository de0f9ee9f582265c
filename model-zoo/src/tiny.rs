//! Tiny networks, of which any device trains a step within seconds.
//!
//! A tiny network has the code of a published one and smaller numbers. Its steps show on any
//! device that an estimate is right, where the published network is too large or too slow: VGG has
//! a tensor of 392 MiB at any image size, and a step of NASNet takes minutes on a software device.

use burn::tensor::Device;

use crate::networks;
use crate::{Defaults, Error, Input, Job, Model, Observer, Variant};

/// A network with the code of a published one and smaller numbers. Nothing about it is published.
#[derive(Clone, Debug)]
pub struct TinyModel {
    /// The name by which [`find_tiny`] knows it, for instance `vgg-mini`. The file of its network
    /// has its numbers.
    pub name: &'static str,
    /// The published network that has the same code.
    pub of: Variant,
    /// The defaults of its training step. Its sizes cannot be changed.
    pub defaults: Defaults,
}

/// An entry of [`TABLE`]; the optimizer is that of the published network.
struct Entry {
    name: &'static str,
    /// The name of the published network that has the same code.
    of: &'static str,
    /// Samples in a batch.
    batch: usize,
    input: Input,
}

macro_rules! table {
    ($($name:literal of $of:literal, batch $batch:literal: $($size:ident $value:expr),+;)+) => {
        /// All tiny networks.
        const TABLE: &[Entry] = &[
            $(Entry {
                name: $name,
                of: $of,
                batch: $batch,
                input: Input { $($size: Some($value),)+ ..Input::NONE },
            },)+
        ];
    };
}

table! {
    "llama-mini" of "llama-2-7b", batch 2: seq 8, vocab 50;
    "qwen2-mini" of "qwen2.5-0.5b", batch 2: seq 8, vocab 50;
    "qwen3-mini" of "qwen3-0.6b", batch 2: seq 8, vocab 50;
    "mistral-mini" of "mistral-7b-v0.3", batch 2: seq 8, vocab 50;
    "gemma-mini" of "gemma-2b", batch 2: seq 8, vocab 50;
    "gemma-2-mini" of "gemma-2-2b", batch 2: seq 8, vocab 50;
    "gemma-3-mini" of "gemma-3-270m", batch 2: seq 8, vocab 50;
    "phi-mini" of "phi-4-mini", batch 2: seq 8, vocab 50;
    "olmo2-mini" of "olmo-2-1b", batch 2: seq 8, vocab 50;
    "smollm3-mini" of "smollm3-3b", batch 2: seq 8, vocab 50;
    "modernbert-mini" of "modernbert-base", batch 2: seq 8, vocab 50, classes 2;
    "transformer-mini" of "transformer-base", batch 2: seq 5, src_seq 7, vocab 40;
    "convs2s-mini" of "convs2s-en-de", batch 2: seq 5, src_seq 7;
    "awd-lstm-mini" of "awd-lstm-ptb", batch 3: seq 5, vocab 30;
    "elmo-mini" of "elmo-bilm", batch 3: seq 5, vocab 30;
    "infersent-mini" of "infersent", batch 3: seq 4, classes 3;
    "transformer-xl-mini" of "transformer-xl-base", batch 3: seq 5;
    "xlm-mini" of "xlm-mt-en-fr", batch 2: seq 8, vocab 40;
    "mt-dnn-mini" of "mt-dnn-large", batch 2: seq 8, vocab 50;
    "convnext-mini" of "convnext-tiny", batch 4: image [32, 32], classes 10;
    "swin-mini" of "swin-tiny", batch 4: image [48, 60], classes 10;
    "vgg-mini" of "vgg-16", batch 4: image [32, 32], classes 10;
    "alexnet-mini" of "alexnet", batch 4: image [64, 64], classes 10;
    "unet-mini" of "unet", batch 2: image [188, 188], classes 2;
    "deeplabv3-mini" of "deeplabv3-r50", batch 2: image [32, 32], classes 5;
    "yolov3-mini" of "yolov3", batch 2: image [64, 96], classes 3;
    "pix2pixhd-mini" of "pix2pixhd", batch 1: image [64, 128];
    "nasnet-mini" of "nasnet-a-large", batch 4: image [67, 67], classes 10;
    "mask-rcnn-mini" of "mask-rcnn-r50-fpn", batch 2: image [64, 96], classes 3;
    "stylegan-mini" of "stylegan", batch 4: image [32, 32];
}

impl Entry {
    fn model(&self) -> TinyModel {
        let of = networks::named(self.of).expect("the table names variants of the zoo");
        let defaults = Defaults {
            input: self.input,
            batch: self.batch,
            optimizer: of.optimizer,
        };
        TinyModel {
            name: self.name,
            of,
            defaults,
        }
    }
}

/// All tiny networks.
pub fn tiny_models() -> Vec<TinyModel> {
    TABLE.iter().map(Entry::model).collect()
}

/// The names of all tiny networks.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|entry| entry.name)
}

/// The tiny network called `name`, if there is one. Capitals and separators do not matter.
pub fn find_tiny(name: &str) -> Option<TinyModel> {
    let wanted = networks::plain(name);
    let found = TABLE
        .iter()
        .find(|entry| networks::plain(entry.name) == wanted)?;
    Some(found.model())
}

impl TinyModel {
    /// The variant of the published network's file that has these numbers.
    fn variant(&self) -> Variant {
        Variant {
            name: self.name,
            ..self.of.clone()
        }
    }
}

impl Model for TinyModel {
    fn name(&self) -> &str {
        self.name
    }

    fn defaults(&self) -> Defaults {
        self.defaults
    }

    fn file(&self) -> Option<&'static str> {
        Some(self.of.file)
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        if let Some((size, own, got)) = self.defaults.input.first_difference(&job.input) {
            return Err(Error::Size {
                what: size.into(),
                must: format!("{own}, the only size that {} has", self.name),
                got,
            });
        }
        networks::check(&self.variant(), job)
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        networks::train(&self.variant(), job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OptimizerKind, Request, test_support};

    /// The loss of each falls; of two networks that are trained against each other, the first loss.
    #[test]
    fn every_tiny_model_trains() {
        for tiny in tiny_models() {
            let request = Request {
                optimizer: Some(OptimizerKind::Adam),
                ..Request::default()
            };
            let job = request.resolve(&tiny).unwrap();
            assert_eq!(tiny.check(&job), Ok(()));
            let device = Device::flex().autodiff();
            let mut losses = test_support::Losses::on(&device);
            // Recurrent networks learn little in a few steps.
            let steps = if job.input.image.is_some() { 6 } else { 16 };
            let Ok(()) = tiny.train(&job, &device, steps, &mut losses);
            println!("{}", tiny.name);
            losses.assert_fall(match tiny.name {
                "pix2pixhd-mini" | "stylegan-mini" => test_support::Kind { which: 0, of: 2 },
                _ => test_support::Kind::ONLY,
            });
        }
    }

    #[test]
    fn a_tiny_model_is_found_by_its_name() {
        assert_eq!(find_tiny("VGG_mini").unwrap().of.name, "vgg-16");
        assert!(find_tiny("vgg-16").is_none());
    }

    #[test]
    fn a_tiny_model_has_one_size() {
        for tiny in tiny_models() {
            let mut job = Request::default().resolve(&tiny).unwrap();
            let Some(image) = &mut job.input.image else {
                continue;
            };
            image[1] *= 2;
            let error = tiny.check(&job).unwrap_err().to_string();
            assert!(error.starts_with("image size must be"), "{error}");
            assert!(error.contains("the only size"), "{error}");
        }
    }
}
