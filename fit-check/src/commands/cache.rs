//! Shows or deletes the answers that are kept between calls.

use anyhow::Context;
use estimator::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::FITS;
use crate::cache::{self, Cache, Contents};
use crate::cli;
use crate::output::{self, Report, Table, column};

/// The answer of `cache`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CacheReport {
    /// The folder; none if no answers are kept.
    pub folder: Option<String>,
    /// Whether the user wants no answers kept.
    #[serde(skip)]
    pub turned_off: bool,
    /// Whether the answers were deleted.
    pub cleared: bool,
    /// The answers in the folder, or those that were deleted.
    #[serde(flatten)]
    pub contents: Contents,
}

/// Runs the command.
pub fn run(raw: &cli::Cache) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let cache = Cache::of_user();
    let folder = cache.folder().map(|folder| folder.display().to_string());
    let named = || format!("cannot use {}", folder.as_deref().unwrap_or("a folder"));
    let contents = match raw.clear {
        true => cache.clear(),
        false => cache.contents(),
    };
    let report = CacheReport {
        contents: contents.with_context(named)?,
        folder,
        turned_off: Cache::is_turned_off(),
        cleared: raw.clear,
    };
    output::write(&report, &raw.output)?;
    Ok(FITS)
}

impl Report for CacheReport {
    fn terminal(&self) -> String {
        let Contents { entries, bytes } = self.contents;
        let answers = match entries {
            1 => "1 answer".to_string(),
            _ => format!("{entries} answers"),
        };
        let kib = bytes.div_ceil(1024);
        match (&self.folder, self.cleared) {
            (None, _) if self.turned_off => {
                format!("no answers are kept: {} is empty", cache::FOLDER)
            }
            (None, _) => "no answers are kept: this system names no folder for them".into(),
            (Some(folder), true) => format!("{answers} ({kib} KiB) deleted from {folder}"),
            (Some(folder), false) => format!("{answers} ({kib} KiB) in {folder}"),
        }
    }

    fn tables(&self) -> Vec<Table> {
        let names = ["folder", "answers", "bytes", "cleared"];
        vec![Table {
            title: String::new(),
            columns: names.map(|name| column(name, name)).into(),
            rows: vec![vec![
                self.folder.clone().into(),
                self.contents.entries.into(),
                Bytes(self.contents.bytes).into(),
                self.cleared.into(),
            ]],
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_why_no_answers_are_kept() {
        let page = |turned_off| {
            let report = CacheReport {
                folder: None,
                turned_off,
                cleared: false,
                contents: Contents::default(),
            };
            report.terminal()
        };
        assert!(page(true).ends_with("FIT_CHECK_CACHE_DIR is empty"));
        assert!(page(false).ends_with("this system names no folder for them"));
    }
}
