//! The largest batches of a PyTorch program.

use std::fmt::Write;

use super::terminal::{BAD, FAINT, GOOD, TITLE, columns, styled};
use super::{Report, Table};
use crate::torch_program::batches::{TorchBatchReport, TorchCardBatch, TorchTableReport};

/// The lines about `card`.
fn card_lines(card: &TorchCardBatch) -> String {
    let answer = match card.max_batch {
        0 => styled(BAD, "not even one sample fits"),
        batch => styled(GOOD, format!("batch {batch}")),
    };
    let gpu = &card.gpu;
    let shares = format!(
        "{} usable, {} for the process",
        gpu.usable_bytes, gpu.overhead_bytes
    );
    let mut lines = format!("  {answer} on {}  {}\n", gpu.name, styled(FAINT, shares));
    if let Some(at) = &card.at_max {
        let _ = writeln!(
            lines,
            "    batch {:<6} needs {:>10}, {} allocated and {} reserved on a card with enough memory",
            at.batch,
            at.required_bytes.to_string(),
            at.allocated_bytes,
            at.reserved_bytes
        );
    }
    let next = &card.next;
    let _ = writeln!(
        lines,
        "    batch {:<6} needs {:>10}: {}",
        next.batch,
        next.required_bytes.to_string(),
        card.next_refused
    );
    if let Some(batch) = card.expandable_batch {
        let _ = writeln!(
            lines,
            "    with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True batch {batch} fits (by replay)"
        );
    }
    if let Some(why) = &card.unconfirmed {
        let _ = writeln!(lines, "    found by replay: {why}");
    }
    lines
}

impl Report for TorchTableReport {
    fn terminal(&self) -> String {
        let mut page = columns(&self.tables()[0]);
        let stack = format!(
            "PyTorch {}; found by replay of two small batches that were recorded beforehand",
            self.torch.version
        );
        let _ = writeln!(page, "\n  {}", styled(FAINT, stack));
        page
    }

    fn tables(&self) -> Vec<Table> {
        let mut table = Table::of("", &self.rows)
            .column("model", |row| &row.model)
            .column("precision", |row| &row.precision);
        for (index, card) in self.cards.iter().enumerate() {
            table = table.column(card.clone(), move |row| row.batches[index]);
        }
        vec![table.build()]
    }
}

impl Report for TorchBatchReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}: largest batch\n\n", styled(TITLE, &self.program));
        for card in &self.cards {
            page += &card_lines(card);
            page.push('\n');
        }
        let recorded = match self.cards.iter().all(|card| card.unconfirmed.is_none()) {
            true => "; both batches were recorded",
            false => "",
        };
        let stack = format!("PyTorch {}{recorded}", self.torch.version);
        let _ = writeln!(page, "  {}", styled(FAINT, stack));
        page
    }

    fn tables(&self) -> Vec<Table> {
        let table = Table::of("", &self.cards)
            .column("program", |_| &self.program)
            .column("torch", |_| &self.torch.version)
            .column("gpu", |card| &card.gpu.name)
            .column_as("usable", "usable_bytes", |card| card.gpu.usable_bytes)
            .column_as("largest batch", "max_batch", |card| card.max_batch)
            .column_as("needs", "required_bytes", |card| {
                card.at_max.as_ref().map(|at| at.required_bytes)
            })
            .column_as("next batch", "next_batch", |card| card.next.batch)
            .column_as("next needs", "next_required_bytes", |card| {
                card.next.required_bytes
            })
            .column_as("with expandable segments", "expandable_batch", |card| {
                card.expandable_batch
            })
            .column("confirmed", |card| card.unconfirmed.is_none())
            .column_as("why not the next", "next_refused", |card| {
                &card.next_refused
            });
        vec![table.build()]
    }
}
