//! What the `model_type`s of decoders share: the fields that all of them have.

use std::marker::PhantomData;

use burn::tensor::Device;

use super::fields::{Fields, Limit};
use super::names::{Names, Row, rows};
use super::{Architecture, mismatch, usual_tokens};
use crate::blocks::decoder::{Activation, DecoderConfig, LayerConfig, Norms, train_decoder};
use crate::{Defaults, Error, Input, Job, Observer, OptimizerKind, Setting};

/// A `model_type` of decoders. Each file of one implements it once.
pub(super) trait Family: Clone + std::fmt::Debug {
    /// The value of `model_type` in `config.json`.
    const MODEL_TYPE: &'static str;

    /// The file of the zoo.
    const FILE: &'static str = Self::MODEL_TYPE;

    /// The decoder with the dimensions that `fields` give.
    ///
    /// # Errors
    ///
    /// As [`Architecture::read`].
    fn read(fields: &Fields) -> Result<DecoderConfig, Error>;

    /// The names of the parameters in transformers.
    fn names() -> Names {
        decoder_names(Norms::Before)
    }
}

/// A decoder of the family `F` with the dimensions of a `config.json`.
#[derive(Clone, Debug)]
pub(super) struct OwnDecoder<F> {
    config: DecoderConfig,
    family: PhantomData<F>,
}

impl<F: Family> Architecture for OwnDecoder<F> {
    const MODEL_TYPE: &'static str = F::MODEL_TYPE;

    const FILE: &'static str = F::FILE;

    fn read(fields: &Fields) -> Result<Self, Error> {
        Ok(Self {
            config: F::read(fields)?,
            family: PhantomData,
        })
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            input: Input {
                seq: Some(usual_tokens(self.config.positions)),
                vocab: Some(self.config.vocab),
                ..Input::default()
            },
            batch: 1,
            optimizer: OptimizerKind::AdamW,
        }
    }

    fn positions(&self) -> Option<usize> {
        Some(self.config.positions)
    }

    fn note(&self) -> Option<&'static str> {
        self.config.experts.map(|_| {
            "all experts are in memory, and each gets as many tokens as another: the router's choice is fixed"
        })
    }

    fn check(&self, job: &Job) -> Result<(), Error> {
        // The network computes rotations for as many positions as the sequence has.
        let targets = job.lora.iter().flat_map(|lora| &lora.targets);
        let mut of_experts = targets.filter(|name| ["gate", "up", "down"].contains(name));
        match (self.config.experts, of_experts.next()) {
            (Some(_), Some(name)) => Err(Error::Size {
                what: Setting::LoraTargets,
                must: "some of q,k,v,o, since burn has no adapters for experts".into(),
                got: format!("{name:?}"),
            }),
            _ => Ok(()),
        }
    }

    fn train<O: Observer>(
        &self,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        train_decoder(&self.config, job, device, steps, observer)
    }

    fn names() -> Names {
        F::names()
    }
}

/// What a class of configurations of transformers gives to an absent field, and which fields it
/// knows. The values are those of `configuration_*.py` in transformers 5.24.0.
pub(super) struct Class {
    /// The classes of models whose head predicts the next word, or that have no head.
    pub models: [&'static str; 2],
    /// `vocab_size`.
    pub vocab: usize,
    /// `hidden_size` and `intermediate_size`.
    pub widths: [usize; 2],
    /// `num_hidden_layers`.
    pub layers: usize,
    /// `num_attention_heads`.
    pub heads: usize,
    /// `num_key_value_heads`; none for as many as heads.
    pub kv_heads: Option<usize>,
    /// `head_dim`; none for `hidden_size` over `num_attention_heads`.
    pub d_head: Option<usize>,
    /// Those of `num_key_value_heads` and `head_dim` that null leaves to the class.
    pub nullable: &'static [&'static str],
    /// The field with the activation, and its value.
    pub activation: (&'static str, &'static str),
    /// `max_position_embeddings`.
    pub positions: usize,
    /// `rms_norm_eps`.
    pub epsilon: f64,
    /// `tie_word_embeddings`.
    pub tied: bool,
    /// Whether `hidden_size` must be a multiple of `num_attention_heads` (`validate_architecture`).
    pub divided: bool,
}

