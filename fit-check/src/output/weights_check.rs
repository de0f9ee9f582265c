//! How the weights file of a user's own model agrees with its network.

use std::fmt::Write;

use crate::model_source::{Confidence, WeightsCheck};

/// The confidence of `check`, and how many tensors differ.
fn summary(check: &WeightsCheck) -> String {
    let summary = match (check.confidence, check.differences()) {
        (Confidence::Medium, _) => "no weights file to compare with".to_string(),
        (_, 0) => format!("all {} tensors of the weights file agree", check.matching),
        (_, differ) => format!(
            "{} tensors of the weights file agree, {differ} differ",
            check.matching
        ),
    };
    format!("confidence {}: {summary}", check.confidence)
}

/// For an answer that names no tensors: the line that it has if `check` found differences.
pub(super) fn mismatch(check: &WeightsCheck) -> Option<String> {
    let differs = check.confidence == Confidence::Low;
    differs.then(|| {
        let summary = summary(check);
        format!("{summary}; `fit-check estimate` names them")
    })
}

/// `check` in indented lines: its confidence, and the first differences of each kind.
pub fn lines(check: &WeightsCheck) -> String {
    /// The most tensors that are named for each kind of difference.
    const NAMED: usize = 3;
    let mut lines = format!("  {}", summary(check));
    for (what, names) in [
        ("missing", &check.missing),
        ("unexpected", &check.unexpected),
        ("other shape", &check.other_shape),
    ] {
        for name in names.iter().take(NAMED) {
            let _ = write!(lines, "\n    {what}: {name}");
        }
        if names.len() > NAMED {
            let _ = write!(lines, "\n    {what}: {} more", names.len() - NAMED);
        }
    }
    for note in &check.notes {
        let _ = write!(lines, "\n  {note}");
    }
    lines
}
