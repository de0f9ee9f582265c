//! The cards on which a step fits.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::job_lines::{headline, nccl_lines, notes, short};
use super::terminal::{BAD, FAINT, columns, styled, wrapped, wrapped_lines};
use super::{Cell, Report, Table};
use crate::gpu_search::{FitsReport, FittingGpu, NearestGpu};

impl FitsReport {
    /// The cards without an answer, by error.
    fn undetermined(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut by_error: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for card in &self.undetermined {
            by_error
                .entry(&card.error)
                .or_default()
                .push(&card.gpu.name);
        }
        by_error
    }
}

/// The card that comes nearest, and what the step needs there.
pub(super) fn nearest_line(nearest: &NearestGpu) -> String {
    let verdict = &nearest.verdict;
    format!(
        "needs {} of {} on the nearest, {}: {}\n",
        verdict.required_bytes,
        verdict.available(),
        verdict.gpu.name,
        short(verdict),
    )
}

/// [`nearest_line`], and how to ask for what would help.
fn nearest(nearest: &NearestGpu) -> String {
    let lines = nearest_line(nearest);
    let alias = nearest.alias;
    let lines = format!(
        "{lines}`fit-check estimate` with the same job and --gpu {alias} --advise simulates changes with which it would fit\n"
    );
    wrapped_lines(&lines, 2)
}

/// The cards on which a step fits.
pub(super) fn card_table(cards: &[FittingGpu]) -> Table {
    Table::of("", cards)
        .column("card", |card| &card.gpu.name)
        .column_as("--gpu", "alias", |card| card.alias)
        .column_as("sold as", "marketed_gb", |card| {
            Cell::Decimal(card.marketed_gb, "GB")
        })
        .column_as("available", "available_bytes", |card| card.gpu.available())
        .column_as("needs", "required_bytes", |card| card.required_bytes)
        .column_as("to spare", "headroom_bytes", |card| {
            Cell::headroom(card.headroom_bytes)
        })
        .column_as("at launch", "launch_price_usd", |card| {
            card.launch_price_usd
                .map(|price| Cell::Decimal(price, "USD"))
        })
        .build()
}

impl Report for FitsReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", wrapped(&self.headline(), 0, 2));
        match self.cards.as_slice() {
            [] => {
                let none = match self.undetermined.is_empty() {
                    true => format!(
                        "fits on no card of the catalogue that {} drives",
                        self.asked.runtime
                    ),
                    false => "fits on no card of which that is known".into(),
                };
                let none = styled(BAD, none);
                let _ = writeln!(page, "  {none}");
                page += &self.nearest.as_ref().map(nearest).unwrap_or_default();
            }
            _ => page += &columns(&self.tables()[0]),
        }
        page.push('\n');
        for (error, cards) in self.undetermined() {
            let line = format!("no answer for {}: {error}", cards.join(", "));
            let _ = writeln!(page, "{}", wrapped(&line, 2, 4));
        }
        let mut all = self.cards.iter().map(|card| &card.gpu);
        if let Some(nccl) = all.next().and_then(nccl_lines) {
            let _ = writeln!(page, "{}", styled(FAINT, wrapped(&nccl, 2, 4)));
        }
        let _ = writeln!(page, "{}", styled(FAINT, notes(&self.asked).trim_end()));
        page
    }

    fn headline(&self) -> String {
        headline(&self.asked)
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![card_table(&self.cards)];
        if !self.undetermined.is_empty() {
            let undetermined = Table::of("No answer", &self.undetermined)
                .column("card", |card| &card.gpu.name)
                .column_as("why", "reason", |card| &card.error);
            tables.push(undetermined.build());
        }
        tables
    }
}
