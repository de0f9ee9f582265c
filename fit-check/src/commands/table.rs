//! Largest batches of models x cards x precisions.

mod plan;
pub(super) mod row_process;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use estimator::{
    BatchObserver, CellResult, DeviceSpec, Error, Method, every_core_works, group_by_kernels,
    largest_fits, parallel_map,
};

use serde::Serialize;

pub use self::plan::Plan;
use self::row_process::{Message, RowTask};
use crate::cache::{Answer, Cache, Question, StepKey};
use crate::cli;
use crate::commands::torch;
use crate::commands::torch_batches::Asked;
use crate::exit_status::{FITS, UNKNOWN};
use crate::interrupt;
use crate::job_info::SCHEMA;
use crate::output::{self, Rendered, sweep::CurveFile, terminal};
use crate::preset::Preset;
use crate::progress::Progress;
use crate::step::training_job;
use crate::table::{BatchCell, Column, TableReport};
use crate::user_error::UserError;

/// Runs the command.
pub fn run(raw: &cli::Table) -> anyhow::Result<u8> {
    if !raw.command.is_empty() {
        let cards = plan::torch_cards(raw)?;
        let asked = Asked::new(&raw.command, &raw.options.sizes, &raw.program)?;
        return asked.table(raw, &cards);
    }
    let is_pytorch = !torch::both_are_asked(&raw.framework)
        && torch::is_asked(
            &raw.models,
            &raw.framework,
            &raw.torch,
            &raw.options,
            &raw.cards.runtime,
        )?;
    if is_pytorch {
        return torch::table(raw, &plan::torch_cards(raw)?);
    }
    let plan = Plan::new(raw)?;
    output::check_file(&raw.output)?;
    let curve = CurveFile::new(raw)?;
    // A curve is drawn from the table, not from what is kept of it.
    let cache = match raw.svg {
        Some(_) => Cache::none(),
        None => Cache::about_all(plan.entries.iter().map(|entry| &entry.model), &raw.caching),
    };
    let question = plan.question();
    if let Some(status) = cache.write_kept(&question, &raw.output)? {
        return Ok(status);
    }
    interrupt::watch(Duration::ZERO)?;
    let filling = Arc::new(Filling::new(plan, raw.output.quiet));
    let (so_far, output, drawn) = (filling.clone(), raw.output.clone(), curve.clone());
    interrupt::at_end(move || {
        let shown = show(&so_far.report(), &output, &drawn);
        Some(match shown {
            Ok(answer) => answer.status,
            Err(error) => {
                anstream::eprintln!("{}", UserError::from(error));
                UNKNOWN
            }
        })
    });
    filling.run_apart();
    interrupt::disarm();
    let answer = show(&filling.report(), &raw.output, &curve)?;
    let status = answer.status;
    if status == FITS {
        cache.keep(&question, answer);
    }
    Ok(status)
}

/// Shows the table and draws its curves.
fn show(report: &TableReport, output: &cli::Output, curve: &CurveFile) -> anyhow::Result<Answer> {
    let rendered = Rendered::report(report);
    rendered.write(output)?;
    // If they cannot be drawn, the answer is there.
    curve.save(&report.sweeps())?;
    if !report.complete {
        anstream::eprintln!("interrupted: the table is not complete");
    }
    let status = match report.lacks_cells() {
        true => UNKNOWN,
        false => FITS,
    };
    Ok(Answer { rendered, status })
}

/// The options that change the answer besides those of the steps. The key of the cache has all of them.
#[derive(Clone, Debug, Serialize)]
struct Options {
    preset: Option<Preset>,
    with_pytorch: bool,
    /// The page is wrapped to it.
    columns: usize,
}

impl Plan {
    /// What the table answers.
    fn question(&self) -> Question<Options> {
        let options = Options {
            preset: self.preset,
            with_pytorch: self.with_pytorch,
            columns: terminal::width(),
        };
        let entries = self.entries.iter();
        let steps = entries
            .map(|entry| StepKey::new(&entry.model, &entry.job, self.runtime, self.only))
            .collect();
        Question::new("table", options, steps, &self.cards)
    }

    /// Fills the table in this process, until it is complete.
    pub fn run(self, quiet: bool) -> TableReport {
        let filling = Filling::new(self, quiet);
        filling.run();
        filling.report()
    }
}

/// A table that is being filled, and its progress.
struct Filling {
    plan: Plan,
    progress: Progress,
    /// The filled cells of each row, by column.
    rows: Vec<Mutex<BTreeMap<usize, BatchCell>>>,
}

impl Filling {
    fn new(plan: Plan, quiet: bool) -> Self {
        let cells = plan.entries.len() * plan.cards.len();
        Self {
            progress: Progress::new(quiet, cells as u64),
            rows: plan.entries.iter().map(|_| Mutex::default()).collect(),
            plan,
        }
    }

