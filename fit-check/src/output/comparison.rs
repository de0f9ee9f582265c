//! How the weights file of a user's own model agrees with its network.

use std::fmt::Write;

use crate::model_source::{Comparison, Confidence};

/// The confidence of `comparison`, and how many tensors differ.
fn summary(comparison: &Comparison) -> String {
    let summary = match (comparison.confidence, comparison.differences()) {
        (Confidence::Medium, _) => "no weights file to compare with".to_string(),
        (_, 0) => format!(
            "all {} tensors of the weights file agree",
            comparison.matching
        ),
        (_, differ) => format!(
            "{} tensors of the weights file agree, {differ} differ",
            comparison.matching
        ),
    };
    format!("confidence {}: {summary}", comparison.confidence)
}

/// For an answer that names no tensors: the line that it has if `comparison` found differences.
pub(super) fn mismatch(comparison: &Comparison) -> Option<String> {
    let differs = comparison.confidence == Confidence::Low;
    differs.then(|| {
        let summary = summary(comparison);
        format!("{summary}; `fit-check estimate` names them")
    })
}

/// `comparison` in indented lines: its confidence, and the first differences of each kind.
pub fn lines(comparison: &Comparison) -> String {
    /// The most tensors that are named for each kind of difference.
    const NAMED: usize = 3;
    let mut lines = format!("  {}", summary(comparison));
    for (what, names) in [
        ("missing", &comparison.missing),
        ("unexpected", &comparison.unexpected),
        ("other shape", &comparison.other_shape),
    ] {
        for name in names.iter().take(NAMED) {
            let _ = write!(lines, "\n    {what}: {name}");
        }
        if names.len() > NAMED {
            let _ = write!(lines, "\n    {what}: {} more", names.len() - NAMED);
        }
    }
    lines
}
