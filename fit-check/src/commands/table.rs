//! Largest batches of models x cards x precisions.

pub(super) mod row_process;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Parser;
use estimator::{
    BatchObserver, DeviceSpec, Error, Found, Gpu, Method, Runtime, Tuning, every_core_works,
    group_by_kernels, largest_fits, parallel_map,
};
use model_zoo::{InputSize, Job, Model, Precision, Request};
use strum::VariantNames;

use self::row_process::{Message, RowTask};
use super::{FITS, UNKNOWN};
use crate::cli::{self, Cli, Command};
use crate::interrupt;
use crate::job_info::{JobInfo, SCHEMA};
use crate::lower_bound::need_network;
use crate::model_source::{self, AnyModel};
use crate::output;
use crate::preset::{self, Preset, Published, Unit};
use crate::progress::Progress;
use crate::resolve::{self, Batch, Card};
use crate::step::training_job;
use crate::table::{BatchCell, Column, Row, TableReport};
use crate::user_error::UserError;
use crate::values;

/// The classes of cards that are the columns by default.
const CLASSES: [&str; 6] = ["8GB", "12GB", "16GB", "24GB", "48GB", "80GB"];

/// Runs the command.
pub fn run(raw: &cli::Table) -> anyhow::Result<u8> {
    let plan = Plan::new(raw)?;
    output::check_file(&raw.output)?;
    interrupt::watch(Duration::ZERO)?;
    let filling = Arc::new(Filling::new(plan, raw.output.quiet));
    let (so_far, output) = (filling.clone(), raw.output.clone());
    interrupt::at_end(move || {
        let shown = show(&so_far.report(), &output);
        Some(shown.unwrap_or_else(|error| {
            anstream::eprintln!("{}", UserError::from(error));
            UNKNOWN
        }))
    });
    filling.run_apart();
    interrupt::disarm();
    show(&filling.report(), &raw.output)
}

/// Shows the table; returns the exit status.
fn show(report: &TableReport, output: &cli::Output) -> anyhow::Result<u8> {
    output::write(report, output)?;
    if !report.complete {
        anstream::eprintln!("interrupted: the table is not complete");
    }
    Ok(match report.lacks_cells() {
        true => UNKNOWN,
        false => FITS,
    })
}

/// A model in one precision.
#[derive(Debug)]
struct Entry {
    /// The model, as typed.
    typed: String,
    model: AnyModel,
    job: Job,
    unit: Unit,
    published_as: Option<String>,
}

/// The rows and columns of a table.
#[derive(Debug)]
pub struct Plan {
    preset: Option<Preset>,
    runtime: Runtime,
    tuning: Tuning,
    entries: Vec<Entry>,
    cards: Vec<Card>,
}

impl Plan {
    /// Resolves the command line.
    ///
    /// # Errors
    ///
    /// A value is invalid; the error has a hint.
    pub fn new(raw: &cli::Table) -> Result<Self, UserError> {
        let runtime = resolve::runtime(&raw.cards)?;
        let preset = raw.preset.as_ref();
        let preset = preset.map(|name| values::choice("--preset", name, Preset::VARIANTS));
        let preset = preset.transpose()?;
        Ok(Self {
            preset,
            runtime,
            tuning: resolve::tuning(&raw.cards)?,
            entries: entries(raw, preset)?,
            cards: cards(raw, preset, runtime)?,
        })
    }

    /// Resolves a command as a user types it.
    ///
    /// # Errors
    ///
    /// The command is not `table`, or a value is invalid.
    pub fn typed(command: &str) -> anyhow::Result<Self> {
        match Cli::try_parse_from(command.split_whitespace())?.command {
            Command::Table(raw) => Ok(Self::new(&raw)?),
            _ => anyhow::bail!("`{command}` makes no table"),
        }
    }

    /// Keeps only the rows of one model.
    pub fn only(mut self, model: &str) -> Self {
        self.entries.retain(|entry| entry.model.name() == model);
        self
    }

    /// Keeps each published row once, in the number formats of its measurement.
    pub fn published_only(mut self) -> Self {
        let measured = preset::lambda_2020();
        self.entries.retain(|entry| {
            measured.iter().any(|row| {
                Some(&row.name) == entry.published_as.as_ref()
                    && row.precision == entry.job.precision
            })
        });
        self
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
        let jobs = entries.map(|entry| training_job(&entry.model, &entry.job).without_first_runs());
        largest_fits(jobs, &self.devices(), self);
        self.progress.done();
    }

    /// Fills the table until it is complete or the user presses Ctrl-C, with a process for each group of cards with
    /// the same kernels in each row, as many at a time as there are cores.
    fn run_apart(&self) {
        let devices = self.devices();
        let device = |column: &usize| devices[*column].clone();
        let groups = group_by_kernels(0..devices.len(), device);
        let rows = 0..self.plan.entries.len();
        let parts = rows.flat_map(|row| groups.iter().map(move |columns| (row, columns)));
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
            model: entry.typed.clone(),
            request: entry.job.request(),
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
                self.found(row, *column, &(Err(error), Method::Simulation));
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
                cell.unwrap_or_else(|| entry.cell((Err(Error::Interrupted), Method::Simulation)))
            });
            entry.row(plan.runtime, plan.tuning, cells.collect())
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

