//! Prints a page of `docs/` that holds figures.

use std::io::Write;

use clap::{Parser, ValueEnum};
use docs::records::Records;
use docs::{accuracy, batch_sizes, published, zoo};

/// Prints a page of `docs/` that holds figures
#[derive(Debug, Parser)]
struct Cli {
    page: Page,
}

/// A page.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Page {
    /// `docs/accuracy.md`
    Accuracy,
    /// `docs/batch_sizes.md`; needs a build with `--no-default-features`
    BatchSizes,
    /// `docs/published.md`; needs a build with `--no-default-features`
    Published,
    /// `docs/schema.json`
    Schema,
    /// `docs/zoo.md`; needs a build with `--no-default-features`
    Zoo,
    /// No page: the process in which `fit-check table`, here the answer on a page, fills the cells of a row
    #[value(hide = true)]
    Row,
}

fn main() -> anyhow::Result<()> {
    let page = match Cli::parse().page {
        Page::Accuracy => accuracy::page(&Records::read()?),
        Page::BatchSizes => batch_sizes::page()?,
        Page::Published => published::page()?,
        Page::Schema => fit_check::schema::text(),
        Page::Zoo => zoo::page()?,
        Page::Row => {
            fit_check::commands::run(fit_check::cli::Cli::parse_from(["fit-check", "row"]))?;
            return Ok(());
        }
    };
    std::io::stdout().write_all(page.as_bytes())?;
    Ok(())
}
