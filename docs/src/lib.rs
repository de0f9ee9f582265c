//! The pages of this folder that hold figures. Each is written from the program's answers or from the records
//! of measurements in `data`: `cargo run --release -p docs -- zoo > docs/zoo.md`

pub mod accuracy;
mod activation_comparison;
pub mod batch_sizes;
pub mod published;
pub mod records;
mod verdicts;
pub mod zoo;

use std::borrow::Cow;

use anyhow::{Context, ensure};
use clap::Parser;
use fit_check::cli::Cli;
use fit_check::output::{Cell, Table, column, markdown};

/// A table of texts, without a title.
fn text_table<N: Into<Cow<'static, str>>>(
    names: impl IntoIterator<Item = N>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Table {
    let columns = names.into_iter().map(|name| {
        let name = name.into();
        column(name.clone(), name)
    });
    let rows = rows.into_iter();
    Table {
        title: String::new(),
        columns: columns.collect(),
        rows: rows
            .map(|row| row.into_iter().map(Cell::from).collect())
            .collect(),
    }
}

/// A Markdown table of `lines`, or the first error among them.
fn fallible_table<const N: usize>(
    names: [&'static str; N],
    lines: Vec<anyhow::Result<Vec<String>>>,
) -> anyhow::Result<String> {
    let rows: Vec<_> = lines.into_iter().collect::<Result<_, _>>()?;
    Ok(markdown::render(&[text_table(names, rows)]))
}

/// The answer of `fit-check` to the arguments `typed`.
fn answer(typed: &str) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("answer");
    let path = file
        .to_str()
        .context("a temporary folder with a strange name")?;
    let words = typed.split_whitespace();
    let words = ["fit-check"].into_iter().chain(words);
    let cli = Cli::try_parse_from(words.chain(["--quiet", "--output", path]))?;
    fit_check::commands::run(cli)?;
    let answer = std::fs::read_to_string(&file)?;
    ensure!(!answer.is_empty(), "`fit-check {typed}` did not answer");
    Ok(answer)
}
