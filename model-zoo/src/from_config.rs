//! Networks of the zoo with the dimensions of a Hugging Face `config.json`. A new `model_type`
//! is one file here and one line in [`from_config!`].

mod bert;
mod convnext;
mod decoder;
mod deit;
mod distilbert;
mod encoder;
mod fields;
mod gemma;
mod gemma2;
mod gemma3_text;
mod gpt2;
mod gpt_oss;
mod llama;
mod mistral;
mod modernbert;
mod names;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod resnet;
mod roberta;
mod smollm3;
mod swin;
mod vit;
mod xlm_roberta;

use burn::tensor::Device;

use self::fields::Fields;
use self::names::Names;
pub use self::names::{PublishedTensor, PublishedTensors};
use crate::{Defaults, Error, Job, Model, Observer, Precision};

/// One `model_type`. Every file here implements it once.
trait Architecture: Sized {
    /// The value of `model_type` in `config.json`.
    const MODEL_TYPE: &'static str;

    /// The file of the zoo with the network.
    const FILE: &'static str = Self::MODEL_TYPE;

    /// The network with the dimensions that `fields` give.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if a field has a value that it must not have, [`Error::Unsupported`] if
    /// the zoo does not have such a network.
    fn read(fields: &Fields) -> Result<Self, Error>;

    /// As [`Model::defaults`].
    fn defaults(&self) -> Defaults;

    /// The positions of a language model, which limit the length of a sequence or say for how long
    /// ones it was made.
    fn positions(&self) -> Option<usize> {
        None
    }

    /// What somebody who trains the network should know of how it is simulated, a sentence.
    fn note(&self) -> Option<&'static str> {
        None
    }

    /// As [`Model::check`].
    ///
    /// # Errors
    ///
    /// [`Error::Size`] about a size that the network cannot work with.
    fn check(&self, job: &Job) -> Result<(), Error>;

    /// As [`Model::train`].
    ///
    /// # Errors
    ///
    /// The error of the observer, if it stops the step.
    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop>;

    /// The names of the parameters in transformers.
    fn names() -> Names;
}

macro_rules! from_config {
    ($($file:ident :: $network:ident),+ $(,)?) => {
        #[derive(Clone, Debug)]
        enum Kind {
            $($network($file::$network),)+
        }

        /// Every supported `model_type`.
        fn supported() -> Vec<String> {
            vec![$(<$file::$network as Architecture>::MODEL_TYPE.into()),+]
        }

        impl Kind {
            fn read(fields: &Fields) -> Result<Self, Error> {
                match fields.text("model_type", "")? {
                    $(<$file::$network as Architecture>::MODEL_TYPE => {
                        Ok(Self::$network(Architecture::read(fields)?))
                    })+
                    "" => Err(Error::Field {
                        field: "model_type".into(),
                        must: format!("one of {}", supported().join(", ")),
                        got: "absent".into(),
                    }),
                    _ => fields.choice("model_type", "", &[]).map_err(|error| match error {
                        Error::Unsupported { what, .. } => Error::Unsupported {
                            what,
                            supported: supported(),
                        },
                        other => other,
                    }),
                }
            }
        }

        impl ConfigModel {
            /// As [`Architecture::names`].
            fn names(&self) -> Names {
                match &self.kind {
                    $(Kind::$network(_) => <$file::$network as Architecture>::names(),)+
                }
            }

            /// As [`Architecture::note`].
            fn note(&self) -> Option<&'static str> {
                match &self.kind {
                    $(Kind::$network(network) => network.note(),)+
                }
            }

            /// As [`Architecture::positions`].
            fn positions(&self) -> Option<usize> {
                match &self.kind {
                    $(Kind::$network(network) => network.positions(),)+
                }
            }
        }

        impl Model for ConfigModel {
            fn name(&self) -> &str {
                &self.name
            }

            fn defaults(&self) -> Defaults {
                match &self.kind {
                    $(Kind::$network(network) => network.defaults(),)+
                }
            }

            fn file(&self) -> Option<&'static str> {
                Some(match self.kind {
                    $(Kind::$network(_) => <$file::$network as Architecture>::FILE,)+
                })
            }

            fn check(&self, job: &Job) -> Result<(), Error> {
                match &self.kind {
                    $(Kind::$network(network) => network.check(job),)+
                }
            }

            fn train<O: Observer>(
                &self,
                job: &Job,
                device: &Device,
                steps: usize,
                observer: &mut O,
            ) -> Result<(), O::Stop> {
                match &self.kind {
                    $(Kind::$network(network) => network.train(job, device, steps, observer),)+
                }
            }
        }
    };
}

