//! Pages of `docs/` that the program writes itself.

use super::FITS;
use crate::cli::{self, Page};
use crate::pages;
use crate::records;

/// Runs the command.
pub fn run(raw: &cli::PageArgs) -> anyhow::Result<u8> {
    let page = match raw.page {
        Page::Accuracy => pages::accuracy(&records::all()?),
    };
    print!("{page}");
    Ok(FITS)
}
