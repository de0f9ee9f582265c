//! Tables of largest batches.

use std::fmt::Write;

use estimator::{Error, Method};
use indexmap::IndexMap;
use maud::{Markup, html};

use super::html::document;
use super::job_lines::{burn, in_which_runs, nccl_lines, number_format, sample, strategy};
use super::sweep::charts;
use super::terminal::{BAD, FAINT, columns, styled, wrapped, wrapped_lines};
use super::weights_check::mismatch;
use super::{Cell, Report, Table, column};
use crate::job_info::Burn;
use crate::plots::{chart, curve};
use crate::preset::Unit;
use crate::table::{BatchCell, Row, TableReport, TorchCells};
use crate::user_error::first_line;

impl TableReport {
    /// The cell of `row` that shows `cell`.
    fn batch(row: &Row, cell: &BatchCell) -> Cell {
        match (cell.in_unit(row.unit), &cell.error) {
            (None, Some(Error::Interrupted)) => Cell::NotReached,
            (batch, _) => batch.into(),
        }
    }

    /// Whether a row has PyTorch's batches beside burn's.
    fn has_pytorch(&self) -> bool {
        self.rows.iter().any(|row| row.pytorch.is_some())
    }

    /// The columns that name a row of `framework`: header and value.
    fn naming(&self, row: &Row, framework: String) -> Vec<(&'static str, String)> {
        let asked = &row.asked;
        let mut recipe: Vec<_> = sample(asked).collect();
        recipe.push(asked.optimizer.to_string());
        recipe.extend(strategy(asked).map(String::from));
        if asked.accumulate > 1 {
            recipe.push(format!("{} batches a step", asked.accumulate));
        }
        let mut names = vec![
            ("model", asked.model.clone()),
            ("recipe", recipe.join(", ")),
            ("precision", number_format(asked.precision).into()),
        ];
        if self.has_pytorch() {
            names.insert(1, ("framework", framework));
        }
        if let Some(published) = &row.published_as {
            names.insert(0, ("published as", published.clone()));
        }
        if self.preset.is_some() || self.rows.iter().any(|row| row.unit == Unit::Tokens) {
            names.push(("in", row.unit.to_string()));
        }
        names
    }

    /// What the table is of: the framework, and that all else is in the rows.
    fn title(&self) -> String {
        let burn = self.rows.first().map(|row| burn(&row.asked));
        let burn = burn.unwrap_or_else(in_burn);
        let mut in_pytorch = self.rows.iter().filter_map(|row| row.pytorch.as_ref());
        match in_pytorch.next() {
            Some(cells) => format!("Largest batches in {burn} and {}", in_pytorch_of(cells)),
            None => format!("Largest batches in {burn}"),
        }
    }

    /// The lines of the table of batches, each with the cells of which it shows the batches: after a row is a line of its batches in
    /// PyTorch, if it has them, which are no such cells.
    fn lines(&self) -> Vec<(&[BatchCell], Vec<Cell>)> {
        let mut lines = Vec::new();
        let mut add = |row, framework, cells, batches: Vec<Cell>| {
            let names = self.naming(row, framework).into_iter();
            let names = names.map(|(_, value)| Cell::from(value));
            lines.push((cells, names.chain(batches).collect()));
        };
        for row in &self.rows {
            let batches = row.cells.iter().map(|cell| Self::batch(row, cell));
            add(row, in_burn(), &row.cells[..], batches.collect());
            if let Some(pytorch) = &row.pytorch {
                let tokens = match row.unit {
                    Unit::Samples => 1,
                    Unit::Tokens => row.asked.input.tokens().unwrap_or(1) as u64,
                };
                let batches = pytorch.max_batches.iter();
                let batches = batches.map(|batch| batch.map(|batch| batch * tokens).into());
                add(row, in_pytorch_of(pytorch), &[], batches.collect());
            }
        }
        lines
    }

    /// The table of batches: a line for each model, precision and framework, a column for each card.
    fn batches(&self) -> Table {
        let first = self.rows.first();
        let names = first.map(|row| self.naming(row, String::new()));
        let names = names.unwrap_or_default().into_iter();
        let names = names.map(|(name, _)| column(name, name.replace(' ', "_")));
        let cards = self.cards.iter().map(|card| {
            let label = card.label.clone();
            column(label.clone(), label)
        });
        Table {
            title: String::new(),
            columns: names.chain(cards).collect(),
            rows: self.lines().into_iter().map(|(_, cells)| cells).collect(),
        }
    }

