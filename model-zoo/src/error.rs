//! What can be wrong with a request.

/// A request that no training step can be made for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No variant has this name.
    #[error("unknown model `{name}`")]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// The names nearest to it.
        nearest: Vec<&'static str>,
    },
    /// The option says nothing about this model.
    #[error("`{option}` does not apply to {model}")]
    NotApplicable {
        /// The option, as it is typed.
        option: &'static str,
        /// The model's name.
        model: String,
        /// The options that do apply.
        applicable: Vec<&'static str>,
    },
    /// The network has no projections that adapters are usual for.
    #[error("low-rank adapters are not known for {model}")]
    NoAdapters {
        /// The model's name.
        model: String,
    },
    /// A size that the network cannot work with.
    #[error("{what} must be {must}, not {got}")]
    Size {
        /// Which size, for instance `--image`.
        what: &'static str,
        /// What it must be.
        must: String,
        /// What it is.
        got: String,
    },
    /// A `config.json` that cannot be read.
    #[error("the configuration is not JSON: {0}")]
    NotJson(String),
    /// A field of a `config.json` that does not hold what it must.
    #[error("`{field}` of the configuration must be {must}, not {got}")]
    Field {
        /// Its name.
        field: String,
        /// What it must hold.
        must: String,
        /// What it holds.
        got: String,
    },
    /// A `config.json` of a network that the zoo does not have.
    #[error("the configuration has {what}, which is not supported")]
    Unsupported {
        /// The field and its value.
        what: String,
        /// What is supported in its place.
        supported: Vec<String>,
    },
}