impl Class {
    /// The defaults of `LlamaConfig`.
    pub const LLAMA: Self = Self {
        models: ["LlamaForCausalLM", "LlamaModel"],
        vocab: 32_000,
        widths: [4096, 11_008],
        layers: 32,
        heads: 32,
        kv_heads: None,
        d_head: None,
        nullable: &["num_key_value_heads", "head_dim"],
        activation: ("hidden_act", "silu"),
        positions: 2048,
        epsilon: 1e-6,
        tied: false,
        divided: true,
    };

    /// The decoder with the dimensions of `fields`, without what only some classes know.
    ///
    /// # Errors
    ///
    /// As [`Architecture::read`].
    pub fn read(&self, fields: &Fields) -> Result<DecoderConfig, Error> {
        fields.class_among(&self.models)?;
        fields.object("rope_parameters")?;
        fields.object("rope_scaling")?;
        let heads = fields.size("num_attention_heads", Limit::Width, self.heads)?;
        let kv_heads = self.optional(fields, "num_key_value_heads", self.kv_heads)?;
        let d_model = fields.size("hidden_size", Limit::Width, self.widths[0])?;
        let d_ff = fields.size("intermediate_size", Limit::Width, self.widths[1])?;
        let d_head = self.optional(fields, "head_dim", self.d_head)?;
        let d_head = d_head.unwrap_or(d_model / heads);
        let layers = fields.size("num_hidden_layers", Limit::Depth, self.layers)?;
        let (activation, usual) = self.activation;
        let config = DecoderConfig {
            vocab: fields.size("vocab_size", Limit::Rows, self.vocab)?,
            activation: fields.choice(activation, usual, &ACTIVATIONS)?,
            positions: fields.size("max_position_embeddings", Limit::Rows, self.positions)?,
            dropout: fields.share("attention_dropout", 0.0)?,
            epsilon: fields.epsilon("rms_norm_eps", self.epsilon)?,
            tied: fields.flag("tie_word_embeddings", self.tied)?,
            ..DecoderConfig::llama(
                self.vocab,
                [d_model, d_ff],
                layers,
                [heads, kv_heads.unwrap_or(heads)],
            )
        };
        self.check(config.with_heads_of(d_head))
    }

    /// A number of a `field` that may be null for some classes.
    fn optional(
        &self,
        fields: &Fields,
        field: &str,
        default: Option<usize>,
    ) -> Result<Option<usize>, Error> {
        match (self.nullable.contains(&field), default) {
            (true, _) => fields.optional_size(field, Limit::Width, default),
            (false, Some(default)) => fields.size(field, Limit::Width, default).map(Some),
            (false, None) if !fields.contains(field) => Ok(None),
            (false, None) => fields.size(field, Limit::Width, 1).map(Some),
        }
    }

    /// Checks that the heads of `config` share keys evenly, and that their channels make pairs.
    fn check(&self, config: DecoderConfig) -> Result<DecoderConfig, Error> {
        let (heads, kv_heads) = (config.heads, config.kv_heads);
        if self.divided {
            super::divides("num_attention_heads", heads, "hidden_size", config.d_model)?;
        }
        super::divides(
            "num_key_value_heads",
            kv_heads,
            "num_attention_heads",
            heads,
        )?;
        match config.d_head {
            0 => {
                let must = format!("at most hidden_size, {}", config.d_model);
                Err(mismatch("num_attention_heads", must, heads))
            }
            odd if !odd.is_multiple_of(2) => {
                let must = "an even number, of which rotations make pairs".into();
                Err(mismatch("head_dim", must, odd))
            }
            _ => Ok(config),
        }
    }
}

