//! The answer of `max-batch`.

use std::fmt::Write;

use estimator::{Bytes, Limit};

use super::advice;
use super::job_lines::{assumptions, headline, in_tokens};
use super::terminal::{BAD, FAINT, GOOD, styled};
use super::{Report, Table};
use crate::report::{CardBatch, MaxBatchReport};

/// The line with the largest batch on `card`, and with the usable memory of the card if a process takes some of it.
fn answer_line(card: &CardBatch) -> String {
    let answer = match card.max_batch {
        0 if card.next.batch > 1 => {
            styled(BAD, format!("not even {} samples fit", card.next.batch))
        }
        0 => styled(BAD, "not even one sample fits"),
        batch => styled(GOOD, format!("batch {batch}{}", in_tokens(card.max_tokens))),
    };
    let gpu = &card.gpu;
    let (usable, overhead) = (gpu.usable_bytes, gpu.overhead_bytes);
    let usable = match overhead {
        Bytes::ZERO => String::new(),
        _ => {
            let shares = format!("{usable} usable, {overhead} for the process");
            format!("  {}", styled(FAINT, shares))
        }
    };
    format!("  {answer} on {}{usable}\n", gpu.name)
}

/// The lines about `card`: its largest batch, the next, and what is uncertain about them.
fn batch_lines(card: &CardBatch) -> String {
    let mut lines = answer_line(card);
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
    if card.fits_without_overwriting == Some(false) {
        let _ = writeln!(
            lines,
            "    batch {:<6} does not fit where burn does not overwrite some operands, as can happen in a long training",
            card.max_batch
        );
    }
    if let Some(run) = &card.replayed_from {
        let _ = writeln!(
            lines,
            "    found by replaying the calls of batch {} on {}, which has the same kernels",
            run.batch, run.gpu
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
        let any = |is: fn(&CardBatch) -> bool| self.cards.iter().any(is);
        let any_replayed = any(|card| card.replayed_from.is_some());
        let ran = match (any_replayed, any(|card| card.max_batch == 0)) {
            (true, _) => {
                "--no-cache runs every batch that is named on a simulated card of that size"
            }
            (false, false) => "both batches were run on a simulated card of this size",
            (false, true) => "every batch that is named was run on a simulated card of that size",
        };
        let may_ask = any(|card| card.max_batch > 0 && card.every_run_batch.is_none());
        let others = match (may_ask, any_replayed) {
            (false, _) => "",
            (true, true) => {
                "; in a long training a step can now and then need more: --every-run tries such steps"
            }
            (true, false) => {
                "; in a long training a step can now and then need more: one such step was run, --every-run tries others"
            }
        };
        for line in [assumptions(&self.asked), format!("{ran}{others}")] {
            let _ = writeln!(page, "  {}", styled(FAINT, line));
        }
        page += &advice::end_of_page(self.advice.as_ref(), self.offers_advice);
        page
    }

    fn tables(&self) -> Vec<Table> {
        let asked = &self.asked;
        let table = Table::of("", &self.cards)
            .column("model", |_| &asked.model)
            .column("precision", |_| asked.precision.to_string())
            .column("optimizer", |_| asked.optimizer.to_string())
            .column("runtime", |_| asked.runtime.to_string())
            .column("gpu", |c| &c.gpu.name)
            .column_as("usable", "usable_bytes", |c| c.gpu.usable_bytes)
            .column_as("largest batch", "max_batch", |c| c.max_batch)
            .column_as("required", "required_bytes", |c| {
                c.at_max.as_ref().map(|at| at.required_bytes)
            })
            .column_as("live", "live_bytes", |c| {
                c.at_max.as_ref().map(|at| at.live_bytes)
            })
            .column_as("next batch", "next_batch", |c| c.next.batch)
            .column_as("next required", "next_required_bytes", |c| {
                c.next.peak.required_bytes
            })
            .column("limit", |c| match c.limit {
                Limit::DeviceMemory => "device memory",
                Limit::SingleAllocation => "single allocation",
            })
            .column_as("tokens", "max_tokens", |c| c.max_tokens)
            .column_as("without overwriting", "fits_without_overwriting", |c| {
                c.fits_without_overwriting
            })
            .column_as("in every run", "every_run_batch", |c| c.every_run_batch)
            .column_as("smaller, refused", "smaller_refused", |c| c.smaller_refused)
            .column("method", |c| match c.replayed_from {
                Some(_) => "replay",
                None => "simulation",
            })
            .column_as("why not the next", "next_refused", |c| &c.next.refused)
            .build();
        let advice = self.advice.iter().map(advice::table);
        std::iter::once(table).chain(advice).collect()
    }
}
