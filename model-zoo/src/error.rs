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
        model: &'static str,
        /// The options that do apply.
        applicable: Vec<&'static str>,
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
}
