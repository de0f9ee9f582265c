//! The cards on which a step fits.

use std::collections::BTreeMap;
use std::fmt::Write;

use estimator::Bytes;

use super::page::{BAD, FAINT, columns, styled};
use super::pages::{burn, headline};
use super::{Report, Sheet};
use crate::fits::FitsReport;

impl FitsReport {
    /// Where it could not be told: the cards, by what went wrong.
    fn not_told(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut by_error: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for card in &self.not_told {
            by_error
                .entry(&card.error)
                .or_default()
                .push(&card.gpu.name);
        }
        by_error
    }
}

impl Report for FitsReport {
    fn page(&self) -> String {
        let mut page = format!("{}\n\n", headline(&self.asked));
        match self.cards.as_slice() {
            [] => {
                let none = styled(BAD, "fits on no card of the catalogue");
                let _ = writeln!(page, "  {none}");
            }
            _ => page += &columns(&self.sheets()[0]),
        }
        page.push('\n');
        for (error, cards) in self.not_told() {
            let _ = writeln!(page, "  not told of {}: {error}", cards.join(", "));
        }
        let _ = writeln!(page, "  {}", styled(FAINT, burn(&self.asked)));
        page
    }

    fn sheets(&self) -> Vec<Sheet> {
        let rows = self.cards.iter().map(|card| {
            vec![
                card.gpu.name.clone(),
                card.handle.to_string(),
                format!("{} GB", card.marketed_gb),
                card.gpu.usable_bytes.to_string(),
                card.required_bytes.to_string(),
                Bytes(card.headroom_bytes.unsigned_abs()).to_string(),
                match card.launch_price_usd {
                    Some(price) => format!("{price} USD"),
                    None => "not known".into(),
                },
            ]
        });
        vec![Sheet {
            title: String::new(),
            header: Sheet::header([
                "card",
                "type",
                "sold as",
                "usable",
                "needs",
                "to spare",
                "at launch",
            ]),
            rows: rows.collect(),
        }]
    }
}
