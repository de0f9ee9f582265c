//! Tables of largest batches.

use std::borrow::Cow;
use std::fmt::Write;

use estimator::{Error, Limit};
use indexmap::IndexMap;
use maud::html;

use super::html::document;
use super::page::{BAD, FAINT, columns, grouped, styled};
use super::pages::burn;
use super::{Report, Sheet};
use crate::preset::Unit;
use crate::table::{Cell, Method, Row, TableReport};

/// What stands for a cell that Ctrl-C came before.
const NOT_REACHED: &str = "…";

impl TableReport {
    /// The text of `cell`, each number as `number` writes it.
    fn text(&self, row: &Row, cell: &Cell, number: fn(u64) -> String) -> String {
        match (self.shown(row, cell), &cell.error) {
            (Some(batch), _) => number(batch),
            (None, Some(Error::Interrupted)) => NOT_REACHED.into(),
            (None, _) => "-".into(),
        }
    }

    /// The columns that name a row: header and value.
    fn naming(&self, row: &Row) -> Vec<(&'static str, String)> {
        let mut names = vec![
            ("model", row.asked.model.clone()),
            ("precision", row.asked.precision.to_string()),
        ];
        if let Some(published) = &row.published_as {
            names.insert(0, ("published as", published.clone()));
        }
        if self.preset.is_some() || self.rows.iter().any(|row| row.unit == Unit::Tokens) {
            names.push(("in", row.unit.to_string()));
        }
        names
    }

    fn sheet(&self, number: fn(u64) -> String) -> Sheet {
        let first = self.rows.first();
        let names = first.map(|row| self.naming(row)).unwrap_or_default();
        let names = names.into_iter().map(|(name, _)| Cow::Borrowed(name));
        let cards = self.cards.iter().map(|card| card.label.clone().into());
        Sheet {
            title: String::new(),
            header: names.chain(cards).collect(),
            rows: self
                .rows
                .iter()
                .map(|row| {
                    let names = self.naming(row).into_iter().map(|(_, value)| value);
                    let cells = row.cells.iter().map(|cell| self.text(row, cell, number));
                    names.chain(cells).collect()
                })
                .collect(),
        }
    }

    /// Why there is nothing in a cell: rows, cards, reason. What is the same of several cards,
    /// and then of several rows, is said once.
    fn empty_cells(&self) -> Sheet {
        let mut rows: IndexMap<(String, String), Vec<String>> = IndexMap::new();
        for row in &self.rows {
            let mut cards: IndexMap<String, Vec<&str>> = IndexMap::new();
            for (card, cell) in self.cards.iter().zip(&row.cells) {
                if let Some(reason) = reason(cell) {
                    cards.entry(reason).or_default().push(&card.label);
                }
            }
            for (reason, cards) in cards {
                let name = format!("{}, {}", row.asked.model, row.asked.precision);
                let same = rows.entry((cards.join(", "), reason)).or_default();
                same.push(name);
            }
        }
        let rows = rows.into_iter();
        Sheet {
            title: "Where there is none".into(),
            header: Sheet::header(["model and precision", "card", "why"]),
            rows: rows
                .map(|((cards, reason), names)| vec![names.join("; "), cards, reason])
                .collect(),
        }
    }

    /// What the whole table rests on.
    pub(crate) fn assumptions(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.complete {
            lines.push(format!(
                "this table is partial: Ctrl-C came before the cells with {NOT_REACHED}"
            ));
        }
        if self.rows.iter().any(|row| row.unit == Unit::Tokens) {
            lines.push("tokens: of a translation the longer side counts".into());
        }
        if self.powers_of_two {
            lines.push("rounded down to powers of two".into());
        }
        lines.extend(self.method());
        lines.extend(self.rows.first().map(|row| burn(&row.asked)));
        lines
    }

