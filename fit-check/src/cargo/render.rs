//! The answer of `cargo fit-check`, as a page and as tables.

use std::fmt::Write;

use estimator::{Bytes, Outcome, Runtime};

use super::report::{HeldBuffers, ProgramReport};
use crate::job_info::Burn;
use crate::output::estimate::{NamedCell, verdict_table};
use crate::output::job_lines::verdict_line;
use crate::output::terminal::{FAINT, TITLE, columns, grouped, indented, styled};
use crate::output::{Report, Table, column};

impl ProgramReport {
    fn figures(&self) -> Vec<(&'static str, Bytes, String)> {
        let peak = &self.peak;
        let kernel = peak.kernel.as_ref();
        let at = kernel.map_or(String::new(), |kernel| format!(": kernel {kernel}"));
        let mut figures = vec![
            (
                "required",
                peak.required_bytes,
                "the least memory with which these calls complete".into(),
            ),
            (
                "reserved",
                peak.reserved_bytes,
                "held by burn's pools where there is room".into(),
            ),
            ("live", peak.live_bytes, format!("in use at the peak{at}")),
        ];
        if let Some(steps) = self
            .steps
            .filter(|steps| steps.live_bytes != peak.live_bytes)
        {
            figures.push((
                "in a step",
                steps.live_bytes,
                "in use at the peak of the last steps; the most was before them".into(),
            ));
        }
        figures
    }

    /// The program and its figures.
    fn cells(&self) -> Vec<NamedCell> {
        let peak = &self.peak;
        let in_a_step = self.steps.map(|steps| steps.live_bytes);
        vec![
            ("program", "program", self.program.clone().into()),
            ("runtime", "runtime", self.runtime.to_string().into()),
            ("required", "required_bytes", peak.required_bytes.into()),
            ("reserved", "reserved_bytes", peak.reserved_bytes.into()),
            ("live", "live_bytes", peak.live_bytes.into()),
            ("live in a step", "step_live_bytes", in_a_step.into()),
        ]
    }

    /// How far the recording goes, and what it cannot tell.
    fn notes(&self) -> String {
        let launches = grouped(self.launches as u64);
        let mut notes = match (self.steps, self.ending) {
            (Some(steps), _) => format!(
                "stopped after {} equal steps of {} launches, {launches} in all",
                steps.count,
                grouped(steps.launches as u64)
            ),
            (None, Outcome::Time) => format!(
                "stopped by --timeout after {launches} launches; no two steps in a row were the same"
            ),
            (None, _) => format!(
                "the program ended by itself after {launches} launches; no two steps in a row were the same"
            ),
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
    let rows = held.iter().map(|held| {
        vec![
            held.bytes.into(),
            held.count.into(),
            held.each_bytes.into(),
            held.written_by.clone().into(),
        ]
    });
    Table {
        title: "In use at the peak".into(),
        columns: vec![
            column("in use", "live_bytes"),
            column("buffers", "buffers"),
            column("each", "each_bytes"),
            column("first written by", "first_written_by"),
        ],
        rows: rows.collect(),
    }
}

impl Report for ProgramReport {
    fn terminal(&self) -> String {
        let mut page = format!("{}\n\n", styled(TITLE, &self.program));
        for verdict in &self.cards {
            let _ = writeln!(page, "  {}", verdict_line(verdict));
        }
        if !self.cards.is_empty() {
            page.push('\n');
        }
        for (index, (name, bytes, meaning)) in self.figures().into_iter().enumerate() {
            let amount = format!("{name:<9} {:>10}", bytes.to_string());
            let amount = match index {
                0 => styled(TITLE, amount),
                _ => amount,
            };
            let _ = writeln!(page, "  {amount}  {meaning}");
        }
        page.push('\n');
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
            verdict_table(self.cells(), &self.cards),
            held_table(&self.held),
        ];
        tables.retain(|table| !table.rows.is_empty());
        tables
    }
}
