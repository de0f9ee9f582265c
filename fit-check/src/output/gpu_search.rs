//! The cards on which a step fits.

use std::collections::BTreeMap;
use std::fmt::Write;

use estimator::Bytes;

use super::job_lines::{burn, headline};
use super::terminal::{BAD, FAINT, columns, styled};
use super::{Cell, Report, Table, column};
use crate::gpu_search::FitsReport;

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

impl Report for FitsReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", headline(&self.asked));
        match self.cards.as_slice() {
            [] => {
                let none = match self.undetermined.is_empty() {
                    true => "fits on no card of the catalogue",
                    false => "fits on no card of which that is known",
                };
                let none = styled(BAD, none);
                let _ = writeln!(page, "  {none}");
            }
            _ => page += &columns(&self.tables()[0]),
        }
        page.push('\n');
        for (error, cards) in self.undetermined() {
            let _ = writeln!(page, "  no answer for {}: {error}", cards.join(", "));
        }
        let _ = writeln!(page, "  {}", styled(FAINT, burn(&self.asked)));
        page
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.cards.iter().map(|card| {
            vec![
                card.gpu.name.clone().into(),
                card.alias.into(),
                Cell::Decimal(card.marketed_gb, "GB"),
                card.gpu.usable_bytes.into(),
                card.required_bytes.into(),
                match u64::try_from(card.headroom_bytes) {
                    Ok(headroom) => Bytes(headroom).into(),
                    Err(_) => Cell::Difference(card.headroom_bytes),
                },
                match card.launch_price_usd {
                    Some(price) => Cell::Decimal(price, "USD"),
                    None => Cell::Missing,
                },
            ]
        });
        vec![Table {
            title: String::new(),
            columns: vec![
                column("card", "card"),
                column("type", "alias"),
                column("sold as", "marketed_gb"),
                column("usable", "usable_bytes"),
                column("needs", "required_bytes"),
                column("to spare", "headroom_bytes"),
                column("at launch", "launch_price_usd"),
            ],
            rows: rows.collect(),
        }]
    }
}
