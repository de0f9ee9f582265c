//! Why a request cannot be met.

use crate::InputSize;

/// The part of a [`Request`](crate::Request) that an error is about. It is displayed as its plain
/// name, for instance `batch size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display)]
pub enum Setting {
    /// A size of a sample.
    #[strum(to_string = "{0}")]
    Input(InputSize),
    /// [`Request::batch`](crate::Request::batch).
    #[strum(to_string = "batch size")]
    Batch,
    /// [`Request::tokens`](crate::Request::tokens).
    #[strum(to_string = "number of tokens")]
    Tokens,
    /// [`LoraRequest::targets`](crate::LoraRequest::targets).
    #[strum(to_string = "adapter targets")]
    LoraTargets,
}

impl From<InputSize> for Setting {
    fn from(size: InputSize) -> Self {
        Self::Input(size)
    }
}

/// A request that no training step can be made for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The zoo has no model of this name.
    #[error("unknown model `{name}`")]
    UnknownModel {
        /// The requested name.
        name: String,
        /// The most similar names, the most similar first.
        nearest: Vec<&'static str>,
    },
    /// The request has a setting that this model does not have.
    #[error("{model} has no {what}")]
    NotApplicable {
        /// The setting.
        what: Setting,
        /// The model's name.
        model: String,
        /// The sizes that the model does have.
        applicable: Vec<InputSize>,
    },
    /// The zoo does not know the projections of this model that adapters are put beside.
    #[error("low-rank adapters are not known for {model}")]
    NoAdapters {
        /// The model's name.
        model: String,
    },
    /// burn-train's data parallelism is for a step that trains one network.
    #[error("burn-train's data parallelism trains one network, and a step of this model two")]
    TwoNetworks,
    /// A path of frozen parameters leads to none.
    #[error("`{path}` names no parameter of {model}")]
    NoParameter {
        /// The path.
        path: String,
        /// The model's name.
        model: String,
        /// The first parts of the paths that the model does have.
        parts: Vec<String>,
    },
    /// The network cannot work with the value of a setting.
    #[error("{what} must be {must}, not {got}")]
    Size {
        /// The setting.
        what: Setting,
        /// The condition that its value must meet.
        must: String,
        /// Its value.
        got: String,
    },
    /// A `config.json` is not JSON.
    #[error("the configuration is not JSON: {0}")]
    NotJson(String),
    /// A field of a `config.json` has a value that it must not have.
    #[error("`{field}` of the configuration must be {must}, not {got}")]
    Field {
        /// Its name.
        field: String,
        /// The condition that its value must meet.
        must: String,
        /// Its value.
        got: String,
    },
    /// A file describes a network in the form of another library than transformers.
    #[error("it is a configuration of {library}, for {class:?}")]
    OtherLibrary {
        /// The library.
        library: &'static str,
        /// What it calls the network.
        class: String,
    },
    /// A `config.json` describes a network that the zoo does not have.
    #[error("the configuration has {what}, which is not supported")]
    Unsupported {
        /// The field and its value.
        what: String,
        /// The values that are supported.
        supported: Vec<String>,
    },
}