from_config! {
    bert::OwnBert,
    roberta::OwnRoberta,
    xlm_roberta::OwnXlmRoberta,
    distilbert::OwnDistilBert,
    modernbert::OwnModernBert,
    gpt2::OwnGpt2,
    llama::OwnLlama,
    qwen2::OwnQwen2,
    qwen3::OwnQwen3,
    qwen3_moe::OwnQwen3Moe,
    mistral::OwnMistral,
    gemma::OwnGemma,
    gemma2::OwnGemma2,
    gemma3_text::OwnGemma3,
    phi3::OwnPhi3,
    olmo2::OwnOlmo2,
    smollm3::OwnSmolLm3,
    gpt_oss::OwnGptOss,
    vit::OwnVit,
    deit::OwnDeit,
    resnet::OwnResNet,
    convnext::OwnConvNext,
    swin::OwnSwin,
}

/// A network of the zoo with the dimensions of a `config.json`.
///
/// # Examples
///
/// ```
/// use model_zoo::{ConfigModel, Model};
///
/// let tiny = ConfigModel::read("tiny", r#"{"model_type": "gpt2", "n_embd": 64, "n_head": 4}"#)?;
/// assert_eq!(tiny.defaults().input.seq, Some(1024));
/// # Ok::<(), model_zoo::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConfigModel {
    name: String,
    /// The file.
    text: String,
    kind: Kind,
    /// The number format in which the file says that the weights are (`dtype`).
    dtype: Option<String>,
    /// How the file says that the weights are quantized (`quantization_config`).
    quantized: Option<String>,
    /// Whether the file describes more: it is of a model of text and images.
    is_part: bool,
    /// Fields that decide the size of the network and that the file does not have.
    absent: Vec<&'static str>,
}

/// Fields that decide the size of a network: each with all names that the families have for it.
const DECISIVE: [&[&str]; 2] = [
    &["num_hidden_layers", "n_layer", "n_layers", "depths"],
    &["hidden_size", "n_embd", "dim", "hidden_sizes", "embed_dim"],
];

impl ConfigModel {
    /// The network that `config`, the text of a `config.json`, describes, under the name `name`.
    ///
    /// # Errors
    ///
    /// [`Error::NotJson`] if the text is not a JSON object, [`Error::Field`] if a field has a
    /// value that it must not have, [`Error::Unsupported`] if the zoo does not have such a network.
    ///
    /// [`Error::OtherLibrary`] if it describes one in the form of another library.
    pub fn read(name: &str, config: &str) -> Result<Self, Error> {
        let fields = Fields::parse(config)?;
        other_library(&fields)?;
        let text = text_part(&fields)?;
        let whole = &fields;
        let fields = text.as_ref().unwrap_or(whole);
        Ok(Self {
            name: name.into(),
            text: config.into(),
            kind: Kind::read(fields)?,
            dtype: fields.dtype().or_else(|| whole.dtype()),
            quantized: whole.quantized(),
            is_part: text.is_some(),
            absent: DECISIVE
                .iter()
                .filter(|names| !names.iter().any(|name| fields.contains(name)))
                .map(|names| names[0])
                .collect(),
        })
    }

    /// The text of its `config.json`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the file describes a larger model, of which this is the text part.
    pub fn is_part(&self) -> bool {
        self.is_part
    }

    /// Every tensor as `job` builds it on `device`, with its names in transformers.
    pub fn published_tensors(&self, job: &Job, device: &Device) -> PublishedTensors {
        let mut seen = PublishedTensors::new(self.names());
        let Ok(()) = self.train(job, device, 0, &mut seen);
        seen
    }

