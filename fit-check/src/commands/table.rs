//! Largest batches of models x cards x precisions.

use std::sync::{Arc, Mutex, OnceLock};

use clap::Parser;
use estimator::record::Recording;
use estimator::{
    CardSpec, Error, Forecast, Foretold, Gpu, LargestFit, Program, Runtime, Scaling, Simulated,
    Tuning, largest_fit, largest_fit_near,
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
use crate::step::AnyBatch;
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
            Work::Fill(alike, columns) => self.fill(alike, columns, &rows, &progress),
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
        let spec = |column: &usize| self.cards[*column].spec.clone();
        let columns = kernels::same(0..self.cards.len(), spec);
        let kinds = kernels::alike(columns, |columns| spec(&columns[0]));
        let rows = steps.iter().enumerate();
        rows.flat_map(move |(row, step)| {
            let kinds = kinds.clone();
            kinds.into_iter().map(move |mut kind| {
                kind.sort_by_key(|columns| self.cards[columns[0]].usable());
                Alike {
                    row,
                    step,
                    cards: &self.cards,
                    first: kind.pop().expect("each kind has a card"),
                    others: kind,
                    proof: OnceLock::new(),
                }
            })
        })
    }

    /// Fills what is to be filled when it is the turn of `columns`.
    fn fill(
        &self,
        alike: &Alike,
        columns: &Same,
        rows: &[Mutex<Vec<(usize, Cell)>>],
        progress: &Progress,
    ) {
        let begin = |columns: &Same| {
            let Entry { model, job, .. } = alike.step.entry;
            let cards = columns.iter().filter(|_| !interrupt::requested());
            for card in cards.map(|column| self.cards[*column].label()) {
                progress.at(&format!("{}, {} on {card}", model.name(), job.precision));
            }
        };
        let filled = |columns, found, method| {
            let cell = Cell::new(found, method, alike.step.entry.job.input.tokens());
            self.filled(alike, columns, cell, rows, progress);
        };
        if *columns == alike.first {
            begin(columns);
            let found = alike.proof().first.clone();
            return filled(columns, found, Method::Simulation);
        }
        let mut seen = alike.proof().seen.clone();
        for columns in alike.with(columns) {
            begin(columns);
            let (found, method) = alike.found(columns, &mut seen);
            filled(columns, found, method);
        }
    }

    /// Puts `cell` into its row, for each of `columns`, and says so where the row is complete.
    fn filled(
        &self,
        alike: &Alike,
        columns: &Same,
        cell: Cell,
        rows: &[Mutex<Vec<(usize, Cell)>>],
        progress: &Progress,
    ) {
        let Entry {
            model, job, unit, ..
        } = alike.step.entry;
        let mut row = rows[alike.row].lock().expect("no cell is left half done");
        row.extend(columns.iter().map(|column| (*column, cell.clone())));
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
    /// Fill the cells of columns.
    Fill(&'a Alike<'a>, &'a Same),
}

/// Row by row; how its step grows is learned a row ahead of the cells from whose run the others
/// of their row are foretold, and those are a row ahead of the others, so that no core waits. Of
/// the others those with the most memory come first: see [`Alike::with`].
fn in_order<'a>(steps: &'a [Step<'a>], alike: &'a [Alike<'a>]) -> Vec<Work<'a>> {
    let mut order = Vec::new();
    let mut lessons = steps.iter().map(Work::Learn);
    let mut waiting = Vec::new();
    order.extend(lessons.next());
    for row in alike.chunk_by(|a, b| a.row == b.row) {
        order.extend(lessons.next());
        order.extend(row.iter().map(|alike| Work::Fill(alike, &alike.first)));
        order.append(&mut waiting);
        for alike in row {
            let others = alike.others.iter().rev();
            waiting.extend(others.map(|columns| Work::Fill(alike, columns)));
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

type StepForecast<'a> = Forecast<'a, Interruptible<AnyBatch<'a, Subject>>>;

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
        Ok(Scaling::of(&self.program, spec)?.map(Arc::new))
    }

    /// What `scaling` foretells of cards with the kernels of `spec`.
    fn forecast(&self, scaling: &Arc<Scaling>, spec: &CardSpec) -> StepForecast<'_> {
        Forecast::new(&self.program, scaling.clone(), spec.without_limit())
    }
}

/// Columns whose cards have nothing different but their name.
type Same = Vec<usize>;

/// Cards of a row with the same kernels: on them a step makes the same calls.
struct Alike<'a> {
    row: usize,
    step: &'a Step<'a>,
    /// All columns.
    cards: &'a [Card],
    /// Those with the most memory; on one of them the step is run.
    first: Same,
    others: Vec<Same>,
    proof: OnceLock<Proof<'a>>,
}

/// What is known of cards with the same kernels, after a run on that with the most memory.
struct Proof<'a> {
    /// The largest batch on that.
    first: Result<LargestFit, Error>,
    /// From which an answer on the others is proposed.
    forecast: Option<StepForecast<'a>>,
    seen: Seen,
}

/// What runs have shown of a forecast.
#[derive(Clone, Default)]
struct Seen {
    /// How much of a card's memory its pools leave.
    share: Option<f64>,
    /// The largest batch whose run was foretold call by call, so that smaller ones are too, down to
    /// those that were recorded.
    foretold: Option<u64>,
}

impl<'a> Alike<'a> {
    fn spec(&self, columns: &Same) -> &CardSpec {
        &self.cards[columns[0]].spec
    }

    fn proof(&self) -> &Proof<'a> {
        self.proof.get_or_init(|| self.prove())
    }

    /// Of the others, those that are filled when it is the turn of `columns`: mostly these alone. If
    /// the run on the first was not foretold, all others after each other, those with more memory
    /// first: the first run that is foretold makes do for those that follow.
    fn with<'b>(&'b self, columns: &'b Same) -> Vec<&'b Same> {
        let Proof { forecast, seen, .. } = self.proof();
        let hopes = forecast.is_some() && seen.foretold.is_none();
        match self.others.last() {
            _ if !hopes => vec![columns],
            Some(most) if most == columns => self.others.iter().rev().collect(),
            _ => Vec::new(),
        }
    }

    /// The largest batch on a card of `columns`, of the others; it is replayed where what was `seen`
    /// allows that, and else run and put to what was seen.
    fn found(&self, columns: &Same, seen: &mut Seen) -> (Result<LargestFit, Error>, Method) {
        let Proof { forecast, .. } = self.proof();
        let program = &self.step.program;
        let spec = self.spec(columns);
        let Some(forecast) = forecast.as_ref().filter(|_| !interrupt::requested()) else {
            return (largest_fit(program, None, spec), Method::Simulation);
        };
        let foretold = forecast.foretold(spec, seen.share);
        let covered =
            covers(forecast, &foretold, seen) && forecast.fits_behind(foretold.batch, spec);
        let refused = covered.then(|| forecast.refused(&foretold, spec));
        match refused.flatten() {
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
                let mut found = largest_fit_near(program, foretold.batch, spec);
                if let Some((batch, recording)) = take_run(&mut found) {
                    seen.put(forecast.scaling(), batch, &recording, spec);
                }
                (found, Method::Simulation)
            }
        }
    }

    fn prove(&self) -> Proof<'a> {
        let spec = self.spec(&self.first);
        let step = self.step;
        let same_kernels = spec.kernels() == step.teacher.kernels();
        let lesson = step.lesson();
        if let (true, Err(error)) = (same_kernels, lesson) {
            return Proof::failed(error);
        }
        let common = lesson.as_ref().ok().and_then(Option::as_ref);
        let common = common.map(|scaling| step.forecast(scaling, spec));
        let mut first = largest_fit(&step.program, common.as_ref(), spec);
        let run = take_run(&mut first);
        let seen = |forecast: &StepForecast| {
            let mut seen = Seen::default();
            if let Some((batch, recording)) = &run {
                seen.put(forecast.scaling(), *batch, recording, spec);
            }
            seen
        };
        let of_common = common.as_ref().map(seen).unwrap_or_default();
        if same_kernels || of_common.foretold.is_some() {
            return Proof {
                first,
                forecast: common,
                seen: of_common,
            };
        }
        match step.learn(spec) {
            Ok(own) => {
                let own = own.map(|scaling| step.forecast(&scaling, spec));
                Proof {
                    first,
                    seen: own.as_ref().map(seen).unwrap_or_default(),
                    forecast: own,
                }
            }
            Err(error) => Proof::failed(&error),
        }
    }
}