    /// Fills the table in this process.
    fn run(&self) {
        let entries = self.plan.entries.iter();
        let jobs = entries.map(|entry| {
            let job = training_job(&entry.model, &entry.job);
            job.only(self.plan.only).without_first_runs()
        });
        largest_fits(jobs, &self.devices(), self);
        self.progress.done();
    }

    /// Fills the table until it is complete or the user presses Ctrl-C, with a process for each row, or several if there are
    /// more cores than rows; as many at a time as there are cores.
    fn run_apart(&self) {
        let devices = self.devices();
        let device = |column: &usize| devices[*column].clone();
        let groups = group_by_kernels(0..devices.len(), device);
        let rows = 0..self.plan.entries.len();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // burn searches in each process of a row for what it can fuse there.
        let processes = cores.div_ceil(rows.len().max(1)).min(groups.len());
        let share = |nth| -> Vec<usize> {
            let groups = groups.iter().skip(nth).step_by(processes);
            groups.flatten().copied().collect()
        };
        let shares: Vec<_> = (0..processes).map(share).collect();
        let parts = rows.flat_map(|row| shares.iter().map(move |columns| (row, columns)));
        parallel_map(parts.collect::<Vec<_>>(), |(row, columns)| {
            if !interrupt::requested() {
                self.run_part(row, columns, &devices);
            }
        });
        self.progress.done();
    }

    /// Fills the cells of `row` in `columns` in a process of its own.
    fn run_part(&self, row: usize, columns: &[usize], devices: &[DeviceSpec]) {
        let entry = &self.plan.entries[row];
        let task = RowTask {
            model: entry.model.text(),
            request: entry.job.request(),
            only: self.plan.only,
            devices: columns
                .iter()
                .map(|column| devices[*column].clone())
                .collect(),
            one_thread: every_core_works(),
        };
        let ended = row_process::run(&task, |message| match message {
            Message::Begins(index) => self.begins(row, columns[index]),
            Message::Found(index, found) => self.found(row, columns[index], &found),
        });
        if interrupt::requested() {
            return;
        }
        for column in columns {
            let known = self.filled(row).contains_key(column);
            if !known {
                let error = Error::Process(ended.clone());
                self.found(row, *column, &without_answer(error));
            }
        }
    }

    fn devices(&self) -> Vec<DeviceSpec> {
        let cards = self.plan.cards.iter();
        cards.map(|card| card.device.clone()).collect()
    }

    /// The filled cells of `row`.
    fn filled(&self, row: usize) -> MutexGuard<'_, BTreeMap<usize, BatchCell>> {
        let cells = self.rows[row].lock();
        cells.unwrap_or_else(PoisonError::into_inner)
    }

    /// The table with the cells that are filled; in the others the user interrupted.
    fn report(&self) -> TableReport {
        let plan = &self.plan;
        let rows = plan.entries.iter().enumerate().map(|(row, entry)| {
            let filled = self.filled(row);
            let cells = (0..plan.cards.len()).map(|column| {
                let cell = filled.get(&column).cloned();
                cell.unwrap_or_else(|| entry.cell(without_answer(Error::Interrupted)))
            });
            entry.row(plan, cells.collect())
        });
        let rows: Vec<_> = rows.collect();
        let mut cells = rows.iter().flat_map(|row| &row.cells);
        TableReport {
            schema: SCHEMA,
            preset: plan.preset,
            complete: !cells.any(|cell| cell.error == Some(Error::Interrupted)),
            cards: plan.cards.iter().map(Column::new).collect(),
            rows,
        }
    }
}

/// The result of a cell whose search ended with `error`.
fn without_answer(error: Error) -> CellResult {
    CellResult {
        fit: Err(error),
        method: Method::Simulation,
    }
}

impl BatchObserver for Filling {
    fn begins(&self, row: usize, column: usize) {
        if !interrupt::requested() {
            let card = self.plan.cards[column].label();
            self.progress
                .at(&format!("{} on {card}", self.plan.entries[row]));
        }
    }

    /// Shows the row if it is complete.
    fn found(&self, row: usize, column: usize, found: &CellResult) {
        let entry = &self.plan.entries[row];
        let mut cells = self.filled(row);
        cells.insert(column, entry.cell(found.clone()));
        if cells.len() == self.plan.cards.len() && !interrupt::requested() {
            let batches = cells.values().map(|cell| match cell.in_unit(entry.unit) {
                Some(batch) => batch.to_string(),
                None => "-".into(),
            });
            let batches = batches.collect::<Vec<_>>().join(" ");
            self.progress.line(&format!("{entry}: {batches}"));
        }
    }
}