    /// How the largest batches were found.
    fn method(&self) -> Vec<String> {
        let by = |method| {
            let cells = self.cells();
            cells.filter(|cell| cell.method == Some(method)).count()
        };
        let (run, replayed) = (by(Method::Simulation), by(Method::Replay));
        if replayed == 0 {
            return vec![
                "each batch was run on a simulated card, and so was the next larger, which does \
                 not fit"
                    .into(),
            ];
        }
        vec![
            format!(
                "in {run} of {} cells the batch was run on a simulated card, and so was the next \
                 larger, which does not fit",
                run + replayed
            ),
            format!(
                "in {replayed} both were replayed: two small batches foretell the calls, and did \
                 so, to the byte, for a run on a larger card with these kernels"
            ),
        ]
    }

    /// Usable memory by card, as a line: `8 GB: 7.62 GiB`.
    fn memory(&self) -> String {
        let cards = self.cards.iter();
        let each = cards.map(|card| format!("{} {}", card.label, card.gpu.usable_bytes));
        format!("usable: {}", each.collect::<Vec<_>>().join(", "))
    }
}

/// Why there is no batch in `cell`, if there is none and it was looked for.
fn reason(cell: &Cell) -> Option<String> {
    match (&cell.error, cell.max_batch) {
        (Some(Error::Interrupted), _) => None,
        (Some(error), _) => Some(first_line(&error.to_string()).to_string()),
        (None, Some(0)) => {
            let refused = cell.refused.clone()?;
            Some(match cell.limit {
                Some(Limit::SingleAllocation) => format!("{refused}, it is too large for one"),
                _ => refused,
            })
        }
        _ => None,
    }
}

/// What a panic says first.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

impl Report for TableReport {
    fn page(&self) -> String {
        let mut page = columns(&self.sheet(grouped));
        page.push('\n');
        let empty = self.empty_cells();
        for row in &empty.rows {
            if let [names, cards, why] = row.as_slice() {
                let none = styled(BAD, format!("{names} on {cards}"));
                let _ = writeln!(page, "  {none}: {why}");
            }
        }
        if !empty.rows.is_empty() {
            page.push('\n');
        }
        for line in self.assumptions().into_iter().chain([self.memory()]) {
            let _ = writeln!(page, "  {}", styled(FAINT, line));
        }
        page
    }

    fn sheets(&self) -> Vec<Sheet> {
        let empty = self.empty_cells();
        let mut sheets = vec![self.sheet(|number| number.to_string())];
        if !empty.rows.is_empty() {
            sheets.push(empty);
        }
        sheets
    }

    fn html(&self) -> Option<String> {
        let sheet = self.sheet(grouped);
        let names = sheet.header.len() - self.cards.len();
        let empty = self.empty_cells();
        let body = html! {
            h1 { "Largest batches" }
            div class="wide" {
                table {
                    thead {
                        tr {
                            @for name in &sheet.header[..names] { th { (name) } }
                            @for card in &self.cards {
                                th title=(format!("{}, {} usable", card.gpu.name, card.gpu.usable_bytes)) {
                                    (card.label)
                                }
                            }
                        }
                    }
                    tbody {
                        @for (row, texts) in self.rows.iter().zip(&sheet.rows) {
                            tr {
                                @for name in &texts[..names] { td { (name) } }
                                @for (cell, text) in row.cells.iter().zip(&texts[names..]) {
                                    td class="number" title=[reason(cell).or_else(|| cell.refused.clone())] {
                                        (text)
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @if !empty.rows.is_empty() {
                h2 { (empty.title) }
                ul {
                    @for row in &empty.rows {
                        li { (row[..2].join(" on ")) ": " (row[2]) }
                    }
                }
            }
            @for line in self.assumptions().into_iter().chain([self.memory()]) {
                p class="faint" { (line) }
            }
        };
        Some(document("Largest batches", STYLE, &body))
    }
}

/// Readable on a phone and in the dark, without anything from elsewhere.
const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #8884; text-align: left; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.faint { opacity: .7; margin: .2rem 0; }
";
