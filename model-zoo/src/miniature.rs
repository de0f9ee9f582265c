//! Networks made so small that any device trains a step of them in seconds.
//!
//! Published widths can be too much for a device on which one only wants to see that a step comes
//! out as estimated: VGG has a tensor of 392 MiB at any image size, and NASNet takes a software
//! device minutes. A miniature is the same code with other numbers. The networks have one whose
//! published variants are too large or too slow for such a device, at the smallest size that they
//! have.

use burn::tensor::Device;

use crate::networks;
use crate::{Error, Input, Job, Model, Recipe, Variant, Watcher};

/// A network made small: nothing about it is published.
#[derive(Clone, Debug)]
pub struct Miniature {
    /// The name by which people ask for it, for instance `vgg-mini`; in the file of its network
    /// stands what it is made of.
    pub name: &'static str,
    /// The published network that it is like.
    pub of: Variant,
    /// How it is trained. It has one size: what it is made of fits no other.
    pub recipe: Recipe,
}

impl Miniature {
    /// The one called `name`, of the published network called `of`, trained on `batch` samples of
    /// `input` with the published optimizer.
    fn new(name: &'static str, of: &str, batch: usize, input: Input) -> Self {
        let of = networks::find(of).expect("a variant of the zoo");
        let recipe = Recipe {
            input,
            batch,
            optimizer: of.optimizer,
        };
        Self { name, of, recipe }
    }
}

/// Every miniature.
pub fn miniatures() -> Vec<Miniature> {
    let input = Input::default();
    let image = |height, width| Input {
        image: Some([height, width]),
        ..input
    };
    let classes = |classes, image: Input| Input {
        classes: Some(classes),
        ..image
    };
    let seq = |seq| Input {
        seq: Some(seq),
        ..input
    };
    let vocab = |vocab, seq: Input| Input {
        vocab: Some(vocab),
        ..seq
    };
    let mini = Miniature::new;
    vec![
        mini("transformer-xl-mini", "transformer-xl-base", 3, seq(5)),
        mini("xlm-mini", "xlm-mt-en-fr", 2, vocab(40, seq(8))),
        mini("mt-dnn-mini", "mt-dnn-large", 2, vocab(50, seq(8))),
        mini("vgg-mini", "vgg-16", 4, classes(10, image(32, 32))),
        mini("alexnet-mini", "alexnet", 4, classes(10, image(64, 64))),
        mini("pix2pixhd-mini", "pix2pixhd", 1, image(64, 128)),
        mini(
            "nasnet-mini",
            "nasnet-a-large",
            4,
            classes(10, image(67, 67)),
        ),
        mini(
            "mask-rcnn-mini",
            "mask-rcnn-r50-fpn",
            2,
            classes(3, image(64, 96)),
        ),
        mini("stylegan-mini", "stylegan", 4, image(32, 32)),
    ]
}

/// The miniature called `name`, whatever its capitals and separators, if there is one.
pub fn find_miniature(name: &str) -> Option<Miniature> {
    let wanted = networks::plain(name);
    let mut all = miniatures().into_iter();
    all.find(|miniature| networks::plain(miniature.name) == wanted)
}

impl Model for Miniature {
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
        if let Some((what, own, got)) = self.recipe.input.first_difference(&job.input) {
            return Err(Error::Size {
                what,
                must: format!("{own}, the only size that {} has", self.name),
                got,
            });
        }
        networks::check(&self.of, job)
    }

    fn train<W: Watcher>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        watcher: &mut W,
    ) -> Result<(), W::Stop> {
        let variant = Variant {
            name: self.name,
            ..self.of.clone()
        };
        networks::train(&variant, job, device, steps, watcher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OptimizerKind, Request, toy};

    /// Its losses are finite; that they fall is shown beside each network.
    #[test]
    fn every_miniature_trains() {
        for miniature in miniatures() {
            let request = Request {
                optimizer: Some(OptimizerKind::Adam),
                ..Request::default()
            };
            let job = request.resolve(&miniature).unwrap();
            assert_eq!(miniature.check(&job), Ok(()));
            let device = Device::flex().autodiff();
            let mut losses = toy::Losses::on(&device);
            let Ok(()) = miniature.train(&job, &device, 2, &mut losses);
            losses.assert_finite();
        }
    }

    #[test]
    fn a_miniature_is_found_by_its_name() {
        assert_eq!(find_miniature("VGG_mini").unwrap().of.name, "vgg-16");
        assert!(find_miniature("vgg-16").is_none());
    }

    #[test]
    fn a_miniature_has_one_size() {
        for miniature in miniatures() {
            let mut job = Request::default().resolve(&miniature).unwrap();
            let Some(image) = &mut job.input.image else {
                continue;
            };
            image[1] *= 2;
            let error = miniature.check(&job).unwrap_err().to_string();
            assert!(error.starts_with("--image must be"), "{error}");
            assert!(error.contains("the only size"), "{error}");
        }
    }
}
