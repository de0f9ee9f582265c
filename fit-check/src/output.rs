//! How answers look. A new format is one file here and one line in [`render`].

mod comparison;
mod csv;
mod json;
mod lower_bound;
pub(crate) mod markdown;
pub(crate) mod page;
pub(crate) mod pages;
mod verify;

use std::fs;
use std::io::Write;
use std::path::Path;

pub use pages::WithLayers;
use serde::Serialize;

use crate::cli::{self, Format};
use crate::trouble::Trouble;

/// Rows under a header.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    /// What it shows; empty if that is plain.
    pub title: String,
    /// Names of the columns.
    pub header: Vec<&'static str>,
    /// Values, one for each column.
    pub rows: Vec<Vec<String>>,
}

/// An answer that every format can show.
pub trait Report: Serialize {
    /// As a page for a terminal.
    fn page(&self) -> String;

    /// As rows, for spreadsheets and Markdown.
    fn sheets(&self) -> Vec<Sheet>;
}

/// `report` in `format`.
///
/// # Errors
///
/// It cannot be written in that format.
pub fn render<R: Report>(report: &R, format: Format) -> anyhow::Result<String> {
    match format {
        Format::Table => Ok(report.page()),
        Format::Json => json::render(report),
        Format::Csv => csv::render(&report.sheets()),
        Format::Markdown => Ok(markdown::render(&report.sheets())),
    }
}

/// Writes `report` to where `output` says. A file is written in full or not at all.
///
/// # Errors
///
/// The file cannot be written.
pub fn write<R: Report>(report: &R, output: &cli::Output) -> anyhow::Result<()> {
    let mut text = render(report, output.format)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    match &output.output {
        Some(path) => save(path, &anstream::adapter::strip_str(&text).to_string()),
        None => {
            let mut stdout = anstream::stdout().lock();
            match stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush())
            {
                // Whoever was to read the answer has seen enough.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                outcome => Ok(outcome?),
            }
        }
    }
}

/// Whether a file could be written at `path`, before any work is done for it.
///
/// # Errors
///
/// It could not.
pub fn check(output: &cli::Output) -> Result<(), Trouble> {
    let Some(path) = &output.output else {
        return Ok(());
    };
    if path.is_dir() {
        return Err(unwritable(path, "it is a folder"));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match fs::metadata(folder) {
        Ok(folder) if folder.is_dir() => {}
        Ok(_) => return Err(unwritable(path, "its parent is no folder")),
        Err(error) => return Err(unwritable(path, &error.to_string())),
    }
    // Probed beside the file, so that one that is there stays as it is.
    let probe = partial(path);
    match fs::write(&probe, "").and_then(|()| fs::remove_file(&probe)) {
        Ok(()) => Ok(()),
        Err(error) => Err(unwritable(path, &error.to_string())),
    }
}

fn unwritable(path: &Path, why: &str) -> Trouble {
    Trouble::new(format!("cannot write {}: {why}", path.display()))
        .hint("choose another --output, or leave it out to print the answer")
}

fn partial(path: &Path) -> std::path::PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    let partial = partial(path);
    fs::write(&partial, text)
        .and_then(|()| fs::rename(&partial, path))
        .map_err(|error| {
            let _ = fs::remove_file(&partial);
            unwritable(path, &error.to_string()).into()
        })
}
