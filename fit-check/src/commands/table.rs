//! Largest batches of models x cards x precisions.

use std::sync::{Arc, Mutex, OnceLock};

use clap::Parser;
use estimator::{
    CardSpec, Error, Gpu, LargestFit, Program, Runtime, Scaling, Simulated, Tuning, largest_fit,
    largest_fit_near,
};
use model_zoo::{Job, Model, Precision};
use strum::{EnumString, VariantNames};

use super::{FITS, UNKNOWN};
use crate::ask::{self, Batch, Card};
use crate::cli::{self, Cli, Command};
use crate::interrupt;
use crate::kernels;
use crate::lower_bound::need_network;
use crate::output;
use crate::own::{self, Subject};
use crate::parallel;
use crate::preset::{self, Preset, Unit};
use crate::progress::Progress;
use crate::report::{Asked, SCHEMA};
use crate::step::{AnyBatch, scaling};
use crate::table::{Cell, Column, Method, Row, TableReport};
use crate::trouble::Trouble;

/// The order of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
enum Sort {
    /// Rows by name.
    Model,
    /// Rows by batch in the last column, the largest first.
    Batch,
    /// Columns by usable memory, the least first.
    Memory,
}

/// The classes of cards that are columns where none is named.
const CLASSES: [&str; 6] = ["8GB", "12GB", "16GB", "24GB", "48GB", "80GB"];

/// Runs the command.
pub fn run(raw: &cli::Table) -> anyhow::Result<u8> {
    let sort = sorting(&raw.sort)?;
    let mut plan = Plan::new(raw)?;
    if sort.contains(&Sort::Memory) {
        plan.cards.sort_by_key(Card::usable);
    }
    output::check_file(&raw.output)?;
    interrupt::watch()?;
    let mut report = plan.run(raw.output.quiet);
    report.powers_of_two = raw.powers_of_two;
    for key in sort.iter().rev() {
        match key {
            Sort::Model => report
                .rows
                .sort_by(|a, b| a.asked.model.cmp(&b.asked.model)),
            Sort::Batch => {
                let last = |row: &Row| row.cells.last().and_then(|cell| cell.max_batch);
                report.rows.sort_by_key(|row| std::cmp::Reverse(last(row)));
            }
            Sort::Memory => {}
        }
    }
    output::write(&report, &raw.output)?;
    if !report.complete {
        anstream::eprintln!("interrupted: the table is not complete");
    }
    Ok(match report.lacks_cells() {
        true => UNKNOWN,
        false => FITS,
    })
}

fn sorting(keys: &[String]) -> Result<Vec<Sort>, Trouble> {
    keys.iter()
        .map(|key| ask::choice("--sort", key, Sort::VARIANTS))
        .collect()
}

/// A model in one precision.
#[derive(Debug)]
struct Entry {
    model: Subject,
    job: Job,
    unit: Unit,
    published_as: Option<String>,
}

/// What goes into a table.
#[derive(Debug)]
pub struct Plan {
    preset: Option<Preset>,
    runtime: Runtime,
    tuning: Tuning,
    entries: Vec<Entry>,
    cards: Vec<Card>,
}

impl Plan {
    /// From the command line.
    ///
    /// # Errors
    ///
    /// A value that cannot be, with what would help.
    pub fn new(raw: &cli::Table) -> Result<Self, Trouble> {
        let runtime = ask::runtime(&raw.cards)?;
        let preset = raw.preset.as_ref();
        let preset = preset.map(|name| ask::choice("--preset", name, Preset::VARIANTS));
        let preset = preset.transpose()?;
        Ok(Self {
            preset,
            runtime,
            tuning: ask::tuning(&raw.cards)?,
            entries: entries(raw, preset)?,
            cards: cards(raw, preset, runtime)?,
        })
    }

    /// From a command as it is typed.
    ///
    /// # Errors
    ///
    /// It is not that of a table, or has a value that cannot be.
    pub fn typed(command: &str) -> anyhow::Result<Self> {
        match Cli::try_parse_from(command.split_whitespace())?.command {
            Command::Table(raw) => Ok(Self::new(&raw)?),
            _ => anyhow::bail!("`{command}` makes no table"),
        }
    }

    /// The rows of one model.
    pub fn only(mut self, model: &str) -> Self {
        self.entries.retain(|entry| entry.model.name() == model);
        self
    }

    /// Each published row once, in the number formats in which it was measured.
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

