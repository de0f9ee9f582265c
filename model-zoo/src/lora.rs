//! Low-rank adapters: a step trains small matrices beside the weights, which are frozen.
//!
//! Paper: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", arXiv
//! 2106.09685; with a quantized base Dettmers et al. 2023, "QLoRA: Efficient Finetuning of
//! Quantized LLMs", arXiv 2305.14314.
//!
//! The adapters are burn's own (`Module::apply_lora`, `apply_qlora`). burn adds their product
//! to the weight before the layer uses it, `x (W + s A B)`, where PEFT adds `s (x A) B` to the
//! output. So burn keeps the sum, which is as large as the weight and never quantized, for the
//! backward pass of each layer, and makes a gradient of that size, which it frees at once.

use burn::module::{self, Module, ParamGroup, QLora, Quantizer};
use burn::tensor::quantization::{Calibration, QuantValue};
use serde::{Deserialize, Serialize};

use crate::{Error, Precision, Setting};

/// The adapters' scale, which burn divides by the rank. It has no effect on memory.
const ALPHA: f64 = 16.0;

/// The format of the frozen weights beside the adapters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[derive(strum::Display, strum::EnumString, strum::VariantNames)]
pub enum BaseFormat {
    /// The number format of the job.
    #[default]
    #[serde(rename = "dense")]
    #[strum(serialize = "dense")]
    Dense,
    /// The projections in 8 bits, in burn's quantization scheme for the device.
    #[serde(rename = "8bit")]
    #[strum(serialize = "8bit")]
    Bits8,
    /// The projections in 4 bits, in burn's quantization scheme for the device.
    #[serde(rename = "4bit")]
    #[strum(serialize = "4bit")]
    Bits4,
}

/// The adapters of a [`Request`](crate::Request).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct LoraRequest {
    /// Columns of the first matrix and rows of the second.
    pub rank: usize,
    /// The projections that get adapters; the usual ones of the network if empty.
    pub targets: Vec<String>,
    /// The format of the frozen weights.
    pub base: BaseFormat,
}

/// The adapters of a [`Job`](crate::Job).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lora {
    /// Columns of the first matrix and rows of the second.
    pub rank: usize,
    /// The projections that get adapters.
    pub targets: Vec<&'static str>,
    /// The format of the frozen weights.
    pub base: BaseFormat,
    projections: &'static Projections,
}

impl Lora {
    /// The request that resolves to these adapters again.
    pub(crate) fn request(&self) -> LoraRequest {
        LoraRequest {
            rank: self.rank,
            targets: self.targets.iter().map(ToString::to_string).collect(),
            base: self.base,
        }
    }
}

/// The projections of a network that can have adapters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Projections {
    /// Their names in a request, and regular expressions for the ends of their weights' paths.
    named: &'static [(&'static str, &'static str)],
    /// Those that get adapters if a request names none: queries and values, which is the
    /// default of PEFT for BERT, GPT-2, Llama, Mistral, Qwen and Gemma
    /// (`TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`, PEFT 0.21.2, which has none for the
    /// others).
    usual: &'static [&'static str],
    /// A regular expression for the paths of the head. A step trains it in full beside the
    /// adapters, since its weights are new (PEFT's task type `SEQ_CLS`).
    head: Option<&'static str>,
}

/// The projections of a layer with one projection for queries, keys and values, as in GPT-2.
const FUSED: [(&str, &str); 4] = [
    ("qkv", r"attention\.qkv"),
    ("o", r"attention\.output"),
    ("up", r"mlp\.linear_inner"),
    ("down", r"mlp\.linear_outer"),
];

static BERT: Projections = Projections {
    named: &[
        ("q", r"mha\.query"),
        ("k", r"mha\.key"),
        ("v", r"mha\.value"),
        ("o", r"mha\.output"),
        ("up", r"pwff\.linear_inner"),
        ("down", r"pwff\.linear_outer"),
    ],
    usual: &["q", "v"],
    head: Some(r"^(classifier|word_classifier|span)\."),
};

static GPT2: Projections = Projections {
    named: &FUSED,
    usual: &["qkv"],
    head: None,
};

static VIT: Projections = Projections {
    named: &FUSED,
    usual: &["qkv"],
    head: Some(r"^head\."),
};

static MODERNBERT: Projections = Projections {
    named: &[
        ("qkv", r"attention\.qkv"),
        ("o", r"attention\.output"),
        ("up", r"mlp\.inner"),
        ("down", r"mlp\.outer"),
    ],
    usual: &["qkv"],
    head: Some(r"^(head|classifier)\."),
};

static LLAMA: Projections = Projections {
    named: &[
        ("q", r"attention\.query"),
        ("k", r"attention\.key"),
        ("v", r"attention\.value"),
        ("o", r"attention\.output"),
        ("gate", r"mlp\.gate"),
        ("up", r"mlp\.up"),
        ("down", r"mlp\.down"),
    ],
    usual: &["q", "v"],
    head: None,
};

static PHI3: Projections = Projections {
    named: &[
        ("qkv", r"attention\.qkv"),
        ("o", r"attention\.output"),
        ("gate_up", r"mlp\.gate_up"),
        ("down", r"mlp\.down"),
    ],
    usual: &["qkv"],
    head: None,
};