    /// The cells without a batch: rows, cards, reason. Cards with the same reason are in one entry, and then
    /// rows with the same cards and reason.
    fn empty_cells(&self) -> Vec<[String; 3]> {
        let mut rows: IndexMap<(String, String), Vec<String>> = IndexMap::new();
        for row in &self.rows {
            let mut cards: IndexMap<String, Vec<&str>> = IndexMap::new();
            for (card, cell) in self.cards.iter().zip(&row.cells) {
                if let Some(reason) = reason(cell) {
                    cards.entry(reason).or_default().push(&card.label);
                }
            }
            for (reason, cards) in cards {
                let name = self.row_name(row);
                let same = rows.entry((cards.join(", "), reason)).or_default();
                same.push(name);
            }
        }
        let rows = rows.into_iter();
        rows.map(|((cards, reason), names)| [names.join("; "), cards, reason])
            .collect()
    }

    /// The model and the precision of `row`, and the sizes of a sample if that is not plain.
    fn row_name(&self, row: &Row) -> String {
        let of = |row: &Row| (row.asked.model.clone(), row.asked.precision);
        let same = self.rows.iter().filter(|other| of(other) == of(row));
        let mut parts = vec![row.asked.model.clone()];
        if same.count() > 1 {
            parts.extend(sample(&row.asked));
        }
        parts.push(row.asked.precision.to_string());
        parts.join(", ")
    }

    /// The assumptions of the whole table.
    pub fn assumptions(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.complete {
            lines.push(format!(
                "this table is partial: Ctrl-C came before the cells with {}",
                Cell::NotReached.text()
            ));
        }
        if self.rows.iter().any(|row| row.unit == Unit::Tokens) {
            lines.push("tokens: of a translation the longer side counts".into());
        }
        lines.extend(self.cards.iter().find_map(|card| nccl_lines(&card.gpu)));
        let mut mismatches: Vec<_> = self.rows.iter().filter_map(Self::mismatch).collect();
        mismatches.dedup();
        lines.extend(mismatches);
        lines.extend(self.method());
        if self.has_pytorch() {
            lines.push("in PyTorch from recordings of some batches".into());
            let without = self.rows.iter().filter(|row| row.pytorch.is_none());
            let without: Vec<_> = without.map(|row| self.row_name(row)).collect();
            if !without.is_empty() {
                lines.push(format!(
                    "not recorded in PyTorch like this: {}; --framework pytorch records a path now",
                    without.join("; ")
                ));
            }
        }
        lines
    }

    /// That the weights file of the model of `row` does not match its network.
    fn mismatch(row: &Row) -> Option<String> {
        let mismatch = mismatch(row.asked.weights.as_ref()?)?;
        Some(format!("{}: {mismatch}", row.asked.model))
    }

    /// How the largest batches were found.
    fn method(&self) -> Vec<String> {
        let by = |method| {
            let cells = self.cells();
            cells.filter(|cell| cell.method == Some(method)).count()
        };
        let (run, replayed) = (by(Method::Simulation), by(Method::Replay));
        if run + replayed == 0 {
            return Vec::new();
        }
        let burn = &self.rows[0].asked.burn;
        let all = format!(
            "each batch and the next, which does not fit, were run on a simulated card{}",
            in_which_runs(burn)
        );
        let tuned = if burn.autotune {
            " with tuned kernels"
        } else {
            ""
        };
        let replays = format!(
            "in {replayed} of {} cells (method: replay) the runs{tuned} were run on a larger card with the same kernels, and their \
             calls were repeated in this card's memory",
            run + replayed
        );
        let replays = (replayed > 0).then_some(replays);
        [all].into_iter().chain(replays).collect()
    }

    /// Usable memory by card, as a line: `8 GB: 7.62 GiB`.
    fn memory(&self) -> String {
        let cards = self.cards.iter();
        let sizes = cards.map(|card| format!("{} {}", card.label, card.gpu.usable_bytes));
        format!("usable: {}", sizes.collect::<Vec<_>>().join(", "))
    }
}

