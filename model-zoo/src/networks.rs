//! The published networks. A new architecture is one file in `networks/` and one line in [`zoo!`].

use burn::tensor::Device;

use crate::{Error, Job, Observer, Variant};

/// One architecture. Every file of the zoo implements it once.
pub trait Network {
    /// Regular expressions for the names of its variants' output layers. Those that are
    /// convolutions or embedding tables are left out: Muon never trains them.
    const OUTPUT_LAYERS: &'static [&'static str] = &[];

    /// Its published variants. `file` is their [`Variant::file`].
    fn variants(file: &'static str) -> Vec<Variant>;

    /// Checks that the network can be built and trained at the sizes of `job`; most networks can
    /// at any size.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] about a size that it cannot work with.
    fn check(_variant: &Variant, _job: &Job) -> Result<(), Error> {
        Ok(())
    }

    /// Regular expressions for the paths of the parameters that the published recipe freezes. If
    /// the step has several modules, a path begins with the name of the module.
    fn frozen_paths(_variant: &Variant) -> &'static [&'static str] {
        &[]
    }

    /// Trains `variant` on `device` for `steps` optimizer steps, or rounds of them if the recipe
    /// alternates between losses. The name of a [tiny model](crate::TinyModel) is not among those
    /// of the variants; its file knows the name too.
    ///
    /// `device` is an autodiff device whose float type is that of `job.precision`. The values in
    /// a batch have no effect on memory, its shapes do.
    ///
    /// # Errors
    ///
    /// The error of the observer, if it stops the step.
    ///
    /// # Panics
    ///
    /// If the file knows no network of the variant's name.
    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop>;
}

macro_rules! zoo {
    ($($file:ident :: $network:ident),+ $(,)?) => {
        $(pub(crate) mod $file;)+

        /// All variants of the zoo, grouped by family.
        pub fn variants() -> Vec<Variant> {
            let mut all = Vec::new();
            $(all.extend(<$file::$network as Network>::variants(stringify!($file)));)+
            all
        }

        /// Checks that `variant` can be built and trained at the sizes of `job`.
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

        /// Regular expressions for the paths of the parameters that the published recipe of
        /// `variant` freezes.
        pub fn frozen_paths(variant: &Variant) -> &'static [&'static str] {
            match variant.file {
                $(stringify!($file) => <$file::$network as Network>::frozen_paths(variant),)+
                other => unreachable!("no file of the zoo is called {other}"),
            }
        }

        /// [`Network::OUTPUT_LAYERS`] of the networks in the file called `file`.
        pub(crate) fn output_layers(file: &str) -> &'static [&'static str] {
            match file {
                $(stringify!($file) => <$file::$network as Network>::OUTPUT_LAYERS,)+
                _ => &[],
            }
        }

        /// Trains `variant` on `device` for `steps` optimizer steps.
        ///
        /// # Errors
        ///
        /// As [`Network::train`].
        pub fn train<O: Observer>(
            variant: &Variant,
            job: &Job,
            device: &Device,
            steps: usize,
            observer: &mut O,
        ) -> Result<(), O::Stop> {
            match variant.file {
                $(stringify!($file) => {
                    <$file::$network as Network>::train(variant, job, device, steps, observer)
                })+
                other => unreachable!("no file of the zoo is called {other}"),
            }
        }
    };
}

// `cargo fmt` does not see these modules; the test `files_are_formatted` checks their files.
zoo! {
    resnet::ResNet,
    bert::Bert,
    modernbert::ModernBert,
    transformer::Transformer,
    gpt2::Gpt2,
    llama::Llama,
    qwen2::Qwen2,
    qwen3::Qwen3,
    mistral::Mistral,
    gemma::Gemma,
    phi3::Phi3,
    olmo2::Olmo2,
    smollm3::SmolLm3,
    vit::Vit,
    convnext::ConvNext,
    swin::Swin,
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
pub(crate) fn named(name: &str) -> Option<Variant> {
    let wanted = plain(name);
    variants()
        .into_iter()
        .find(|variant| plain(variant.name) == wanted)
}

/// `name` in lower case and without separators: `ResNet_50` is `resnet50`.
pub(crate) fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::path::Path;
    use std::process::Command;

    use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
    use burn::tensor::Tensor;

    use super::*;
    use crate::find;
    use crate::test_support;
    use crate::{Counts, Model, Phase, Request, tiny_models};

    /// Counts the parameters of a step, and stops it before any of them exists.
    struct Count {
        counts: Counts,
        /// The parameters that the recipe freezes; a lazy parameter does not know that it is.
        frozen: Vec<ParamGroup>,
    }

    impl Count {
        /// The counts of the step of `model`, whose recipe freezes the paths `frozen`.
        fn of(model: &impl Model, frozen: &[&str]) -> Counts {
            let mut count = Self {
                counts: Counts {
                    trainable: 0,
                    tensors: 0,
                    buffers: 0,
                },
                frozen: frozen
                    .iter()
                    .map(|path| ParamGroup::from_regex(path).unwrap())
                    .collect(),
            };
            let job = Request::default().resolve(model).unwrap();
            let device = test_support::flex().autodiff();
            assert!(model.train(&job, &device, 1, &mut count).is_err());
            count.counts
        }
    }

    impl Observer for Count {
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
                        // burn creates running statistics and the like at once.
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

        fn end(&mut self, _phase: Phase) -> Result<(), ()> {
            Err(())
        }
    }

    /// Each variant has its published counts. Parameters are lazy, so that not even the largest
    /// network needs memory here.
    #[test]
    fn counts_are_those_published() {
        for variant in variants() {
            let counts = Count::of(&variant, frozen_paths(&variant));
            assert_eq!(counts, variant.counts, "{}", variant.name);
        }
    }

    /// A file that does not know the name of a tiny model would train the published network.
    #[test]
    fn tiny_models_are_not_the_published_ones() {
        for tiny in tiny_models() {
            let counts = Count::of(&tiny, frozen_paths(&tiny.of));
            assert!(counts.trainable > 0, "{}", tiny.name);
            let published = tiny.of.counts.trainable;
            assert!(counts.trainable < published / 100, "{}", tiny.name);
        }
    }

    /// As `cargo fmt --check`, for the files that [`zoo!`] hides from it. To format them, run
    /// `rustfmt --edition 2024 model-zoo/src/networks/*.rs`.
    #[test]
    fn files_are_formatted() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/networks");
        let files = std::fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == "rs"));
        let mut rustfmt = Command::new("rustfmt");
        rustfmt.args(["--check", "--edition", "2024"]).args(files);
        let output = match rustfmt.output() {
            // A toolchain without rustfmt can run the tests all the same.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            output => output.unwrap(),
        };
        let difference = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{difference}");
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
