//! The pages of `docs/` that are made by running the program:
//! `fit-check page zoo > docs/zoo.md`.

pub mod accuracy;
pub mod batch_sizes;
pub mod configurations;
pub mod published;
mod saved;
pub mod zoo;

use std::borrow::Cow;
use std::io::Write;
use std::process::Command;

use anyhow::{Context, ensure};

use super::FITS;
use crate::cli::{self, PageName};
use crate::output::{Sheet, markdown};
use crate::records;

/// A Markdown table without a title, of lines that can fail.
fn table(
    header: Vec<Cow<'static, str>>,
    lines: Vec<anyhow::Result<Vec<String>>>,
) -> anyhow::Result<String> {
    let sheet = Sheet {
        title: String::new(),
        header,
        rows: lines.into_iter().collect::<Result<_, _>>()?,
    };
    Ok(markdown::render(&[sheet]))
}

/// What the program says when `typed` is typed after its name.
fn said(typed: &str) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("this program is not found")?;
    let output = Command::new(program)
        .args(typed.split_whitespace())
        .arg("--quiet")
        .output()?;
    let answered = output.status.code().is_some_and(|status| status < 2);
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(answered, "`fit-check {typed}` did not answer: {error}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs the command.
pub fn run(raw: &cli::Page) -> anyhow::Result<u8> {
    let page = match raw.page {
        PageName::Accuracy => accuracy::page(
            &records::all()?,
            &configurations::all()?,
            &records::largest_batches()?,
        ),
        PageName::BatchSizes => batch_sizes::page()?,
        PageName::Configurations => configurations::page()?,
        PageName::Published => published::page()?,
        PageName::Zoo => zoo::page()?,
    };
    std::io::stdout().write_all(page.as_bytes())?;
    Ok(FITS)
}