/// The number of experts in the `field` of this name, and how many of them a token takes; the values of absent fields are
/// those of `usual`.
///
/// # Errors
///
/// [`Error::Field`] if a token takes more than there are.
pub(super) fn experts(
    fields: &Fields,
    field: &str,
    usual: [usize; 2],
) -> Result<[usize; 2], Error> {
    const TAKEN: &str = "num_experts_per_tok";
    let count = fields.size(field, Limit::Width, usual[0])?;
    let taken = fields.size(TAKEN, Limit::Width, usual[1])?;
    match taken <= count {
        true => Ok([count, taken]),
        false => Err(mismatch(TAKEN, format!("at most {field}, {count}"), taken)),
    }
}

/// The activations of a gate, by their names in `ACT2FN` of transformers.
const ACTIVATIONS: [(&str, Activation); 6] = [
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("relu", Activation::Relu),
];

/// `config` with the layers of `layer_types`; those of `usual` if the file does not name them.
/// Without a window no layer is local.
///
/// # Errors
///
/// [`Error::Unsupported`] about another type of layer, [`Error::Field`] if there are not as many
/// types as layers.
pub(super) fn with_layer_types(
    config: DecoderConfig,
    fields: &Fields,
    usual: impl Fn(usize) -> bool,
) -> Result<DecoderConfig, Error> {
    let known = [("full_attention", false), ("sliding_attention", true)];
    let layers = config.layers.len();
    let local = match fields.words("layer_types", &known)? {
        Some(types) => types,
        None => (0..layers).map(usual).collect(),
    };
    if local.len() != layers {
        let must = format!("as many words as num_hidden_layers, {layers}");
        return Err(mismatch("layer_types", must, local.len()));
    }
    let layer = |(layer, local): (&LayerConfig, bool)| LayerConfig { local, ..*layer };
    let layers = config.layers.iter().zip(local).map(layer).collect();
    Ok(DecoderConfig { layers, ..config })
}

/// The names of a decoder's parameters whose normalisations are as `norms` says.
pub(super) fn decoder_names(norms: Norms) -> Names {
    let mut table = rows(
        "
        words = model.embed_tokens
        layers.*.attention.query = model.layers.*.self_attn.q_proj
        layers.*.attention.key = model.layers.*.self_attn.k_proj
        layers.*.attention.value = model.layers.*.self_attn.v_proj
        layers.*.attention.output = model.layers.*.self_attn.o_proj
        layers.*.attention.query_norm = model.layers.*.self_attn.q_norm
        layers.*.attention.key_norm = model.layers.*.self_attn.k_norm
        layers.*.mlp.gate = model.layers.*.mlp.gate_proj
        layers.*.mlp.up = model.layers.*.mlp.up_proj
        layers.*.mlp.down = model.layers.*.mlp.down_proj
        norm = model.norm
        head = lm_head
        ",
    );
    table.extend(norm_rows(norms));
    Names {
        prefix: "model.",
        transposed: true,
        // Older files hold the wavelengths. A file may hold a tied output layer a second time; an
        // output layer that is not tied is a row of the table.
        redundant: &["rotary_emb.inv_freq", "lm_head.weight"],
        rows: table,
    }
}

fn norm_rows(norms: Norms) -> Vec<Row> {
    rows(match norms {
        Norms::Before => {
            "
            layers.*.norm_1 = model.layers.*.input_layernorm
            layers.*.norm_2 = model.layers.*.post_attention_layernorm
            "
        }
        Norms::Around => {
            "
            layers.*.norm_1 = model.layers.*.input_layernorm
            layers.*.norm_1_after = model.layers.*.post_attention_layernorm
            layers.*.norm_2 = model.layers.*.pre_feedforward_layernorm
            layers.*.norm_2_after = model.layers.*.post_feedforward_layernorm
            "
        }
        Norms::After => {
            "
            layers.*.norm_1_after = model.layers.*.post_attention_layernorm
            layers.*.norm_2_after = model.layers.*.post_feedforward_layernorm
            "
        }
    })
}