    /// Fills the table: every core has cards of its own, until all are filled or Ctrl-C comes.
    pub fn run(&self, quiet: bool) -> TableReport {
        let progress = Progress::new(quiet, (self.entries.len() * self.cards.len()) as u64);
        let rows: Vec<_> = self.entries.iter().map(|_| Mutex::default()).collect();
        let most = self.cards.iter().max_by_key(|card| card.usable());
        let teacher = &most.expect("a table has a column").spec;
        let steps = self.entries.iter().map(|entry| Step::new(entry, teacher));
        let steps: Vec<_> = steps.collect();
        let alike: Vec<_> = self.alike(&steps).collect();
        parallel::each(in_order(&steps, &alike), |work| match work {
            Work::Learn(step) => {
                step.lesson();
            }
            Work::Fill(alike, column) => self.fill(alike, column, &rows, &progress),
        });
        progress.done();
        let filled = |row: Mutex<Vec<(usize, Cell)>>| {
            let mut cells = row.into_inner().expect("no cell is left half done");
            cells.sort_by_key(|(card, _)| *card);
            cells.into_iter().map(|(_, cell)| cell).collect()
        };
        let entries = self.entries.iter().zip(rows);
        let rows: Vec<_> = entries
            .map(|(entry, row)| entry.row(self.runtime, self.tuning, filled(row)))
            .collect();
        let mut cells = rows.iter().flat_map(|row| &row.cells);
        TableReport {
            schema: SCHEMA,
            preset: self.preset,
            complete: !cells.any(|cell| cell.error == Some(Error::Interrupted)),
            powers_of_two: false,
            cards: self.cards.iter().map(Column::new).collect(),
            rows,
        }
    }

    /// Row by row, the cards with the same kernels together.
    fn alike<'a>(&'a self, steps: &'a [Step<'a>]) -> impl Iterator<Item = Alike<'a>> {
        let columns = 0..self.cards.len();
        let kinds = kernels::alike(columns, |column| self.cards[*column].spec.clone());
        let rows = steps.iter().enumerate();
        rows.flat_map(move |(row, step)| {
            let kinds = kinds.clone();
            kinds.into_iter().map(move |mut columns| {
                columns.sort_by_key(|column| self.cards[*column].usable());
                Alike {
                    row,
                    step,
                    cards: &self.cards,
                    first: columns.pop().expect("each kind has a card"),
                    others: columns,
                    proof: OnceLock::new(),
                }
            })
        })
    }

    fn fill(
        &self,
        alike: &Alike,
        column: usize,
        rows: &[Mutex<Vec<(usize, Cell)>>],
        progress: &Progress,
    ) {
        let job = &alike.step.entry.job;
        if !interrupt::requested() {
            let model = alike.step.entry.model.name();
            let card = self.cards[column].label();
            progress.at(&format!("{model}, {} on {card}", job.precision));
        }
        let (found, method) = alike.found(column);
        let cell = Cell::new(found, method, job.input.tokens());
        self.filled(alike, column, cell, rows, progress);
    }

    /// Puts `cell` into its row, and says so where the row is complete.
    fn filled(
        &self,
        alike: &Alike,
        column: usize,
        cell: Cell,
        rows: &[Mutex<Vec<(usize, Cell)>>],
        progress: &Progress,
    ) {
        let Entry {
            model, job, unit, ..
        } = alike.step.entry;
        let mut row = rows[alike.row].lock().expect("no cell is left half done");
        row.push((column, cell));
        if row.len() == self.cards.len() && !interrupt::requested() {
            let mut batches: Vec<_> = row.iter().map(|(card, cell)| (*card, cell)).collect();
            batches.sort_by_key(|(card, _)| *card);
            let batches = batches.iter().map(|(_, cell)| match cell.in_unit(*unit) {
                Some(batch) => batch.to_string(),
                None => "-".into(),
            });
            let batches = batches.collect::<Vec<_>>().join(" ");
            progress.line(&format!("{}, {}: {batches}", model.name(), job.precision));
        }
    }
}

/// What a core does next.
enum Work<'a> {
    /// Learn how a step grows with the batch.
    Learn(&'a Step<'a>),
    /// Fill the cell of a column.
    Fill(&'a Alike<'a>, usize),
}