/// Whether what is `foretold` needs no run: of both batches a recording tells, and a run of as
/// many samples or more was as it tells.
fn covers(forecast: &StepForecast, foretold: &Foretold, seen: &Seen) -> bool {
    // With no sample there is nothing to run.
    let told = |batch| batch == 0 || forecast.knows(batch);
    let proved = seen.foretold.is_some_and(|most| foretold.next <= most);
    proved && told(foretold.batch) && told(foretold.next)
}

/// The batch of a step that was run to its end, and its recording, which is large and not needed
/// any more afterwards.
fn take_run(found: &mut Result<LargestFit, Error>) -> Option<(u64, Recording)> {
    let fit = found.as_mut().ok()?;
    Some((fit.batch, fit.at_max.take()?.recording))
}

impl Seen {
    /// Puts to it a run of the largest `batch` on a card like `spec`.
    fn put(&mut self, scaling: &Scaling, batch: u64, recording: &Recording, spec: &CardSpec) {
        self.share = scaling.share(batch, spec);
        if scaling.foretells(batch, recording) {
            self.foretold = Some(batch);
        }
    }
}

impl Proof<'_> {
    fn failed(error: &Error) -> Self {
        Self {
            first: Err(error.clone()),
            forecast: None,
            seen: Seen::default(),
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
