//! Networks made so small that any device trains a step of them in seconds.
//!
//! Published widths can be too much for a device on which one only wants to see that a step comes
//! out as estimated: VGG has a tensor of 392 MiB at any image size, and NASNet takes a software
//! device minutes. A miniature is the same code with other numbers. The networks have one whose
//! published variants are too large or too slow for such a device, at the smallest size that they
//! have.

use burn::tensor::Device;

use crate::networks::{self, Network, alexnet, mask_rcnn, mt_dnn, nasnet, pix2pixhd, stylegan};
use crate::networks::{transformer_xl, vgg, xlm};
use crate::{Error, Input, Job, Model, Recipe, Variant, Watcher};

/// A network made small: nothing about it is published.
#[derive(Clone, Debug)]
pub struct Miniature {
    /// The name by which people ask for it, for instance `vgg-mini`.
    pub name: &'static str,
    /// The published network that it is like.
    pub of: Variant,
    /// How it is trained. It has one size: what it is made of fits no other.
    pub recipe: Recipe,
}

impl Miniature {
    /// The one called `name`, of the variant `of` its network, trained on `batch` samples of
    /// `input` with the published optimizer.
    pub(crate) fn new<N: Network>(
        name: &'static str,
        of: &str,
        batch: usize,
        input: Input,
    ) -> Self {
        let mut variants = N::variants().into_iter();
        let of = variants
            .find(|variant| variant.name == of)
            .expect("a variant of this network");
        let recipe = Recipe {
            input,
            batch,
            optimizer: of.optimizer,
        };
        Self { name, of, recipe }
    }
}

/// A network of which there is a miniature.
pub(crate) trait InMiniature: Network {
    /// What it is called, and how it is trained.
    fn miniature() -> Miniature;

    /// As [`Network::train`], of the miniature.
    ///
    /// # Errors
    ///
    /// What the watcher stopped with.
    fn train_miniature<W: Watcher>(
        job: &Job,
        device: &Device,
        steps: usize,
        watcher: &mut W,
    ) -> Result<(), W::Stop>;
}

macro_rules! miniatures {
    ($($file:ident :: $network:ident),+ $(,)?) => {
        /// Every miniature.
        pub fn miniatures() -> Vec<Miniature> {
            vec![$(<$file::$network as InMiniature>::miniature()),+]
        }

        fn train<W: Watcher>(
            miniature: &Miniature,
            job: &Job,
            device: &Device,
            steps: usize,
            watcher: &mut W,
        ) -> Result<(), W::Stop> {
            match miniature.of.file {
                $(stringify!($file) => {
                    <$file::$network as InMiniature>::train_miniature(job, device, steps, watcher)
                })+
                other => unreachable!("{other} has no miniature"),
            }
        }
    };
}

miniatures! {
    transformer_xl::TransformerXl,
    xlm::Xlm,
    mt_dnn::MtDnn,
    vgg::Vgg,
    alexnet::AlexNet,
    pix2pixhd::Pix2PixHd,
    nasnet::NasNet,
    mask_rcnn::MaskRcnn,
    stylegan::StyleGan,
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
        train(self, job, device, steps, watcher)
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
