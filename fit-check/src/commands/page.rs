//! The pages of `docs/` that are made by running the program:
//! `fit-check page zoo > docs/zoo.md`.

pub mod accuracy;
mod parallel;
mod saved;
pub mod zoo;

use std::io::Write;

use super::FITS;
use crate::cli::{self, PageName};
use crate::output::{Sheet, markdown};
use crate::records;

/// A Markdown table without a title, of lines that can fail.
fn table(
    header: Vec<&'static str>,
    lines: Vec<anyhow::Result<Vec<String>>>,
) -> anyhow::Result<String> {
    let sheet = Sheet {
        title: String::new(),
        header,
        rows: lines.into_iter().collect::<Result<_, _>>()?,
    };
    Ok(markdown::render(&[sheet]))
}

/// Runs the command.
pub fn run(raw: &cli::Page) -> anyhow::Result<u8> {
    let page = match raw.page {
        PageName::Accuracy => accuracy::page(&records::all()?),
        PageName::Zoo => zoo::page()?,
    };
    std::io::stdout().write_all(page.as_bytes())?;
    Ok(FITS)
}
