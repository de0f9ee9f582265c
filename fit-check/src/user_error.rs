//! Bad input: what happened, to which value, and what to do.

use std::fmt;
use std::path::Path;

/// A request that cannot be met, and a hint.
#[derive(Debug)]
pub struct UserError {
    error: String,
    hint: Option<String>,
}

impl UserError {
    /// An error without a hint.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: None,
        }
    }

    /// The error of a request that needs a card and names none, with its hint.
    pub fn no_card(error: &str) -> Self {
        Self::new(error).hint(
            "add --gpu 24GB, --gpu rtx-3090 or --memory 24GB; `fit-check gpus` lists the cards",
        )
    }

    /// Adds a hint: what the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the path of the file that the error is about.
    pub fn of(mut self, path: &Path) -> Self {
        self.error = format!("{}: {}", path.display(), self.error);
        self
    }
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", printable(&self.error))?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {}", printable(hint)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UserError {}

/// `text` with control characters escaped, since names in files can hold anything that drives a terminal.
pub fn printable(text: &str) -> String {
    let shown = |c: char| match c.is_control() && c != '\n' {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// A list as people read it: `a, b or c`.
pub fn either<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(T::to_string).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
