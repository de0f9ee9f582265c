//! The answer of `cargo fit-check`, as a page and as tables.

use std::fmt::Write;

use estimator::{Runtime, StopReason};

use super::report::{HeldBuffers, ProgramReport};
use crate::job_info::Burn;
use crate::output::estimate::{Figure, REQUIRED, verdicts_and_figures, with_verdicts};
use crate::output::terminal::{FAINT, TITLE, columns, grouped, indented, styled};
use crate::output::{Report, Table};

impl ProgramReport {
    fn figures(&self) -> Vec<Figure> {
        let peak = &self.peak;
        let kernel = peak.kernel.as_ref();
        let at = kernel.map_or(String::new(), |kernel| format!(": kernel {kernel}"));
        let required = match &self.too_large {
            None => "the least memory with which these calls complete".to_string(),
            Some(buffer) => format!(
                "and no memory is enough: one buffer has {}, and on {} at most {}",
                buffer.bytes, self.runtime, buffer.largest_bytes
            ),
        };
        let mut figures = vec![
            Figure::new("required", peak.required_bytes, required),
            Figure::new(
                "reserved",
                peak.reserved_bytes,
                "reserved by burn's pools on a card with unlimited memory",
            ),
            Figure::new("live", peak.live_bytes, format!("in use at the peak{at}")),
        ];
        if let Some(steps) = self
            .steps
            .filter(|steps| steps.live_bytes != peak.live_bytes)
        {
            figures.push(Figure::new(
                "in a step",
                steps.live_bytes,
                "in use at the peak of the last steps; the most was before them",
            ));
        }
        figures
    }

    /// The program and its figures, in one row.
    fn program_table(&self) -> Table {
        Table::of("", std::slice::from_ref(self))
            .column("program", |r| &r.program)
            .column("runtime", |r| r.runtime.to_string())
            .column_as(REQUIRED, "required_bytes", |r| r.peak.required_bytes)
            .column_as("reserved", "reserved_bytes", |r| r.peak.reserved_bytes)
            .column_as("live", "live_bytes", |r| r.peak.live_bytes)
            .column_as("live in a step", "step_live_bytes", |r| {
                r.steps.map(|steps| steps.live_bytes)
            })
            .build()
    }

    /// How far the recording goes, and what it cannot tell.
    fn notes(&self) -> String {
        let launches = grouped(self.launches as u64);
        let unequal = "fit-check did not see as many equal steps in a row as --steps asks for";
        let mut notes = match (self.steps, self.ending) {
            (Some(steps), _) => format!(
                "stopped after {} equal steps of {} launches, {launches} in all",
                steps.count,
                grouped(steps.launches as u64)
            ),
            (None, StopReason::Time) => {
                format!("stopped by --timeout after {launches} launches; {unequal}")
            }
            (None, _) => {
                format!("the program ended by itself after {launches} launches; {unequal}")
            }
        };
        if self.runtime == Runtime::Wgpu {
            // See `SimulatedCard::configured` in `estimator`.
            notes += "\nbools take a byte here and a word on wgpu: masks are larger there";
        }
        if let [first, _, ..] = &self.cards[..] {
            let _ = write!(
                notes,
                "\nall cards were given the kernels of {}",
                first.gpu.name
            );
        }
        if self.tuned {
            notes +=
                "\nburn's tuner tried kernels meanwhile, and what they take is in these figures";
        }
        let _ = write!(
            notes,
            "\nburn {} on {}, with the program's own features\n\
             not known: phases, layers, and which buffer is a weight\n\
             the program's calls come from a thread of its own: another run may differ a little",
            Burn::VERSION,
            self.runtime
        );
        notes
    }
}

fn held_table(held: &[HeldBuffers]) -> Table {
    Table::of("In use at the peak", held)
        .column_as("in use", "live_bytes", |held| held.bytes)
        .column("buffers", |held| held.count)
        .column_as("each", "each_bytes", |held| held.each_bytes)
        .column_as("first written by", "first_written_by", |held| {
            held.written_by.as_ref()
        })
        .build()
}

impl Report for ProgramReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", styled(TITLE, &self.program));
        page += &verdicts_and_figures(&self.cards, &self.figures());
        page += &columns(&held_table(&self.held));
        let _ = writeln!(
            page,
            "\n{}",
            styled(FAINT, indented(&self.notes()).trim_end())
        );
        page
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![
            with_verdicts(self.program_table(), &self.cards),
            held_table(&self.held),
        ];
        tables.retain(|table| !table.rows.is_empty());
        tables
    }
}
