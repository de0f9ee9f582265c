//! Networks by the names that people type.

use crate::{Error, Variant, networks, tiny};

/// How similar a name must be to what was typed to be suggested (Jaro-Winkler, of 1), and how many
/// are suggested at most. Both are chosen.
const SIMILAR: f64 = 0.7;
const MAX_SUGGESTIONS: usize = 5;

/// The variant called `name`. Capitals and separators do not matter.
///
/// # Errors
///
/// [`Error::UnknownModel`] with the most similar names if there is none.
pub fn find(name: &str) -> Result<Variant, Error> {
    if let Some(found) = networks::named(name) {
        return Ok(found);
    }
    let wanted = networks::plain(name);
    let variants = networks::variants();
    let names = variants.iter().map(|variant| variant.name);
    let mut nearest: Vec<_> = names
        .chain(tiny::names())
        .map(|name| (strsim::jaro_winkler(&networks::plain(name), &wanted), name))
        .filter(|(similarity, _)| *similarity > SIMILAR)
        .collect();
    nearest.sort_by(|a, b| b.0.total_cmp(&a.0));
    Err(Error::UnknownModel {
        name: name.into(),
        nearest: nearest
            .into_iter()
            .take(MAX_SUGGESTIONS)
            .map(|(_, name)| name)
            .collect(),
    })
}
