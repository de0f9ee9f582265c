//! Adds hints to the errors of the libraries.

use estimator::{Meaning, SizeError};
use model_zoo::Setting;

use crate::input_options::SizeOption;
use crate::separator::{following, is_script};
use crate::user_error::{UserError, either};

impl From<anyhow::Error> for UserError {
    /// Adds its hint to every error of the libraries, wherever the error came from.
    fn from(error: anyhow::Error) -> Self {
        error
            .downcast::<Self>()
            .or_else(|error| error.downcast::<model_zoo::Error>().map(Self::from))
            .or_else(|error| error.downcast::<estimator::Error>().map(Self::from))
            .or_else(|error| error.downcast::<estimator::OutOfMemory>().map(Self::from))
            .or_else(|error| error.downcast::<estimator::UnknownGpu>().map(Self::from))
            .or_else(|error| error.downcast::<SizeError>().map(Self::from))
            .unwrap_or_else(|error| Self::new(format!("{error:#}")))
    }
}

/// The option that sets `setting`.
fn option_of(setting: Setting) -> String {
    match setting {
        Setting::Input(size) => format!("--{}", SizeOption::of(size).name),
        Setting::Batch => "--batch".into(),
        Setting::Tokens => "--tokens".into(),
        Setting::LoraTargets => "--lora-targets".into(),
    }
}

/// Where a network leads that fit-check cannot build.
pub(crate) const ANY_NETWORK: &str =
    "`fit-check run --gpu CARD -- python train.py` answers for any network in PyTorch";

/// The name in the zoo of timm's network `class`; where that is not the same, apart from separators, it
/// is in the table. The counts of both are those of torchvision.
fn same_network(class: &str) -> &str {
    match class {
        "vit_base_patch16_224" => "vit-b-16",
        other => other,
    }
}

/// The most parts of a model that a hint lists: files of weights can have any number.
const MAX_PARTS: usize = 20;

fn listed(parts: &[String]) -> String {
    match parts.len() {
        ..=MAX_PARTS => parts.join(", "),
        _ => format!("{}, …", parts[..MAX_PARTS].join(", ")),
    }
}

impl From<model_zoo::Error> for UserError {
    fn from(error: model_zoo::Error) -> Self {
        let text = error.to_string();
        match error {
            model_zoo::Error::UnknownModel { name, nearest } => {
                Self::new(text).hint(match nearest[..] {
                    _ if is_script(&name) => {
                        format!("`{}` follows a program", following(name))
                    }
                    [] => "`fit-check models` lists what there is".to_string(),
                    _ => format!(
                        "did you mean {}? `fit-check models` lists all",
                        either(&nearest)
                    ),
                })
            }
            model_zoo::Error::NotApplicable {
                what,
                applicable,
                model,
            } => {
                let options = applicable.into_iter().map(|size| option_of(size.into()));
                let options: Vec<_> = options.collect();
                let error = format!("`{}` does not apply to {model}", option_of(what));
                Self::new(error).hint(match options[..] {
                    [] => format!("{model} has no sizes of its own"),
                    _ => format!("what {model} has: {}", options.join(", ")),
                })
            }
            model_zoo::Error::NoAdapters { .. } => Self::new(text).hint(
                "--lora is for decoders as Llama and Qwen, BERT, GPT-2, Transformer and ViT; --freeze PREFIX is for all",
            ),
            model_zoo::Error::TwoNetworks => Self::new(text).hint("leave --strategy ddp out"),
            model_zoo::Error::NoParameter { path, model, parts } => {
                Self::new(format!("--freeze {path} names no parameter of {model}"))
                    .hint(format!("its parts are {}", listed(&parts)))
            }
            model_zoo::Error::Size { what, must, got } => {
                let option = option_of(what);
                Self::new(format!("{option} must be {must}, not {got}"))
                    .hint(format!("make {option} {must}"))
            }
            model_zoo::Error::NotJson(_) => {
                Self::new(text).hint("a config.json is one JSON object, as transformers writes it")
            }
            // To add it to the file of another library would make another network of it.
            model_zoo::Error::Field { field, .. } if field == "model_type" => Self::new(text).hint(
                format!("transformers writes it into each config.json; {ANY_NETWORK}"),
            ),
            model_zoo::Error::Field { field, must, .. } => {
                Self::new(text).hint(format!("make `{field}` {must}"))
            }
            model_zoo::Error::OtherLibrary { class, .. } => Self::new(text).hint(
                match model_zoo::find(same_network(&class)) {
                    Ok(variant) => format!(
                        "the zoo has this network: `fit-check estimate {}`, with --classes if they are not {}",
                        variant.name,
                        variant.input.classes.unwrap_or_default()
                    ),
                    Err(_) => format!("fit-check reads what transformers writes; {ANY_NETWORK}"),
                },
            ),
            model_zoo::Error::Unsupported { supported, .. } => Self::new(text).hint(format!(
                "supported is {}; {ANY_NETWORK}",
                either(&supported)
            )),
        }
    }
}

