//! `docs/published.md`: published batches and memory, beside our answers.

mod convolutions;
mod lambda;

use crate::answer;

/// The text that a person wrote; the tables replace its `{{…}}`.
const FRAME: &str = include_str!("published.frame.md");

/// The beginning of a line that the program's answer follows.
const PROMPT: &str = "$ fit-check ";

/// The page.
///
/// # Errors
///
/// A step failed, or the program cannot be run.
pub fn page() -> anyhow::Result<String> {
    let rows = lambda::rows()?;
    let page = FRAME
        .replace("{{image}}", &lambda::table(&rows, "image"))
        .replace("{{language}}", &lambda::table(&rows, "language"))
        .replace("{{summary}}", &lambda::summary(&rows))
        .replace("{{networks}}", &lambda::networks(&rows))
        .replace("{{convolutions}}", &convolutions::tables()?);
    let mut answered = String::with_capacity(page.len());
    for line in page.lines() {
        answered += line;
        answered.push('\n');
        if let Some(typed) = line.strip_prefix(PROMPT) {
            answered += answer(typed)?.trim_end();
            answered.push('\n');
        }
    }
    Ok(answered)
}
