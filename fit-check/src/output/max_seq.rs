//! The answer of `max-seq`.

use std::fmt::Write;

use super::estimate::with_job;
use super::job_lines::{found_needs, headline, nccl_lines, search_page};
use super::terminal::{BAD, GOOD, grouped, styled, wrapped_lines};
use super::{Report, Table};
use crate::report::{CardLength, MaxSeqReport};
use crate::step::LENGTH_STEP;

/// The lines about `card`: its longest sequence and what it needs, and why the next does not fit.
fn length_lines(card: &CardLength) -> String {
    let gpu = &card.gpu;
    let answer = match card.max_seq {
        0 => styled(BAD, format!("not even {LENGTH_STEP} tokens fit")),
        tokens => styled(GOOD, format!("{} tokens", grouped(tokens))),
    };
    let mut lines = format!("{answer} on {}\n", gpu.name);
    if let Some(peak) = &card.at_max {
        let needs = found_needs(gpu, peak.required_bytes, Some(peak.device_bytes));
        let _ = writeln!(lines, "{needs}");
    }
    let _ = match &card.next {
        Some(next) => writeln!(lines, "  {} tokens: {}", grouped(next.seq), next.refused),
        None => writeln!(lines, "  the model takes no longer ones"),
    };
    if let Some(nccl) = nccl_lines(gpu) {
        let _ = writeln!(lines, "  {nccl}");
    }
    wrapped_lines(&lines, 2)
}

impl Report for MaxSeqReport {
    fn terminal(&self) -> String {
        let method = format!(
            "multiples of {LENGTH_STEP} tokens were tried; the length and the next were run on a simulated card of this size"
        );
        let found = self.cards.iter().map(length_lines);
        search_page(&self.headline(), found, &self.asked, &method)
    }

    fn headline(&self) -> String {
        format!("{}: the longest sequence", headline(&self.asked))
    }

    fn tables(&self) -> Vec<Table> {
        let table = with_job(Table::of("", &self.cards), |_| &self.asked)
            .column("batch", |_| self.asked.batch)
            .column("gpu", |c| &c.gpu.name)
            .column_as("usable", "usable_bytes", |c| c.gpu.usable_bytes)
            .column_as("longest", "max_seq", |c| c.max_seq)
            .column_as("required", "required_bytes", |c| {
                c.at_max.as_ref().map(|at| at.required_bytes)
            })
            .column_as("next", "next_seq", |c| c.next.as_ref().map(|next| next.seq))
            .column_as("why not the next", "next_refused", |c| {
                c.next.as_ref().map(|next| &next.refused)
            })
            .build();
        vec![table]
    }
}
