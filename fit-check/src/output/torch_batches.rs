//! The largest batches of a PyTorch program.

use std::fmt::Write;

use maud::html;

use super::job_lines::{found_needs, in_tokens};
use super::sweep::charts;
use super::table::page;
use super::terminal::{BAD, GOOD, columns, styled, wrapped, wrapped_lines};
use super::torch::{headline, notes, recorded, stack, with_job};
use super::{Cell, Column, Report, Table, column};
use crate::torch_program::batches::{TorchBatchReport, TorchCardBatch, TorchTableReport};

/// The lines about `card`: its largest batch and what it needs, and why the next does not fit.
fn card_lines(card: &TorchCardBatch, is_recorded_now: bool) -> String {
    let answer = match card.max_batch {
        0 => styled(BAD, "not even one sample fits"),
        batch => styled(GOOD, format!("batch {batch}{}", in_tokens(card.max_tokens))),
    };
    let gpu = &card.gpu;
    let needs = match &card.at_max {
        Some(at) => found_needs(gpu, at.required_bytes, Some(at.device_bytes)),
        None => found_needs(gpu, card.next.required_bytes, None),
    };
    let mut lines = format!("{answer} on {}\n{needs}\n", gpu.name);
    let _ = writeln!(lines, "  batch {}: {}", card.next.batch, card.next_refused);
    if let Some(batch) = card.expandable_batch {
        let _ = writeln!(
            lines,
            "  with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: batch {batch}"
        );
    }
    for larger in &card.larger_cards {
        let _ = writeln!(
            lines,
            "  with --gpu {} ({}): batch {}",
            larger.alias, larger.name, larger.max_batch
        );
    }
    if let Some(why) = card.unconfirmed.as_ref().filter(|_| is_recorded_now) {
        let _ = writeln!(
            lines,
            "  from two small batches, since the answer could not be recorded: {why}"
        );
    }
    wrapped_lines(&lines, 2)
}

impl TorchBatchReport {
    /// What is known of all that decides the figures.
    fn facts(&self) -> Vec<String> {
        match &self.job {
            Some(job) => job.recipe(),
            None => self.optimizer.iter().cloned().collect(),
        }
    }

    /// How the batches were found.
    fn method(&self) -> String {
        match &self.recorded_on {
            Some(card) => recorded(card, &self.recorded_batches),
            None if self.cards.iter().all(|card| card.unconfirmed.is_none()) => {
                "the batch and the next were recorded; two small batches told where to look".into()
            }
            None => String::new(),
        }
    }
}

impl Report for TorchBatchReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", wrapped(&self.headline(), 0, 2));
        for card in &self.cards {
            page += &card_lines(card, self.recorded_on.is_none());
            page.push('\n');
        }
        page + &notes(&[
            self.method(),
            stack(&self.torch),
            self.torch.not_on(self.cards.iter().map(|card| &card.gpu)),
        ])
    }

    fn headline(&self) -> String {
        let job = headline(&self.program, &self.torch, &self.facts());
        format!("{job}: the largest batch")
    }

    fn tables(&self) -> Vec<Table> {
        let table = with_job(Table::of("", &self.cards), self.job.as_ref(), &self.torch)
            .column("program", |_| &self.program)
            .column("gpu", |card| &card.gpu.name)
            .column_as("usable", "usable_bytes", |card| card.gpu.usable_bytes)
            .column_as("largest batch", "max_batch", |card| card.max_batch)
            .column_as("needs", "required_bytes", |card| {
                card.at_max.as_ref().map(|at| at.required_bytes)
            })
            .column_as("allocated", "allocated_bytes", |card| {
                card.at_max.as_ref().map(|at| at.allocated_bytes)
            })
            .column_as("reserved", "reserved_bytes", |card| {
                card.at_max.as_ref().map(|at| at.reserved_bytes)
            })
            .column_as("next batch", "next_batch", |card| card.next.batch)
            .column_as("next needs", "next_required_bytes", |card| {
                card.next.required_bytes
            })
            .column_as("with expandable segments", "expandable_batch", |card| {
                card.expandable_batch
            })
            .column("confirmed", |card| card.unconfirmed.is_none())
            .column_as("tokens", "max_tokens", |card| card.max_tokens)
            .column_as("why not the next", "next_refused", |card| {
                &card.next_refused
            });
        vec![table.build()]
    }
}

impl TorchTableReport {
    /// The lines below the table.
    fn notes(&self) -> Vec<String> {
        let sizes = self.cards.iter().zip(&self.gpus);
        let sizes = sizes.map(|(label, gpu)| format!("{label} {}", gpu.usable_bytes));
        let mut lines = vec![
            self.recorded_on
                .as_deref()
                .map(|on| recorded(on, &self.recorded_batches))
                .unwrap_or_default(),
            stack(&self.torch),
            self.torch.not_on(&self.gpus),
            format!("usable: {}", sizes.collect::<Vec<_>>().join(", ")),
        ];
        lines.retain(|line| !line.is_empty());
        lines
    }
}

impl Report for TorchTableReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", wrapped(&self.headline(), 0, 2));
        page += &columns(&self.tables()[0]);
        page.push('\n');
        page + &notes(&self.notes())
    }

    fn headline(&self) -> String {
        match &self.program {
            Some(program) => {
                format!(
                    "{}: the largest batches",
                    headline(program, &self.torch, &[])
                )
            }
            None => format!("Largest batches in PyTorch {}", self.torch.short_version()),
        }
    }

    fn tables(&self) -> Vec<Table> {
        let table = Table::of("", &self.rows);
        let mut table = match &self.program {
            Some(_) => table.column("sequence", |row| &row.recipe),
            None => table
                .column("model", |row| &row.model)
                .column("recipe", |row| &row.recipe)
                .column("precision", |row| &row.precision),
        };
        for (index, card) in self.cards.iter().enumerate() {
            table = table.column(card.clone(), move |row| row.batches[index]);
        }
        vec![table.build()]
    }

    /// The table, and the framework in each row.
    fn csv(&self) -> Table {
        let mut table = self.tables().swap_remove(0);
        table.columns.insert(0, column("framework", "framework"));
        for row in &mut table.rows {
            row.insert(0, format!("PyTorch {}", self.torch.version).into());
        }
        table
    }

    fn html(&self) -> Option<String> {
        let table = self.tables().swap_remove(0);
        let title = super::terminal::plain(&self.headline());
        let class = |cell: &Cell| matches!(cell, Cell::Count(_)).then_some("number");
        let body = html! {
            h1 { (title) }
            div class="wide" {
                table {
                    thead { tr { @for Column { name, .. } in &table.columns { th { (name) } } } }
                    tbody {
                        @for row in &table.rows {
                            tr { @for cell in row { td class=[class(cell)] { (cell.text()) } } }
                        }
                    }
                }
            }
            (charts(&self.sweeps()))
            @for line in self.notes() { p class="faint" { (line) } }
        };
        Some(page(&body))
    }
}
