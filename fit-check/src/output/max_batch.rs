//! The answer of `max-batch`.

use std::fmt::Write;

use estimator::Limit;

use super::advice;
use super::estimate::with_job;
use super::job_lines::{found_needs, headline, in_tokens, nccl_lines, search_page};
use super::terminal::{BAD, GOOD, grouped, styled, wrapped_lines};
use super::{Report, Table};
use crate::report::{CardBatch, MaxBatchReport};

/// The lines about `card`: its largest batch and what it needs, and why the next does not fit.
fn batch_lines(card: &CardBatch) -> String {
    let gpu = &card.gpu;
    let answer = match card.max_batch {
        0 if card.next.batch > 1 => {
            styled(BAD, format!("not even {} samples fit", card.next.batch))
        }
        0 => styled(BAD, "not even one sample fits"),
        batch => styled(GOOD, format!("batch {batch}{}", in_tokens(card.max_tokens))),
    };
    let mut lines = match gpu.group {
        None => format!("{answer} on {}\n", gpu.name),
        Some(group) => format!(
            "{answer} on each of {}, {} in all\n",
            gpu.name,
            grouped(card.max_batch * group.count as u64)
        ),
    };
    let needs = match &card.at_max {
        Some(peak) => found_needs(gpu, peak.required_bytes, Some(peak.device_bytes)),
        None => found_needs(gpu, card.next.peak.required_bytes, None),
    };
    let _ = writeln!(lines, "{needs}");
    let _ = writeln!(lines, "  batch {}: {}", card.next.batch, card.next.refused);
    if let Some(pytorch) = &card.pytorch {
        let _ = writeln!(
            lines,
            "  in PyTorch {}: batch {} (--framework pytorch)",
            pytorch.version, pytorch.max_batch
        );
    }
    if let Some(nccl) = nccl_lines(gpu) {
        let _ = writeln!(lines, "  {nccl}");
    }
    wrapped_lines(&lines, 2)
}

impl Report for MaxBatchReport {
    fn terminal(&self) -> String {
        let mut page = search_page(
            &self.headline(),
            self.cards.iter().map(batch_lines),
            &self.asked,
            "the batch and the next were run on a simulated card of this size",
        );
        page += &advice::end_of_page(self.advice.as_ref(), self.offers_advice);
        page
    }

    fn headline(&self) -> String {
        format!("{}: the largest batch", headline(&self.asked))
    }

    fn tables(&self) -> Vec<Table> {
        let table = with_job(Table::of("", &self.cards), |_| &self.asked)
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
            .column_as("why not the next", "next_refused", |c| &c.next.refused)
            .build();
        let advice = self.advice.iter().map(advice::table);
        std::iter::once(table).chain(advice).collect()
    }
}