impl BatchObserver for Filling {
    fn begins(&self, row: usize, column: usize) {
        if !interrupt::requested() {
            let card = self.plan.cards[column].label();
            self.progress
                .at(&format!("{} on {card}", self.plan.entries[row]));
        }
    }

    /// Shows the row if it is complete.
    fn found(&self, row: usize, column: usize, found: &Found) {
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

/// The models of the command line or of the preset, each in every precision.
fn entries(raw: &cli::Table, preset: Option<Preset>) -> Result<Vec<Entry>, UserError> {
    let default: &[Precision] = match preset {
        Some(_) => &[Precision::Fp32, Precision::Mixed],
        None => &[Precision::Fp32],
    };
    let precisions = match raw.precision.as_slice() {
        [] => default.to_vec(),
        named => {
            let named = named.iter().map(|text| resolve::precision(text));
            named.collect::<Result<_, _>>()?
        }
    };
    let mut entries = Vec::new();
    let mut add = |name: &str, published: Option<Published>| {
        let (model, origin) = model_source::find(name)?;
        need_network(&model, &origin, "table")?;
        for precision in &precisions {
            let typed = resolve::request(*precision, &raw.options, Batch::default())?;
            let request = match &published {
                Some(row) => over(typed, row.request()),
                None => typed,
            };
            entries.push(Entry {
                typed: name.into(),
                job: resolve::job_of(&model, request)?,
                model: model.clone(),
                unit: published.as_ref().map_or(Unit::Samples, |row| row.unit),
                published_as: published.as_ref().map(|row| row.name.clone()),
            });
        }
        Ok::<_, UserError>(())
    };
    match preset {
        Some(Preset::Lambda2020) => {
            for row in preset::lambda_2020() {
                add(&row.model.clone(), Some(row))?;
            }
        }
        None if raw.models.is_empty() => {
            for variant in model_zoo::variants() {
                add(variant.name, None)?;
            }
        }
        None => {
            for name in &raw.models {
                add(name, None)?;
            }
        }
    }
    Ok(entries)
}

/// The `typed` settings, and `published` ones where none were typed.
fn over(typed: Request, published: Request) -> Request {
    let mut input = published.input;
    for size in InputSize::ALL {
        if let Some(value) = typed.input.get(*size) {
            input.set(*size, value).expect("a value of the same size");
        }
    }
    Request {
        optimizer: typed.optimizer.or(published.optimizer),
        input,
        ..typed
    }
}

/// The cards of the command line, else of the preset, else one card for each class.
fn cards(
    raw: &cli::Table,
    preset: Option<Preset>,
    runtime: Runtime,
) -> Result<Vec<Card>, UserError> {
    let list = raw.gpus.as_deref().unwrap_or_default();
    let all = list.trim().eq_ignore_ascii_case("all");
    let listed = list.split(',').map(str::trim);
    let listed = listed.filter(|name| !all && !name.is_empty());
    let named: Vec<&str> = raw
        .cards
        .gpu
        .iter()
        .map(String::as_str)
        .chain(listed)
        .collect();
    let memory = raw.cards.memory.as_deref();
    let tuning = resolve::tuning(&raw.cards)?;
    let mut cards = resolve::cards(&named, memory, runtime, tuning)?;
    if all {
        cards.extend(every_card(runtime));
    }
    match (cards.is_empty(), preset) {
        (false, _) => Ok(cards),
        (true, _) if raw.gpus.is_some() => Err(UserError::new("--gpus names no card")
            .hint("--gpus is `all`, or names with commas between them: rtx-3090,l4,24GB")),
        (true, Some(Preset::Lambda2020)) => Ok(preset::cards(runtime)),
        (true, None) => resolve::cards(&CLASSES, memory, runtime, tuning),
    }
}

/// Every card that `runtime` drives, the least usable memory first.
fn every_card(runtime: Runtime) -> Vec<Card> {
    let driven = Gpu::all().iter().filter(|gpu| gpu.is_driven_by(runtime));
    let mut cards: Vec<_> = driven.map(|gpu| Card::of(gpu, runtime)).collect();
    cards.sort_by_key(Card::usable);
    cards
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.model.name(), self.job.precision)
    }
}

impl Entry {
    fn cell(&self, (found, method): Found) -> BatchCell {
        BatchCell::new(found, method, self.job.input.tokens())
    }

    fn row(&self, runtime: Runtime, tuning: Tuning, cells: Vec<BatchCell>) -> Row {
        Row {
            asked: JobInfo::of(&self.model, &self.job, runtime, tuning, None),
            published_as: self.published_as.clone(),
            unit: self.unit,
            cells,
        }
    }
}