/// Row by row; how its step grows is learned a row ahead of the cells from whose run the others
/// of their row are foretold, and those are a row ahead of the others, so that no core waits.
fn in_order<'a>(steps: &'a [Step<'a>], alike: &'a [Alike<'a>]) -> Vec<Work<'a>> {
    let mut order = Vec::new();
    let mut lessons = steps.iter().map(Work::Learn);
    let mut waiting = Vec::new();
    order.extend(lessons.next());
    for row in alike.chunk_by(|a, b| a.row == b.row) {
        order.extend(lessons.next());
        order.extend(row.iter().map(|alike| Work::Fill(alike, alike.first)));
        order.append(&mut waiting);
        for alike in row {
            waiting.extend(alike.others.iter().map(|column| Work::Fill(alike, *column)));
        }
    }
    order.append(&mut waiting);
    order
}

/// The models of the command line, or of the preset, each in every precision.
fn entries(raw: &cli::Table, preset: Option<Preset>) -> Result<Vec<Entry>, Trouble> {
    let default: &[Precision] = match preset {
        Some(_) => &[Precision::Fp32, Precision::Mixed],
        None => &[Precision::Fp32],
    };
    let precisions = match raw.precision.as_slice() {
        [] => default.to_vec(),
        named => {
            let named = named.iter().map(|text| ask::precision(text));
            named.collect::<Result<_, _>>()?
        }
    };
    let mut entries = Vec::new();
    let mut add = |name: &str, options: &cli::Options, unit, published_as: Option<String>| {
        let (model, origin) = own::find(name)?;
        need_network(&model, &origin, "table")?;
        for precision in &precisions {
            entries.push(Entry {
                job: ask::job_in(&model, *precision, options, Batch::default())?,
                model: model.clone(),
                unit,
                published_as: published_as.clone(),
            });
        }
        Ok::<_, Trouble>(())
    };
    match preset {
        Some(Preset::Lambda2020) => {
            for row in preset::lambda_2020() {
                let options = raw.options.over(&row.options);
                add(&row.model, &options, row.unit, Some(row.name))?;
            }
        }
        None if raw.models.is_empty() => {
            for variant in model_zoo::variants() {
                add(variant.name, &raw.options, Unit::Samples, None)?;
            }
        }
        None => {
            for name in &raw.models {
                add(name, &raw.options, Unit::Samples, None)?;
            }
        }
    }
    Ok(entries)
}

/// The cards of the command line, else those of the preset, else a class of each size.
fn cards(raw: &cli::Table, preset: Option<Preset>, runtime: Runtime) -> Result<Vec<Card>, Trouble> {
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
    let mut cards = ask::cards(&raw.cards, &named, runtime)?;
    if all {
        cards.extend(every_card(runtime));
    }
    match (cards.is_empty(), preset) {
        (false, _) => Ok(cards),
        (true, _) if raw.gpus.is_some() => Err(Trouble::new("--gpus names no card")
            .hint("--gpus is `all`, or names with commas between them: rtx-3090,l4,24GB")),
        (true, Some(Preset::Lambda2020)) => Ok(preset::cards(runtime)),
        (true, None) => ask::cards(&raw.cards, &CLASSES, runtime),
    }
}

/// Every card that `runtime` drives, the least usable first.
fn every_card(runtime: Runtime) -> Vec<Card> {
    let driven = Gpu::all().iter().filter(|gpu| gpu.is_driven_by(runtime));
    let mut cards: Vec<_> = driven.map(|gpu| Card::of(gpu, runtime)).collect();
    cards.sort_by_key(Card::usable);
    cards
}

impl Entry {
    fn row(&self, runtime: Runtime, tuning: Tuning, cells: Vec<Cell>) -> Row {
        Row {
            asked: Asked::of(&self.model, &self.job, runtime, tuning, None),
            published_as: self.published_as.clone(),
            unit: self.unit,
            cells,
        }
    }
}

/// What all cards of a row share.
struct Step<'a> {
    entry: &'a Entry,
    program: Interruptible<AnyBatch<'a, Subject>>,
    /// From which it is learned how the step grows with the batch: that with the most memory.
    teacher: &'a CardSpec,
    lesson: OnceLock<Lesson>,
}

/// How a step grows with the batch, if it does so evenly.
type Lesson = Result<Option<Arc<Scaling>>, Error>;

impl<'a> Step<'a> {
    fn new(entry: &'a Entry, teacher: &'a CardSpec) -> Self {
        Self {
            entry,
            program: Interruptible(AnyBatch::new(&entry.model, &entry.job)),
            teacher,
            lesson: OnceLock::new(),
        }
    }

    fn lesson(&self) -> &Lesson {
        self.lesson.get_or_init(|| self.learn(self.teacher))
    }

    fn learn(&self, spec: &CardSpec) -> Lesson {
        let scaling = scaling(&self.program, &spec.without_limit())?;
        Ok(scaling.map(Arc::new))
    }
}

/// Cards of a row with the same kernels: on them a step makes the same calls.
struct Alike<'a> {
    row: usize,
    step: &'a Step<'a>,
    /// All columns.
    cards: &'a [Card],
    /// The one with the most memory, on which the step is run.
    first: usize,
    others: Vec<usize>,
    proof: OnceLock<Proof>,
}

