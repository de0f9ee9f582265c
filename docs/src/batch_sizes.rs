//! `docs/batch_sizes.md`: the rows and columns of a published table, in fp32 and mixed precision.

use fit_check::cli::Format;
use fit_check::commands::table::Plan;
use fit_check::output::{Cell, Report, markdown, render};

const COMMAND: &str = "fit-check table --preset lambda-2020 --format markdown";

/// The configuration of burn that the page is for: a program of another configuration could write the page
/// too.
const PLAIN: &str = "\
They are of burn's plain configuration (`cargo build --release --no-default-features`); with its
defaults burn fuses and tunes kernels, which changes them.";

/// The page.
///
/// # Errors
///
/// An option in the command is no longer known.
pub fn page() -> anyhow::Result<String> {
    let report = Plan::typed(COMMAND)?.run(false);
    let table = render(&report, Format::Markdown)?;
    Ok(format!(
        "# Largest batches\n\nThe models and cards of Lambda's tables of 2020, in fp32 and in mixed \
         precision; what Lambda published\nis beside it in [published.md](published.md). `cargo run --release -p docs --no-default-features -- \
         batch-sizes`\nwrote it. It runs\n\n```console\n$ {COMMAND}\n```\n\n{PLAIN}\n\n{table}{}\n",
        report.assumptions().join(".\n")
    ))
}

/// The lines of the page's table about `model`.
///
/// # Errors
///
/// The same as for [`page`].
pub fn lines(model: &str) -> anyhow::Result<Vec<String>> {
    let report = Plan::typed(COMMAND)?.only(model).run(true);
    let table = report.tables().swap_remove(0);
    let rows = table.rows.iter();
    let lines = rows.map(|row| markdown::line(row.iter().map(Cell::text)).trim_end().into());
    Ok(lines.collect())
}