    /// That the file leaves the size of the network to a default; none if it does not. One that was written by hand may have a
    /// name wrong.
    pub fn absent(&self) -> Option<String> {
        (!self.absent.is_empty()).then(|| {
            let names = self.absent.join(" and no ");
            format!("config.json has no {names}: the default of transformers is taken")
        })
    }

    /// What somebody who trains as `job` says should know about the file, a sentence each.
    pub fn notes(&self, job: &Job) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_part {
            notes.push("the text part alone (text_config): what reads images is left out".into());
        }
        if let Some(positions) = self
            .positions()
            .filter(|positions| *positions > USUAL_TOKENS)
            && job.input.seq == Some(USUAL_TOKENS)
        {
            notes.push(format!(
                "{USUAL_TOKENS} of its {positions} positions are in use, as many as is usual: --seq changes that"
            ));
        }
        notes.extend(self.note().map(String::from));
        if let Some(method) = &self.quantized {
            notes.push(format!(
                "its weights are quantized ({method}), which is not followed: here they are in the format of --precision"
            ));
        }
        let usual = match self.dtype.as_deref() {
            Some("float16") => Some(Precision::Fp16),
            Some("bfloat16") => Some(Precision::Bf16),
            _ => None,
        };
        if let (Some(dtype), Some(usual)) = (&self.dtype, usual)
            && job.precision == Precision::Fp32
        {
            notes.push(format!(
                "its weights are in {dtype}, in which transformers loads them: --precision {usual}"
            ));
        }
        notes
    }
}

/// The longest sequence that a language model is trained on by default: 2,048 tokens are the
/// sequences of most public recipes for one card, whatever the network has positions for.
const USUAL_TOKENS: usize = 2048;

/// The tokens of a sequence by default, for a language model with `positions`.
fn usual_tokens(positions: usize) -> usize {
    positions.min(USUAL_TOKENS)
}

/// The text part of a model of text and images: its `text_config`, if the zoo has such a network.
///
/// # Errors
///
/// [`Error::Field`] if `text_config` is no object.
fn text_part(fields: &Fields) -> Result<Option<Fields>, Error> {
    let Some(text) = fields.object("text_config")? else {
        return Ok(None);
    };
    let model_type = match (fields.text("model_type", "")?, text.text("model_type", "")?) {
        // Older files leave it to the class.
        ("gemma3", "") => "gemma3_text",
        (_, inner) => inner,
    }
    .to_string();
    if !supported().contains(&model_type) {
        return Ok(None);
    }
    // The whole model ties its tables, or its text part does.
    let text = match fields.contains("tie_word_embeddings") {
        true if fields.flag("tie_word_embeddings", false)? => {
            text.with("tie_word_embeddings", true)
        }
        _ => text,
    };
    Ok(Some(text.with("model_type", model_type)))
}

/// Refuses the configuration of another library.
///
/// # Errors
///
/// [`Error::OtherLibrary`] if it is one of timm, diffusers or PEFT.
fn other_library(fields: &Fields) -> Result<(), Error> {
    let is_timm = ["num_features", "pretrained_cfg", "num_classes"]
        .iter()
        .any(|key| fields.has(key));
    let library = match () {
        () if fields.has("architecture") && is_timm => ("timm", "architecture"),
        () if fields.has("_class_name") => ("diffusers", "_class_name"),
        () if fields.has("peft_type") => ("PEFT", "peft_type"),
        () => return Ok(()),
    };
    let (library, field) = library;
    Err(Error::OtherLibrary {
        library,
        class: fields.text(field, "")?.into(),
    })
}

/// The error of a `field` whose value `got` contradicts another field.
fn mismatch(field: &str, must: String, got: usize) -> Error {
    Error::Field {
        field: field.into(),
        must,
        got: got.to_string(),
    }
}

