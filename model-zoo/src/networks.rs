//! Which networks there are. Adding an architecture is its file and one line in [`zoo!`].

use burn::tensor::Device;

use crate::miniature::miniatures;
use crate::{Error, Job, Variant, Watcher};

/// One architecture: what every file of the zoo provides.
pub trait Network {
    /// Its published variants.
    fn variants() -> Vec<Variant>;

    /// Whether the network can be built and run at the sizes of `job`; most can at any.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] with what the size must be.
    fn check(_variant: &Variant, _job: &Job) -> Result<(), Error> {
        Ok(())
    }

    /// Regular expressions of the paths whose parameters the recipe itself freezes. A
    /// path begins with the name of the module if the step has several.
    fn frozen_paths(_variant: &Variant) -> &'static [&'static str] {
        &[]
    }

    /// Trains `variant` on `device` for `steps` optimizer steps, or rounds of them where
    /// the recipe goes from one loss to the next. A [miniature](crate::Miniature) is one that has
    /// a name of its own.
    ///
    /// The device is an autodiff device whose float type is already the one that
    /// `job.precision` asks for. What is in the batch does not matter to memory;
    /// its shapes do.
    ///
    /// # Errors
    ///
    /// What the watcher stopped with.
    fn train<W: Watcher>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        watcher: &mut W,
    ) -> Result<(), W::Stop>;
}

macro_rules! zoo {
    ($($file:ident :: $network:ident),+ $(,)?) => {
        $(pub(crate) mod $file;)+

        /// Every variant of the zoo, family by family.
        pub fn variants() -> Vec<Variant> {
            let mut all = Vec::new();
            $(all.extend(<$file::$network as Network>::variants());)+
            all
        }

        /// Whether `variant` can be built and run at the sizes of `job`.
        ///
        /// # Errors
        ///
        /// As [`Network::check`].
        pub fn check(variant: &Variant, job: &Job) -> Result<(), Error> {
            match variant.file {
                $(stringify!($file) => <$file::$network as Network>::check(variant, job),)+
                other => unreachable!("no file of the zoo is called {other}"),
            }
        }

        /// Regular expressions of the paths whose parameters the recipe of `variant`
        /// itself freezes.
        pub fn frozen_paths(variant: &Variant) -> &'static [&'static str] {
            match variant.file {
                $(stringify!($file) => <$file::$network as Network>::frozen_paths(variant),)+
                other => unreachable!("no file of the zoo is called {other}"),
            }
        }

        /// Trains `variant` on `device` for `steps` optimizer steps.
        ///
        /// # Errors
        ///
        /// As [`Network::train`].
        pub fn train<W: Watcher>(
            variant: &Variant,
            job: &Job,
            device: &Device,
            steps: usize,
            watcher: &mut W,
        ) -> Result<(), W::Stop> {
            match variant.file {
                $(stringify!($file) => {
                    <$file::$network as Network>::train(variant, job, device, steps, watcher)
                })+
                other => unreachable!("no file of the zoo is called {other}"),
            }
        }
    };
}

zoo! {
    resnet::ResNet,
    bert::Bert,
    transformer::Transformer,
    gpt2::Gpt2,
    llama::Llama,
    vit::Vit,
    awd_lstm::AwdLstm,
    elmo::Elmo,
    infersent::InferSent,
    tagger::Tagger,
    transformer_xl::TransformerXl,
    conv_s2s::ConvS2S,
    xlm::Xlm,
    mt_dnn::MtDnn,
    vgg::Vgg,
    alexnet::AlexNet,
    mobilenet_v2::MobileNetV2,
    efficientnet::EfficientNet,
    unet::UNet,
    dcgan::Dcgan,
    deeplab::DeepLab,
    pix2pixhd::Pix2PixHd,
    yolo_v3::YoloV3,
    nasnet::NasNet,
    mask_rcnn::MaskRcnn,
    stylegan::StyleGan,
}

pub use bert::{BertConfig, train_classifier as train_bert_classifier};

