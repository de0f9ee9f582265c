//! The answer of `max-batch`.

use std::fmt::Write;

use estimator::Limit;

use super::advice;
use super::job_lines::{assumptions, headline, in_tokens};
use super::terminal::{BAD, FAINT, GOOD, styled};
use super::{Report, Table, column};
use crate::report::{CardBatch, MaxBatchReport};

fn batch_lines(card: &CardBatch) -> String {
    let mut lines = String::new();
    let answer = match card.max_batch {
        0 if card.next.batch > 1 => {
            styled(BAD, format!("not even {} samples fit", card.next.batch))
        }
        0 => styled(BAD, "not even one sample fits"),
        batch => styled(GOOD, format!("batch {batch}{}", in_tokens(card.max_tokens))),
    };
    let usable = match card.gpu.overhead_bytes.0 {
        0 => String::new(),
        _ => format!(
            "  {}",
            styled(
                FAINT,
                format!(
                    "{} usable, {} for the process",
                    card.gpu.usable_bytes, card.gpu.overhead_bytes
                )
            )
        ),
    };
    let _ = writeln!(lines, "  {answer} on {}{usable}", card.gpu.name);
    if let Some(peak) = &card.at_max {
        let _ = writeln!(
            lines,
            "    batch {:<6} needs {:>10}, {} in use at the peak ({} phase{})",
            card.max_batch,
            peak.required_bytes.to_string(),
            peak.live_bytes,
            peak.phase,
            peak.layer
                .iter()
                .map(|layer| format!(", {layer}"))
                .collect::<String>()
        );
    }
    let _ = writeln!(
        lines,
        "    batch {:<6} needs {:>10}: {}",
        card.next.batch,
        card.next.peak.required_bytes.to_string(),
        card.next.refused
    );
    if let Some(smaller) = card.smaller_refused {
        let _ = writeln!(
            lines,
            "    batch {smaller:<6} does not fit, although it is smaller: look at the one that you choose with `estimate`"
        );
    }
    let every_run = match card.every_run_batch {
        Some(0) if card.max_batch > 0 => "no batch fits in every run that was tried".to_string(),
        Some(batch) if batch > 0 => format!("batch {batch:<6} fits in every run that was tried"),
        _ => return lines,
    };
    let _ = writeln!(
        lines,
        "    {every_run}, also where burn does not overwrite some operands"
    );
    lines
}

impl Report for MaxBatchReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}: largest batch\n\n", headline(&self.asked));
        for card in &self.cards {
            page += &batch_lines(card);
            page.push('\n');
        }
        let ran = match self.cards.iter().all(|card| card.max_batch > 0) {
            true => "both batches were run on a simulated card of this size",
            false => "every batch that is named was run on a simulated card of that size",
        };
        let may_ask = |card: &CardBatch| card.max_batch > 0 && card.every_run_batch.is_none();
        let others = match self.cards.iter().any(may_ask) {
            true => "; a long training meets other runs: --every-run tries some",
            false => "",
        };
        for line in [assumptions(&self.asked), format!("{ran}{others}")] {
            let _ = writeln!(page, "  {}", styled(FAINT, line));
        }
        page += &advice::end_of_page(self.advice.as_ref(), self.offers_advice);
        page
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.cards.iter().map(|card| {
            let at_max = card.at_max.as_ref();
            vec![
                self.asked.model.clone().into(),
                self.asked.precision.to_string().into(),
                self.asked.optimizer.to_string().into(),
                self.asked.runtime.to_string().into(),
                card.gpu.name.clone().into(),
                card.gpu.usable_bytes.into(),
                card.max_batch.into(),
                at_max.map(|at| at.required_bytes).into(),
                at_max.map(|at| at.live_bytes).into(),
                card.next.batch.into(),
                card.next.peak.required_bytes.into(),
                match card.limit {
                    Limit::DeviceMemory => "device memory".into(),
                    Limit::SingleAllocation => "single allocation".into(),
                },
                card.max_tokens.into(),
                card.every_run_batch.into(),
                card.smaller_refused.into(),
            ]
        });
        let table = Table {
            title: String::new(),
            columns: vec![
                column("model", "model"),
                column("precision", "precision"),
                column("optimizer", "optimizer"),
                column("runtime", "runtime"),
                column("gpu", "gpu"),
                column("usable", "usable_bytes"),
                column("largest batch", "max_batch"),
                column("required", "required_bytes"),
                column("live", "live_bytes"),
                column("next batch", "next_batch"),
                column("next required", "next_required_bytes"),
                column("limit", "limit"),
                column("tokens", "max_tokens"),
                column("in every run", "every_run_batch"),
                column("smaller, refused", "smaller_refused"),
            ],
            rows: rows.collect(),
        };
        let advice = self.advice.iter().map(advice::table);
        std::iter::once(table).chain(advice).collect()
    }
}