/// Checks that `heads`, the value of `field`, divides `width`, the value of the field `widths`.
///
/// # Errors
///
/// [`Error::Field`] if it does not.
fn divides(field: &str, heads: usize, widths: &str, width: usize) -> Result<(), Error> {
    match width.is_multiple_of(heads) {
        true => Ok(()),
        false => Err(mismatch(
            field,
            format!("a divisor of {widths}, {width}"),
            heads,
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A value of any JSON type.
    fn value() -> impl Strategy<Value = serde_json::Value> {
        prop_oneof![
            (1u64..2_000).prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<f64>().prop_map(serde_json::Value::from),
            any::<bool>().prop_map(serde_json::Value::from),
            "[a-z_]{0,8}".prop_map(serde_json::Value::from),
            prop::collection::vec(any::<i32>(), 0..6).prop_map(serde_json::Value::from),
            Just(serde_json::Value::Null),
        ]
    }

    /// A name that is wrong leaves the default of `LlamaConfig`, 32 layers, in its place.
    #[test]
    fn a_size_that_is_left_to_a_default_is_named() {
        let absent = |config: &str| ConfigModel::read("any", config).unwrap().absent();
        let named = absent(r#"{"model_type": "llama", "hidden_size": 256, "layers": 2}"#);
        let expected = "config.json has no num_hidden_layers: the default of transformers is taken";
        assert_eq!(named.as_deref(), Some(expected));
        let neither = absent(r#"{"model_type": "llama"}"#).unwrap();
        assert!(neither.contains("no num_hidden_layers and no hidden_size"));
        for complete in [
            r#"{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2}"#,
            r#"{"model_type": "swin", "depths": [2, 2], "num_heads": [2, 4], "embed_dim": 32}"#,
        ] {
            assert_eq!(absent(complete), None);
        }
    }

    /// The classes of transformers.
    #[test]
    fn a_language_model_with_another_head_is_refused() {
        let read = |model_type: &str, class: Option<&str>| {
            let classes = class.map(|class| [class]);
            let config = serde_json::json!({"model_type": model_type, "architectures": classes});
            ConfigModel::read("any", &config.to_string())
        };
        for (model_type, class) in [
            ("llama", "LlamaForCausalLM"),
            ("llama", "LlamaModel"),
            ("gpt2", "GPT2LMHeadModel"),
            ("gpt2", "GPT2Model"),
        ] {
            assert!(read(model_type, Some(class)).is_ok(), "{class}");
            assert!(read(model_type, None).is_ok(), "{model_type}");
        }
        for (model_type, class) in [
            ("llama", "LlamaForSequenceClassification"),
            ("llama", "LlamaForTokenClassification"),
            ("gpt2", "GPT2ForSequenceClassification"),
            ("gpt2", "GPT2DoubleHeadsModel"),
        ] {
            let refused = read(model_type, Some(class)).unwrap_err();
            assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
            assert!(refused.to_string().contains(class), "{refused}");
        }
    }

    #[test]
    fn what_a_job_does_not_follow_is_noted() {
        let notes = |config: &str| {
            let own = ConfigModel::read("own", config).unwrap();
            let job = crate::Request::default().resolve(&own).unwrap();
            own.notes(&job).join("; ")
        };
        let llama_3 = r#"{"model_type": "llama", "max_position_embeddings": 131072}"#;
        assert!(notes(llama_3).starts_with("2048 of its 131072 positions"));
        assert_eq!(notes(r#"{"model_type": "llama"}"#), "");
        let both = r#"{"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {}}"#;
        let both = notes(both);
        assert!(
            both.contains("the text part alone") && both.contains("--precision bf16"),
            "{both}"
        );
    }

    proptest! {
        /// Reading ends with a network or an error, whatever values the fields have.
        #[test]
        fn every_configuration_is_read_or_refused(
            model_type in prop::sample::select(supported()),
            fields in prop::collection::hash_map(
                prop::sample::select(vec![
                    "hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size",
                    "num_hidden_layers", "intermediate_size", "max_position_embeddings",
                    "hidden_act", "head_dim", "layer_norm_eps", "hidden_dropout_prob",
                    "attention_dropout", "tie_word_embeddings", "n_embd", "n_head", "n_inner", "id2label",
                    "image_size", "patch_size", "depths", "hidden_sizes", "embedding_size",
                    "layer_type", "architectures", "num_labels",
                ]),
                value(),
                0..8,
            ),
        ) {
            let mut config = serde_json::json!(fields);
            config["model_type"] = model_type.into();
            let _ = ConfigModel::read("any", &config.to_string());
        }
    }
}