/// The variant called `name`, whatever its capitals and separators.
///
/// # Errors
///
/// [`Error::UnknownModel`] with the names nearest to it.
pub fn find(name: &str) -> Result<Variant, Error> {
    let all = variants();
    let wanted = plain(name);
    if let Some(found) = all.iter().find(|variant| plain(variant.name) == wanted) {
        return Ok(found.clone());
    }
    let small = miniatures().into_iter().map(|miniature| miniature.name);
    let names = all.iter().map(|variant| variant.name).chain(small);
    let mut nearest: Vec<_> = names
        .map(|name| (strsim::jaro_winkler(&plain(name), &wanted), name))
        .filter(|(similarity, _)| *similarity > 0.7)
        .collect();
    nearest.sort_by(|a, b| b.0.total_cmp(&a.0));
    Err(Error::UnknownModel {
        name: name.into(),
        nearest: nearest.into_iter().take(5).map(|(_, name)| name).collect(),
    })
}

/// `name` without what people leave out or type differently: `ResNet_50` is `resnet50`.
pub(crate) fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
    use burn::optim::GradientsParams;
    use burn::tensor::Tensor;
    use burn::tensor::kind::Basic;

    use super::*;
    use crate::toy;
    use crate::{Counts, Phase, Request};

    /// Counts what a step trains, and stops it before any parameter exists.
    struct Count {
        counts: Counts,
        /// A lazy parameter does not say whether it is frozen, so the variant does.
        frozen: Vec<ParamGroup>,
    }

    impl Watcher for Count {
        type Stop = ();

        fn module<M: Module>(&mut self, name: &str, module: &M) {
            struct Visit<'a> {
                count: &'a mut Count,
                path: Vec<String>,
            }
            impl ModuleVisitor for Visit<'_> {
                fn enter_module(&mut self, name: &str, _container: &str) {
                    self.path.push(name.into());
                }
                fn exit_module(&mut self, _name: &str, _container: &str) {
                    self.path.pop();
                }
                fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                    let elements = param.lazy_shape().num_elements() as u64;
                    let exists = param.is_initialized() && !param.val().is_require_grad();
                    let path = self.path.join(".");
                    let is_in = |group: &ParamGroup| group.matches(&param.id, Some(&path));
                    if exists {
                        // burn makes what is not trained, such as running statistics, at once.
                        self.count.counts.buffers += elements;
                    } else if !self.count.frozen.iter().any(is_in) {
                        self.count.counts.trainable += elements;
                        self.count.counts.tensors += 1;
                    }
                }
            }
            let path = match name {
                "" => Vec::new(),
                name => vec![name.to_string()],
            };
            module.visit(&mut Visit { count: self, path });
        }

        fn gradients<M: Module>(&mut self, _module: &M, _gradients: &GradientsParams) {}

        fn input<const D: usize, K: Basic>(&mut self, _tensor: &Tensor<D, K>) {}

        fn loss(&mut self, _loss: &Tensor<1>) {}

        fn end(&mut self, _phase: Phase) -> Result<(), ()> {
            Err(())
        }
    }

    /// Each variant has the counts that are published for it. Parameters are lazy,
    /// so not even the largest network takes memory here.
    #[test]
    fn counts_are_those_published() {
        let device = toy::flex().autodiff();
        for variant in variants() {
            let job = Request::default().resolve(&variant).unwrap();
            let mut count = Count {
                counts: Counts {
                    trainable: 0,
                    tensors: 0,
                    buffers: 0,
                },
                frozen: frozen_paths(&variant)
                    .iter()
                    .map(|path| ParamGroup::from_regex(path).unwrap())
                    .collect(),
            };
            assert!(train(&variant, &job, &device, 1, &mut count).is_err());
            assert_eq!(count.counts, variant.counts, "{}", variant.name);
        }
    }

    #[test]
    fn names_are_found_as_people_type_them() {
        assert_eq!(find("ResNet_50").unwrap().name, "resnet-50");
        let Err(Error::UnknownModel { nearest, .. }) = find("resnt-50") else {
            panic!("no model has this name");
        };
        assert!(nearest.contains(&"resnet-50"));
    }
}
