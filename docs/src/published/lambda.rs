//! Lambda's tables of 2020, cell by cell.

use std::fmt;

use crate::text_table;
use fit_check::commands::table::Plan;
use fit_check::input_options::SizeOption;
use fit_check::preset::{self, Published};
use fit_check::table::TableReport;
use model_zoo::InputSize;
use serde::Deserialize;

/// A batch that was tried, and bounds of the memory that it needs, from the cards that it was tried on.
#[derive(Debug, Deserialize)]
struct Tried {
    /// The name of the row.
    model: String,
    /// The batch.
    batch: u64,
    /// The batch did not fit into this memory, in MiB.
    need_gt_mib: Option<u64>,
    /// The batch fitted into this memory, in MiB.
    need_le_mib: Option<u64>,
}

/// The batches that were tried for Lambda's tables.
fn tried() -> Vec<Tried> {
    let text = include_str!("../../data/lambda_2020_brackets.csv");
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let rows = reader.deserialize();
    rows.map(|row| row.expect("the data is read by a test"))
        .collect()
}

/// The range in which the largest batch must lie, from the batches that were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bracket {
    /// A batch that fits.
    fits: u64,
    /// The smallest tried batch that does not fit, if there is one.
    fails: Option<u64>,
}

impl Bracket {
    /// The bracket for a card of `total` MiB, from the batches `tried` and the `published` one.
    fn new(tried: &[&Tried], published: u64, total: u64) -> Self {
        let fitted = |tried: &&&Tried| tried.need_le_mib.is_some_and(|most| most <= total);
        let failed = |tried: &&&Tried| tried.need_gt_mib.is_some_and(|least| least >= total);
        let fits = tried.iter().filter(fitted).map(|tried| tried.batch).max();
        Self {
            fits: published.max(fits.unwrap_or(0)),
            fails: tried.iter().filter(failed).map(|tried| tried.batch).min(),
        }
    }

    fn place(&self, batch: u64) -> BracketPosition {
        match self.fails {
            _ if batch < self.fits => BracketPosition::Below,
            Some(fails) if batch >= fails => BracketPosition::Above,
            _ => BracketPosition::Inside,
        }
    }
}

impl fmt::Display for Bracket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fails {
            Some(fails) if fails == self.fits + 1 => write!(f, "{}", self.fits),
            Some(fails) => write!(f, "{} to {}", self.fits, fails - 1),
            None => write!(f, "{} or more", self.fits),
        }
    }
}

/// Where our answer lies, relative to the bracket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
enum BracketPosition {
    Inside,
    Below,
    Above,
}

/// One cell.
struct Cell {
    ours: Option<u64>,
    published: u64,
    bracket: Bracket,
}

impl Cell {
    fn place(&self) -> Option<BracketPosition> {
        self.ours.map(|batch| self.bracket.place(batch))
    }

    fn text(&self) -> String {
        match self.ours.zip(self.place()) {
            Some((ours, place)) => format!("**{ours}**, {place} {}", self.bracket),
            None => format!("-, theirs is {}", self.published),
        }
    }
}

/// A row with its cells.
pub struct Row {
    published: Published,
    cells: Vec<Cell>,
}

/// Every row of both tables, in the number formats of its measurement.
///
/// # Errors
///
/// An option in the command is no longer known.
pub fn rows() -> anyhow::Result<Vec<Row>> {
    let columns = preset::columns();
    let tried = tried();
    let command = "fit-check table --preset lambda-2020";
    let report = Plan::typed(command)?.published_only().run(false);
    let row = |(published, found): (Published, &fit_check::table::Row)| {
        let tried: Vec<_> = tried
            .iter()
            .filter(|tried| tried.model == published.bracket)
            .collect();
        let cells = columns.iter().zip(&published.batches).zip(&found.cells);
        let cells = cells.map(|((column, batch), cell)| Cell {
            ours: cell.in_unit(published.unit),
            published: *batch,
            bracket: Bracket::new(&tried, *batch, column.total_mib),
        });
        Row {
            cells: cells.collect(),
            published,
        }
    };
    let TableReport { rows, .. } = &report;
    Ok(preset::lambda_2020()
        .into_iter()
        .zip(rows)
        .map(row)
        .collect())
}

/// The cells of the table called `name`.
pub fn table(rows: &[Row], name: &str) -> String {
    let cards = preset::cards(estimator::Runtime::Cuda, estimator::Tuning::Warm);
    let cards = cards.iter().map(|card| card.label().into());
    let names = ["published as", "in"].map(std::borrow::Cow::from);
    let header = names.into_iter().chain(cards);
    let rows = rows.iter().filter(|row| row.published.table == name);
    let lines = rows.map(|row| {
        let Published {
            name,
            unit,
            precision,
            ..
        } = &row.published;
        let names = [name.clone(), format!("{unit}, {precision}")];
        names
            .into_iter()
            .chain(row.cells.iter().map(Cell::text))
            .collect()
    });
    let table = text_table(header, lines);
    fit_check::output::markdown::render(&[table])
        .trim_end()
        .into()
}

/// How many cells lie inside, below and above their bracket.
pub fn summary(rows: &[Row]) -> String {
    let places: Vec<_> = rows
        .iter()
        .flat_map(|row| &row.cells)
        .map(Cell::place)
        .collect();
    let count = |place| places.iter().filter(|other| **other == place).count();
    format!(
        "Of {} cells {} lie inside their bracket, {} below and {} above it; of {} there is no answer.",
        places.len(),
        count(Some(BracketPosition::Inside)),
        count(Some(BracketPosition::Below)),
        count(Some(BracketPosition::Above)),
        count(None),
    )
}

/// The simulated job of each row, and how it differs from the published one.
pub fn networks(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| {
        let Published {
            name,
            model,
            precision,
            differences,
            ..
        } = &row.published;
        let typed = typed(&row.published);
        let command = format!("fit-check max-batch {model} {typed} --precision {precision}");
        let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
        vec![name.clone(), format!("`{command}`"), differences.clone()]
    });
    let table = text_table(["published as", "simulated as", "what differs"], lines);
    fit_check::output::markdown::render(&[table])
        .trim_end()
        .into()
}

/// The options that turn the recipe of a model into the published one.
fn typed(published: &Published) -> String {
    let request = published.request();
    let optimizer = request.optimizer.map(|kind| format!("--optimizer {kind}"));
    let sizes = InputSize::ALL.iter().filter_map(|size| {
        let value = request.input.get(*size)?;
        Some(SizeOption::of(*size).typed(value))
    });
    sizes.chain(optimizer).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NASNet Large: batch 8 fits into 7,982 MiB; 16 does not fit into 11,178 MiB, nor 64 into 24,220.
    #[test]
    fn brackets_are_what_the_tries_allow() {
        let tried = tried();
        let nasnet: Vec<_> = tried
            .iter()
            .filter(|tried| tried.model == "NasNet Large")
            .collect();
        let on = |published, total| Bracket::new(&nasnet, published, total).to_string();
        assert_eq!(on(4, 5931), "4 to 7");
        assert_eq!(on(8, 11178), "8 to 15");
        assert_eq!(on(32, 24220), "32 to 63");
        assert_eq!(on(64, 48601), "64 or more");
    }
}