/// What is known of cards with the same kernels, after a run on one of them.
struct Proof {
    /// The largest batch on that.
    first: Result<LargestFit, Error>,
    /// From which an answer on the others is proposed.
    scaling: Option<Arc<Scaling>>,
    /// How much of a card's memory its pools leave, as the run shows.
    share: Option<f64>,
    /// Whether it foretold that run call by call, and so foretells smaller batches too.
    foretold: bool,
}

impl Alike<'_> {
    /// The largest batch on the card of a column. Where the run on the first was foretold, the
    /// others are not run but foretold too.
    fn found(&self, column: usize) -> (Result<LargestFit, Error>, Method) {
        let proof = self.proof.get_or_init(|| self.prove());
        if column == self.first {
            return (proof.first.clone(), Method::Simulation);
        }
        let program = &self.step.program;
        let spec = &self.cards[column].spec;
        let Some(scaling) = proof.scaling.as_ref().filter(|_| !interrupt::requested()) else {
            return (largest_fit(program, None, spec), Method::Simulation);
        };
        let foretold = scaling.foretold(program, spec, proof.share);
        let refused = || scaling.refused(&foretold, spec);
        match proof.covers(foretold.batch).then(refused).flatten() {
            Some(refused) => {
                let fit = LargestFit {
                    batch: foretold.batch,
                    at_max: None,
                    next: foretold.next,
                    refused,
                };
                (Ok(fit), Method::Replay)
            }
            None => {
                let found = largest_fit_near(program, foretold.batch, spec);
                (found, Method::Simulation)
            }
        }
    }

    fn prove(&self) -> Proof {
        let spec = &self.cards[self.first].spec;
        let teacher = self.step.teacher;
        let same_kernels = spec.kernels() == teacher.kernels();
        let lesson = self.step.lesson();
        if let (true, Err(error)) = (same_kernels, lesson) {
            return Proof::failed(error);
        }
        let common = lesson.as_ref().ok().cloned().flatten();
        let mut first = largest_fit(&self.step.program, common.as_deref(), spec);
        // A recording is large, and not needed any more.
        let run = first.as_mut().ok();
        let run = run.and_then(|fit| Some((fit.batch, fit.at_max.take()?.recording)));
        let foretells = |scaling: &Arc<Scaling>| {
            let run = run.as_ref();
            run.is_some_and(|(batch, recording)| scaling.foretells(*batch, recording))
        };
        let foretold = common.as_ref().is_some_and(&foretells);
        let scaling = match foretold || same_kernels {
            true => common,
            false => match self.step.learn(spec) {
                Ok(own) => own,
                Err(error) => return Proof::failed(&error),
            },
        };
        let batch = first.as_ref().map_or(0, |fit| fit.batch);
        Proof {
            share: scaling.as_ref().and_then(|of| of.share(batch, spec)),
            foretold: foretold || scaling.as_ref().is_some_and(foretells),
            first,
            scaling,
        }
    }
}

impl Proof {
    /// Whether what is foretold of `batch` needs no run: between those that were recorded and that
    /// which was run, where both agree.
    fn covers(&self, batch: u64) -> bool {
        let least = self.scaling.as_ref().map(|scaling| scaling.batch());
        let most = self.first.as_ref().ok().map(|fit| fit.batch);
        match (self.foretold, least, most) {
            (true, Some(least), Some(most)) => (least..=most).contains(&batch),
            _ => false,
        }
    }

    fn failed(error: &Error) -> Self {
        Self {
            first: Err(error.clone()),
            scaling: None,
            share: None,
            foretold: false,
        }
    }
}

/// A program that is not run any more after Ctrl-C.
struct Interruptible<P>(P);

impl<P: Program> Program for Interruptible<P> {
    fn simulate(&self, batch: u64, spec: CardSpec) -> Result<Simulated, Error> {
        match interrupt::requested() {
            true => Err(Error::Interrupted),
            false => self.0.simulate(batch, spec),
        }
    }

    fn accepts(&self, batch: u64) -> bool {
        self.0.accepts(batch)
    }
}