impl From<estimator::UnknownGpu> for UserError {
    fn from(error: estimator::UnknownGpu) -> Self {
        let hint = match &error.meaning {
            Meaning::Nearest(names) if names.is_empty() => {
                "`fit-check gpus` lists the cards; `--memory SIZE` needs none".into()
            }
            Meaning::Nearest(names) => {
                format!("did you mean {}? `fit-check gpus` lists all", either(names))
            }
            Meaning::OtherSize(gpu) => format!(
                "{} (--gpu {}) has {} GB; `--memory SIZE` answers for any size",
                gpu.name,
                gpu.alias(),
                gpu.marketed_gb
            ),
            Meaning::Slice => {
                "a part of a card (MIG, vGPU): `--memory SIZE` answers for its memory, which nvidia-smi shows".into()
            }
            Meaning::Device => "--gpu auto is the GPU of this machine".into(),
            Meaning::SharedMemory => {
                "its GPU shares the memory of the machine: `--memory SIZE` answers for the part that the job may have".into()
            }
        };
        Self::new(error.to_string()).hint(hint)
    }
}

impl From<SizeError> for UserError {
    fn from(error: SizeError) -> Self {
        let hint = match error {
            SizeError::NotASize(_) => {
                "a size is a number and a unit: 24GB is 24 * 10^9 bytes, 24GiB is 24 * 2^30"
            }
            SizeError::Bits(_) | SizeError::NoUnit(_) => {
                "write 24GB for 24 * 10^9 bytes, or 24GiB for 24 * 2^30"
            }
            SizeError::OutOfRange(_) => "at least one byte, and no more than 64 bits can count",
        };
        Self::new(error.to_string()).hint(hint)
    }
}

impl From<estimator::OutOfMemory> for UserError {
    fn from(refused: estimator::OutOfMemory) -> Self {
        estimator::Error::from(refused).into()
    }
}

impl From<estimator::Error> for UserError {
    fn from(error: estimator::Error) -> Self {
        let text = error.to_string();
        match error {
            estimator::Error::Precision(_) => {
                Self::new("a card on this runtime does not offer this number format").hint("--runtime cuda and vulkan offer fp16 and bf16, wgpu only fp16")
            }
            estimator::Error::NoKernel(_) => {
                Self::new(text).hint("--precision fp32 runs on every card; for 16 bits burn's kernels want tensor cores")
            }
            estimator::Error::NoLimit { .. } => {
                Self::new(text).hint("give the card a size with --gpu or --memory")
            }
            estimator::Error::NeverTuned => {
                Self::new(text).hint("add --tuning cold: a run in which kernels are tuned")
            }
            estimator::Error::Panicked(_) => Self::new(text).hint(
                "this is a fault in fit-check or in burn: please report it with the command that you typed",
            ),
            _ => Self::new(text),
        }
    }
}
