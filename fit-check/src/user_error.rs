//! Bad input: what happened, to which value, and what to do.

use std::fmt;

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

    /// The error of an `option` that does not take `value`.
    pub fn invalid_value(option: &str, value: impl fmt::Display) -> Self {
        Self::new(format!("`{value}` is no value of {option}"))
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

    /// Adds what the error is about, such as a file or a card.
    pub fn about(mut self, what: impl fmt::Display) -> Self {
        self.error = format!("{what}: {}", self.error);
        self
    }

    /// Adds another fact to the error.
    pub fn and(mut self, fact: &str) -> Self {
        self.error = format!("{}; {fact}", self.error);
        self
    }

    /// If `text` looks like a list of values of `option`, which takes one at a time, the hint says how to type them.
    pub fn repeatable(self, option: &str, text: &str) -> Self {
        if !text.contains(',') {
            return self;
        }
        let values = text.split(',').map(str::trim);
        let values = values.filter(|value| !value.is_empty());
        let typed: Vec<_> = values.map(|value| format!("{option} {value}")).collect();
        self.hint(format!("repeat {option}: {}", typed.join(" ")))
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

/// The first line of `error`: that of a panic can have many.
pub fn first_line(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().into()
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
