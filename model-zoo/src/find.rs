//! Networks by the names that people type.

use crate::{Error, Variant, networks, tiny};

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
        .filter(|(similarity, _)| *similarity > 0.7)
        .collect();
    nearest.sort_by(|a, b| b.0.total_cmp(&a.0));
    Err(Error::UnknownModel {
        name: name.into(),
        nearest: nearest.into_iter().take(5).map(|(_, name)| name).collect(),
    })
}