fn in_burn() -> String {
    format!("burn {}", Burn::VERSION)
}

fn in_pytorch_of(cells: &TorchCells) -> String {
    let version = cells.version.split('+').next().unwrap_or_default();
    format!("PyTorch {version}")
}

/// Why `cell` has no batch; none if it has one, or if Ctrl-C came first.
fn reason(cell: &BatchCell) -> Option<String> {
    match (&cell.error, cell.max_batch) {
        (Some(Error::Interrupted), _) => None,
        (Some(error), _) => Some(first_line(error)),
        (None, Some(0)) => cell.refused.clone(),
        _ => None,
    }
}

/// The title of the table of cells without a batch.
const EMPTY_CELLS: &str = "Cells without a batch";

impl Report for TableReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", wrapped(&self.title(), 0, 2));
        page += &columns(&self.batches());
        page.push('\n');
        let empty = self.empty_cells();
        for [names, cards, why] in &empty {
            let none = styled(BAD, format!("{names} on {cards}"));
            let _ = writeln!(page, "{}", wrapped(&format!("{none}: {why}"), 2, 4));
        }
        if !empty.is_empty() {
            page.push('\n');
        }
        for line in self.assumptions().into_iter().chain([self.memory()]) {
            page += &styled(FAINT, wrapped_lines(&line, 2).trim_end());
            page.push('\n');
        }
        page
    }

    fn headline(&self) -> String {
        self.title()
    }

    fn tables(&self) -> Vec<Table> {
        let empty = self.empty_cells();
        let mut tables = vec![self.batches()];
        if !empty.is_empty() {
            tables.push(Table {
                title: EMPTY_CELLS.into(),
                columns: vec![
                    column("model and precision", "job"),
                    column("card", "card"),
                    column("why", "reason"),
                ],
                rows: empty
                    .into_iter()
                    .map(|row| row.map(Cell::from).into())
                    .collect(),
            });
        }
        tables
    }

    /// The table of batches, and the framework in each row.
    fn csv(&self) -> Table {
        let mut table = self.batches();
        if !self.has_pytorch() {
            table.columns.insert(0, column("framework", "framework"));
            for row in &mut table.rows {
                row.insert(0, in_burn().into());
            }
        }
        table
    }

    fn html(&self) -> Option<String> {
        let table = self.batches();
        let names = table.columns.len() - self.cards.len();
        let empty = self.empty_cells();
        // What a pointer over a batch shows.
        let why = |cells: &[BatchCell], card: usize| {
            let cell = cells.get(card)?;
            reason(cell).or_else(|| cell.refused.clone())
        };
        let body = html! {
            h1 { (self.title()) }
            div class="wide" {
                table {
                    thead {
                        tr {
                            @for column in &table.columns[..names] { th { (column.name) } }
                            @for card in &self.cards {
                                th title=(format!("{}, {} usable", card.gpu.name, card.gpu.usable_bytes)) {
                                    (card.label)
                                }
                            }
                        }
                    }
                    tbody {
                        @for (cells, line) in &self.lines() {
                            tr {
                                @for name in &line[..names] { td { (name.text()) } }
                                @for (card, batch) in line[names..].iter().enumerate() {
                                    td class="number" title=[why(cells, card)] { (batch.text()) }
                                }
                            }
                        }
                    }
                }
            }
            (charts(&self.sweeps()))
            @if !empty.is_empty() {
                h2 { (EMPTY_CELLS) }
                ul {
                    @for [names, cards, why] in &empty {
                        li { (names) " on " (cards) ": " (why) }
                    }
                }
            }
            @for line in self.assumptions().into_iter().chain([self.memory()]) {
                p class="faint" { (line) }
            }
        };
        Some(page(&body))
    }
}

/// The style of a table's page: readable on a phone and in the dark, self-contained.
const STYLE: &str = include_str!("table.css");

/// The page of a table, with the style of its curves.
pub(super) fn page(body: &Markup) -> String {
    let style = [curve::style().as_str(), chart::ON_PAGE, STYLE].concat();
    document("Largest batches", &style, body)
}
