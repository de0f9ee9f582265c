//! The formats of answers. A new format is one file here and one line in [`render`].

mod advice;
mod cells;
mod csv;
pub(crate) mod estimate;
pub(crate) mod file;
mod gpu_search;
mod gpus;
pub(crate) mod html;
pub mod job_lines;
pub mod markdown;
mod max_batch;
mod max_seq;
mod models;
pub(crate) mod run;
pub(crate) mod sweep;
mod table;
pub mod terminal;
pub(crate) mod torch;
pub(crate) mod torch_batches;
mod torch_fits;
mod torch_verify;
pub mod verify;
pub(crate) mod weights_check;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

pub use cells::{Cell, Column, Table, TableBuilder, column};
use clap::ValueEnum;
pub use estimate::EstimatePage;
use serde::{Deserialize, Serialize};

use self::file::File;
use crate::cli::{self, Format};
use crate::user_error::UserError;

/// An answer that every format can show.
pub trait Report: Serialize {
    /// The page for a terminal.
    fn terminal(&self) -> String;

    /// The first line: the framework, and what decides the figures; empty if the answer has none.
    fn headline(&self) -> String {
        String::new()
    }

    /// The tables, at least one.
    fn tables(&self) -> Vec<Table>;

    /// The one table that CSV shows.
    fn csv(&self) -> Table {
        self.tables().swap_remove(0)
    }

    /// The page for a browser, if there is one.
    fn html(&self) -> Option<String> {
        None
    }
}

/// Renders `report` in `format`.
///
/// # Errors
///
/// The report has no such format.
pub fn render<R: Report>(report: &R, format: Format) -> anyhow::Result<String> {
    match format {
        Format::Table => Ok(report.terminal()),
        Format::Json => Ok(serde_json::to_string_pretty(report)?),
        Format::Csv => csv::render(&report.csv()),
        Format::Markdown => {
            let headline = terminal::plain(&report.headline());
            let headline = match headline.is_empty() {
                true => headline,
                false => headline + "\n\n",
            };
            Ok(headline + &markdown::render(&report.tables()))
        }
        Format::Html => Ok(report.html().ok_or_else(no_html)?),
    }
}

/// Writes `report` to the destination in `output`. If a file cannot be written, the answer goes to stdout.
///
/// # Errors
///
/// The file cannot be written.
pub fn write<R: Report>(report: &R, output: &cli::Output) -> anyhow::Result<()> {
    write_text(render(report, output.format)?, output)
}

/// An answer in all of its formats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendered(BTreeMap<Format, String>);

impl Rendered {
    /// Renders `report` in every format that it has.
    pub fn report<R: Report>(report: &R) -> Self {
        Self::of(|format| render(report, format))
    }

    /// The text that `render` returns for each format; the formats that it refuses are left out.
    pub fn of(render: impl Fn(Format) -> anyhow::Result<String>) -> Self {
        let formats = Format::value_variants().iter();
        let texts = formats.filter_map(|format| Some((*format, render(*format).ok()?)));
        Self(texts.collect())
    }

    /// Writes the answer, as [`write()`] does.
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
    let Some(path) = &output.output else {
        return print(&text);
    };
    let text = terminal::plain(&text);
    file(path).save(&text).inspect_err(|_| {
        // The work is done, and the user should not have to do it again.
        let _ = print(&text);
    })
}

/// Writes `text` to stdout.
///
/// # Errors
///
/// It cannot be written, except when the reader has closed its pipe.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        // The reader has closed its pipe: it has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn no_html() -> UserError {
    UserError::new("this answer has no form for browsers")
        .hint("--format html is for `fit-check table`; `estimate` and `run` write a page with --html FILE; others have table, json, csv and markdown")
}

/// Checks that an answer without a page for browsers can be written, before any work is done for it.
///
/// # Errors
///
/// It cannot be written.
pub fn check(output: &cli::Output) -> Result<(), UserError> {
    match output.format {
        Format::Html => Err(no_html()),
        _ => check_file(output),
    }
}

/// Checks that the file of an answer can be written.
///
/// # Errors
///
/// It cannot be written.
pub fn check_file(output: &cli::Output) -> Result<(), UserError> {
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
