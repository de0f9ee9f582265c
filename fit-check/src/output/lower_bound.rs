//! The lower bound of weights, as a page and as tables.

use std::fmt::Write;

use estimator::Bytes;

use super::job_lines::headline;
use super::terminal::{BAD, FAINT, TITLE, columns, grouped, styled};
use super::{Cell, Report, Table};
use crate::lower_bound::{Bound, LowerBound, Part};

impl LowerBound {
    fn rows(&self) -> [(&'static str, Bytes); 5] {
        [
            ("weights", self.held.weights_bytes),
            ("gradients", self.held.gradients_bytes),
            ("optimizer", self.held.optimizer_bytes),
            ("fp32 copies", self.held.master_bytes),
            ("buffers", self.held.buffers_bytes),
        ]
    }
}

fn verdict(bound: &Bound, at_least: Bytes) -> String {
    let name = &bound.gpu.name;
    match (bound.fits, &bound.reason) {
        (Some(false), Some(reason)) => format!(
            "{} on {name}: without any activations, {reason}",
            styled(BAD, "does not fit")
        ),
        (Some(false), None) => format!(
            "{} on {name}: at least {at_least}, without any activations",
            styled(BAD, "does not fit")
        ),
        _ => format!(
            "{} on {name}: {} at most are left for the activations",
            styled(TITLE, "unknown"),
            Bytes(bound.headroom_bytes.max(0) as u64)
        ),
    }
}

fn cards(bounds: &[Bound]) -> Table {
    Table::of("Cards", bounds)
        .column("gpu", |bound| &bound.gpu.name)
        .column("fits", |bound| bound.fits)
        .column_as("headroom", "headroom_bytes", |bound| {
            Cell::headroom(bound.headroom_bytes)
        })
        .column_as("why", "reason", |bound| bound.reason.as_ref())
        .build()
}

fn parts(title: &str, kind: &'static str, parts: &[Part]) -> Table {
    Table::of(title, parts)
        .column(kind, |part| &part.name)
        .column("tensors", |part| part.tensors)
        .column("parameters", |part| part.parameters)
        .column_as("in the file", "file_bytes", |part| part.bytes)
        .build()
}

impl Report for LowerBound {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", headline(&self.asked));
        for bound in &self.cards {
            let _ = writeln!(page, "  {}", verdict(bound, self.at_least_bytes));
        }
        if !self.cards.is_empty() {
            page.push('\n');
        }
        let _ = writeln!(
            page,
            "  {}  and the activations, which are not known without the network\n",
            styled(
                TITLE,
                format!("{:<11} {:>10}", "at least", self.at_least_bytes.to_string())
            )
        );
        for (name, bytes) in self.rows() {
            if bytes.0 > 0 {
                let _ = writeln!(page, "  {name:<11} {:>10}", bytes.to_string());
            }
        }
        let _ = writeln!(page, "  {:<11} {:>10}", "activations", "unknown");
        let _ = writeln!(
            page,
            "\n  {} trainable parameters{}\n",
            grouped(self.trainable),
            match self.frozen {
                0 => String::new(),
                frozen => format!(", {} frozen", grouped(frozen)),
            }
        );
        page += &columns(&parts("", "type", &self.dtypes));
        page.push('\n');
        page += &columns(&parts("", "module", &self.modules));
        let note = match &self.unsupported {
            Some(why) => format!("\n  {why}"),
            None => "\n  a config.json beside the weights would name the network".into(),
        };
        let _ = writeln!(page, "{}", styled(FAINT, note));
        page
    }

    fn tables(&self) -> Vec<Table> {
        let known = self.rows().into_iter();
        let rows: Vec<_> = known
            .map(|(name, bytes)| (name, Some(bytes)))
            .chain([
                ("activations", None),
                ("at least", Some(self.at_least_bytes)),
            ])
            .collect();
        let held = Table::of("At least", &rows)
            .column("category", |(name, _)| *name)
            .column("bytes", |(_, bytes)| *bytes);
        let mut tables = vec![
            held.build(),
            cards(&self.cards),
            parts("Types", "type", &self.dtypes),
            parts("Modules", "module", &self.modules),
        ];
        tables.retain(|table| !table.rows.is_empty());
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_info::GpuName;

    /// Tensors of no more bytes than a card has can need more pages than it has.
    #[test]
    fn a_refused_card_says_why_in_every_form() {
        let reason = "an allocation of 4.00 KiB in the optimizer phase does not fit";
        let bound = Bound {
            gpu: GpuName {
                name: "a card".into(),
                usable_bytes: Bytes(4096),
                overhead_bytes: Bytes::ZERO,
                provenance: None,
            },
            fits: Some(false),
            headroom_bytes: 0,
            reason: Some(reason.into()),
        };
        let line = verdict(&bound, Bytes(4096));
        assert!(
            line.ends_with(&format!("without any activations, {reason}")),
            "{line}"
        );
        let shown: Vec<_> = cards(&[bound]).rows[0].iter().map(Cell::text).collect();
        assert_eq!(shown, ["a card", "no", "0 B", reason]);
    }
}