static TRANSFORMER: Projections = Projections {
    named: &[
        ("q", r"(mha|self_attn|cross_attn)\.query"),
        ("k", r"(mha|self_attn|cross_attn)\.key"),
        ("v", r"(mha|self_attn|cross_attn)\.value"),
        ("o", r"(mha|self_attn|cross_attn)\.output"),
        ("up", r"pwff\.linear_inner"),
        ("down", r"pwff\.linear_outer"),
    ],
    usual: &["q", "v"],
    head: None,
};

/// The projections of the networks in the file called `file`; `None` if the zoo knows no
/// adapters for them.
pub(crate) fn projections(file: &str) -> Option<&'static Projections> {
    match file {
        "bert" => Some(&BERT),
        "modernbert" => Some(&MODERNBERT),
        "gpt2" => Some(&GPT2),
        "llama" | "qwen2" | "qwen3" | "mistral" | "gemma" | "olmo2" | "smollm3" => Some(&LLAMA),
        "phi3" => Some(&PHI3),
        "transformer" => Some(&TRANSFORMER),
        "vit" => Some(&VIT),
        _ => None,
    }
}

impl LoraRequest {
    /// Fills the gaps for a network with `projections`.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if the network has no projection of a requested name.
    pub(crate) fn resolve(&self, projections: &'static Projections) -> Result<Lora, Error> {
        let named = projections.named.iter().map(|(name, _)| *name);
        let targets = match self.targets.as_slice() {
            [] => projections.usual.to_vec(),
            wanted => wanted
                .iter()
                .map(|wanted| {
                    named
                        .clone()
                        .find(|name| name == wanted)
                        .ok_or_else(|| Error::Size {
                            what: Setting::LoraTargets,
                            must: format!(
                                "some of {}",
                                named.clone().collect::<Vec<_>>().join(",")
                            ),
                            got: format!("{wanted:?}"),
                        })
                })
                .collect::<Result<_, _>>()?,
        };
        Ok(Lora {
            rank: self.rank,
            targets,
            base: self.base,
            projections,
        })
    }
}

impl Lora {
    /// `module` with its weights frozen and with adapters beside them, which have the number
    /// format of `precision`.
    pub(crate) fn adapt<M: Module>(&self, module: M, precision: Precision) -> M {
        let mut lora = module::Lora::new(self.rank, ALPHA)
            .set_param_group(self.weights(|name| self.targets.contains(&name)));
        let value = match self.base {
            BaseFormat::Dense => None,
            BaseFormat::Bits8 => Some(QuantValue::Q8S),
            BaseFormat::Bits4 => Some(QuantValue::Q4S),
        };
        let device = module.devices().into_iter().next();
        let adapted = match (value, device) {
            (Some(value), Some(device)) => {
                let scheme = device.settings().quantization.scheme.with_value(value);
                let mut quantizer = Quantizer::new(Calibration::MinMax, scheme);
                quantizer.set_param_group(self.weights(|_| true));
                // burn cannot derive the adapters' float type from a quantized weight.
                lora = lora.set_dtype(precision.float_type());
                module.apply_qlora(QLora::new(lora, quantizer))
            }
            _ => module.apply_lora(lora),
        };
        match self.projections.head {
            Some(head) => adapted.unfreeze_group(group([head.to_string()].into())),
            None => adapted,
        }
    }

    /// The weights of the projections for whose names `wanted` is true.
    fn weights(&self, wanted: impl Fn(&'static str) -> bool) -> ParamGroup {
        let named = self.projections.named.iter();
        let chosen = named.filter(|(name, _)| wanted(name));
        group(
            chosen
                .map(|(_, path)| format!(r"(^|\.){path}\.weight$"))
                .collect(),
        )
    }
}

fn group(patterns: Vec<String>) -> ParamGroup {
    ParamGroup::from_any_regexes(patterns).expect("valid regular expressions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, Request, test_support};

    fn request(targets: &[&str], base: BaseFormat) -> Request {
        Request {
            batch: Some(2),
            input: Input {
                seq: Some(8),
                ..Input::default()
            },
            lora: Some(LoraRequest {
                rank: 4,
                targets: targets.iter().map(|target| target.to_string()).collect(),
                base,
            }),
            ..Request::default()
        }
    }

    const TINY: &str = r#"{"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
        "vocab_size": 50}"#;

    #[test]
    fn adapters_alone_train() {
        use crate::{ConfigModel, Model};
        let tiny = ConfigModel::read("tiny", TINY).unwrap();
        for base in [BaseFormat::Dense, BaseFormat::Bits8] {
            let job = request(&["q", "v", "down"], base).resolve(&tiny).unwrap();
            let device = burn::tensor::Device::flex().autodiff();
            let mut losses = test_support::Losses::on(&device);
            let Ok(()) = tiny.train(&job, &device, 6, &mut losses);
            losses.assert_fall(test_support::Kind::ONLY);
        }
    }

    #[test]
    fn a_projection_that_is_not_there_is_refused() {
        let error = request(&["gate"], BaseFormat::Dense)
            .resolve(&crate::find("gpt2").unwrap())
            .unwrap_err();
        assert!(error.to_string().contains("qkv,o,up,down"), "{error}");
        let resnet = crate::find("resnet-50").unwrap();
        let lora = Request {
            lora: request(&[], BaseFormat::Dense).lora,
            ..Request::default()
        };
        assert!(matches!(
            lora.resolve(&resnet),
            Err(Error::NoAdapters { .. })
        ));
    }
}
