//! Shows or deletes what is kept between calls.

use anyhow::Context;
use estimator::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cache::{self, Cache, Contents};
use crate::cli;
use crate::exit_status::FITS;
use crate::output::{self, Report, Table, column};

/// The answer of `cache`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CacheReport {
    /// The folder; none if nothing is kept.
    pub folder: Option<String>,
    /// Whether the user wants nothing kept.
    #[serde(skip)]
    pub turned_off: bool,
    /// Whether the entries were deleted.
    pub cleared: bool,
    /// The entries in the folder, or those that were deleted.
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
        let count = match entries {
            1 => "1 entry".to_string(),
            _ => format!("{entries} entries"),
        };
        let kib = bytes.div_ceil(1024);
        match (&self.folder, self.cleared) {
            (None, _) if self.turned_off => {
                format!("nothing is kept: {} is empty", cache::FOLDER)
            }
            (None, _) => "nothing is kept: this system names no folder for them".into(),
            (Some(folder), true) => format!("{count} ({kib} KiB) deleted from {folder}"),
            (Some(folder), false) => format!("{count} ({kib} KiB) in {folder}"),
        }
    }

    fn tables(&self) -> Vec<Table> {
        let names = ["folder", "entries", "bytes", "cleared"];
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
    fn the_page_says_why_nothing_is_kept() {
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
