//! Tiny networks, of which any device trains a step within seconds.
//!
//! A tiny network has the code of a published one and smaller numbers. Its steps show on any
//! device that an estimate is right, where the published network is too large or too slow: VGG has
//! a tensor of 392 MiB at any image size, and a step of NASNet takes minutes on a software device.

use burn::tensor::Device;

use crate::networks;
use crate::{Error, Input, Job, Model, Observer, Recipe, Variant};

/// A network with the code of a published one and smaller numbers. Nothing about it is published.
#[derive(Clone, Debug)]
pub struct TinyModel {
    /// The name by which [`find_tiny`] knows it, for instance `vgg-mini`. The file of its network
    /// has its numbers.
    pub name: &'static str,
    /// The published network that has the same code.
    pub of: Variant,
    /// The defaults of its training step. Its sizes cannot be changed.
    pub recipe: Recipe,
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

const NO_SIZES: Input = Input {
    image: None,
    seq: None,
    src_seq: None,
    classes: None,
    vocab: None,
};

/// All tiny networks.
const TABLE: &[Entry] = &[
    Entry {
        name: "transformer-mini",
        of: "transformer-base",
        batch: 2,
        input: Input {
            seq: Some(5),
            src_seq: Some(7),
            vocab: Some(40),
            ..NO_SIZES
        },
    },
    Entry {
        name: "convs2s-mini",
        of: "convs2s-en-de",
        batch: 2,
        input: Input {
            seq: Some(5),
            src_seq: Some(7),
            ..NO_SIZES
        },
    },
    Entry {
        name: "awd-lstm-mini",
        of: "awd-lstm-ptb",
        batch: 3,
        input: Input {
            seq: Some(5),
            vocab: Some(30),
            ..NO_SIZES
        },
    },
    Entry {
        name: "elmo-mini",
        of: "elmo-bilm",
        batch: 3,
        input: Input {
            seq: Some(5),
            vocab: Some(30),
            ..NO_SIZES
        },
    },
    Entry {
        name: "infersent-mini",
        of: "infersent",
        batch: 3,
        input: Input {
            seq: Some(4),
            classes: Some(3),
            ..NO_SIZES
        },
    },
    Entry {
        name: "transformer-xl-mini",
        of: "transformer-xl-base",
        batch: 3,
        input: Input {
            seq: Some(5),
            ..NO_SIZES
        },
    },
    Entry {
        name: "xlm-mini",
        of: "xlm-mt-en-fr",
        batch: 2,
        input: Input {
            seq: Some(8),
            vocab: Some(40),
            ..NO_SIZES
        },
    },
    Entry {
        name: "mt-dnn-mini",
        of: "mt-dnn-large",
        batch: 2,
        input: Input {
            seq: Some(8),
            vocab: Some(50),
            ..NO_SIZES
        },
    },
    Entry {
        name: "vgg-mini",
        of: "vgg-16",
        batch: 4,
        input: Input {
            image: Some([32, 32]),
            classes: Some(10),
            ..NO_SIZES
        },
    },
    Entry {
        name: "alexnet-mini",
        of: "alexnet",
        batch: 4,
        input: Input {
            image: Some([64, 64]),
            classes: Some(10),
            ..NO_SIZES
        },
    },
    Entry {
        name: "unet-mini",
        of: "unet",
        batch: 2,
        input: Input {
            image: Some([188, 188]),
            classes: Some(2),
            ..NO_SIZES
        },
    },
    Entry {
        name: "deeplabv3-mini",
        of: "deeplabv3-r50",
        batch: 2,
        input: Input {
            image: Some([32, 32]),
            classes: Some(5),
            ..NO_SIZES
        },
    },
    Entry {
        name: "yolov3-mini",
        of: "yolov3",
        batch: 2,
        input: Input {
            image: Some([64, 96]),
            classes: Some(3),
            ..NO_SIZES
        },
    },
    Entry {
        name: "pix2pixhd-mini",
        of: "pix2pixhd",
        batch: 1,
        input: Input {
            image: Some([64, 128]),
            ..NO_SIZES
        },
    },
    Entry {
        name: "nasnet-mini",
        of: "nasnet-a-large",
        batch: 4,
        input: Input {
            image: Some([67, 67]),
            classes: Some(10),
            ..NO_SIZES
        },
    },
    Entry {
        name: "mask-rcnn-mini",
        of: "mask-rcnn-r50-fpn",
        batch: 2,
        input: Input {
            image: Some([64, 96]),
            classes: Some(3),
            ..NO_SIZES
        },
    },
    Entry {
        name: "stylegan-mini",
        of: "stylegan",
        batch: 4,
        input: Input {
            image: Some([32, 32]),
            ..NO_SIZES
        },
    },
];

impl Entry {
    fn model(&self) -> TinyModel {
        let of = networks::named(self.of).expect("the table names variants of the zoo");
        let recipe = Recipe {
            input: self.input,
            batch: self.batch,
            optimizer: of.optimizer,
        };
        TinyModel {
            name: self.name,
            of,
            recipe,
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

impl Model for TinyModel {
    fn name(&self) -> &str {
        self.name
    }

    fn recipe(&self) -> Recipe {
        self.recipe
    }

    fn file(&self) -> Option<&'static str> {
        Some(self.of.file)
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        if let Some((size, own, got)) = self.recipe.input.first_difference(&job.input) {
            return Err(Error::Size {
                what: size.into(),
                must: format!("{own}, the only size that {} has", self.name),
                got,
            });
        }
        networks::check(&self.of, job)
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        let variant = Variant {
            name: self.name,
            ..self.of.clone()
        };
        networks::train(&variant, job, device, steps, observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OptimizerKind, Request, test_support};

    /// The losses are finite; the tests of each network show that they fall.
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
            let Ok(()) = tiny.train(&job, &device, 2, &mut losses);
            losses.assert_finite();
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
