//! How answers look. A new format is one file here and one line in [`render`].

mod advice;
pub(crate) mod comparison;
mod csv;
pub(crate) mod file;
mod fits;
pub(crate) mod html;
mod json;
mod lower_bound;
pub(crate) mod markdown;
pub(crate) mod page;
pub(crate) mod pages;
pub(crate) mod run;
mod table;
pub(crate) mod verify;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use clap::ValueEnum;
pub use pages::WithLayers;
use serde::{Deserialize, Serialize};

use self::file::File;
use crate::cli::{self, Format};
use crate::trouble::Trouble;

/// Rows under a header.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    /// What it shows; empty if that is plain.
    pub title: String,
    /// Names of the columns.
    pub header: Vec<Cow<'static, str>>,
    /// Values, one for each column.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Names of columns that are always the same.
    pub fn header<const N: usize>(names: [&'static str; N]) -> Vec<Cow<'static, str>> {
        names.map(Cow::Borrowed).to_vec()
    }
}

/// An answer that every format can show.
pub trait Report: Serialize {
    /// As a page for a terminal.
    fn page(&self) -> String;

    /// As rows, for spreadsheets and Markdown.
    fn sheets(&self) -> Vec<Sheet>;

    /// As a page for a browser, where there is one.
    fn html(&self) -> Option<String> {
        None
    }
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
        Format::Html => Ok(report.html().ok_or_else(no_html)?),
    }
}

/// Writes `report` to where `output` says. A file is written in full or not at all.
///
/// # Errors
///
/// The file cannot be written.
pub fn write<R: Report>(report: &R, output: &cli::Output) -> anyhow::Result<()> {
    write_text(render(report, output.format)?, output)
}

/// An answer in every format that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendered(BTreeMap<Format, String>);

impl Rendered {
    /// `report` in every format that it has.
    pub fn report<R: Report>(report: &R) -> Self {
        Self::of(|format| render(report, format))
    }

    /// What `render` makes in each format; those that it refuses are left out.
    pub fn of(render: impl Fn(Format) -> anyhow::Result<String>) -> Self {
        let formats = Format::value_variants().iter();
        let texts = formats.filter_map(|format| Some((*format, render(*format).ok()?)));
        Self(texts.collect())
    }

    /// Writes it as [`write()`] does.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, output: &cli::Output) -> anyhow::Result<()> {
        let text = self.0.get(&output.format).ok_or_else(no_html)?;
        write_text(text.clone(), output)
    }
}

fn write_text(mut text: String, output: &cli::Output) -> anyhow::Result<()> {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    match &output.output {
        Some(path) => file(path).save(&pages::plain(&text)),
        None => print(&text),
    }
}

/// Writes `text` to stdout.
///
/// # Errors
///
/// It cannot be written, for another reason than that nobody reads on.
pub fn print(text: &str) -> anyhow::Result<()> {
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

fn no_html() -> Trouble {
    Trouble::new("this answer has no form for browsers")
        .hint("--format html is for `fit-check table`; others have table, json, csv and markdown")
}

/// Whether an answer that has no form for browsers could be written, before any work is done
/// for it.
///
/// # Errors
///
/// It could not.
pub fn check(output: &cli::Output) -> Result<(), Trouble> {
    match output.format {
        Format::Html => Err(no_html()),
        _ => check_file(output),
    }
}

/// Whether the file of an answer could be written.
///
/// # Errors
///
/// It could not.
pub fn check_file(output: &cli::Output) -> Result<(), Trouble> {
    output
        .output
        .as_deref()
        .map_or(Ok(()), |path| file(path).check())
}

fn file(path: &Path) -> File<'_> {
    File {
        path,
        option: "--output",
        otherwise: "leave it out to print the answer",
    }
}
