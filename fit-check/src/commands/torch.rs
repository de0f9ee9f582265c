//! What is asked about PyTorch without a program: of a network of the zoo, of a `config.json`, or of what was kept in a file.

mod file;
mod framework;
mod path;
mod zoo;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use torch_memory::saved::is_saved;
use torch_memory::{definitions, kept};

use self::file::File;
pub(super) use self::framework::{both_are_asked, is_asked, is_asked_about};
use self::path::Configured;
use self::zoo::Network;
use super::torch_batches::{empty_table, kept_file, write};
use crate::cli::{self, Advise};
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::gpu_search::{FittingGpu, NearestGpu};
use crate::interrupt;
use crate::job_info::SCHEMA;
use crate::model_source;
use crate::output;
use crate::output::sweep::CurveFile;
use crate::output::torch::WithModules;
use crate::resolve::Card;
use crate::torch_program::TorchReport;
use crate::torch_program::alternatives::{Alternative, MAX_CARDS, other_card, segments};
use crate::torch_program::batches::{
    TorchBatchReport, TorchTableReport, TorchTableRow, add_batches,
};
use crate::torch_program::fitting::{TorchFitsReport, driven_cards, fitting_cards};
use crate::torch_program::placeholder::BATCH;
use crate::torch_program::plot::{layer_names, plot};
use crate::torch_program::report::{ProcessReport, Torch};
use crate::torch_program::source::{Source, Step};
use crate::torch_program::training_step::TrainingStep;
use crate::user_error::UserError;
use crate::user_program::GRACE;

/// How a network is trained, as typed.
#[derive(Clone, Copy)]
struct Typed<'a> {
    precision: &'a str,
    options: &'a cli::Options,
    torch: &'a cli::TorchOptions,
    offline: bool,
    quiet: bool,
    training: &'a TrainingStep,
}

impl<'a> Typed<'a> {
    /// What `model` names.
    ///
    /// # Errors
    ///
    /// There is no such thing, or not with these options.
    fn find(&self, model: &str) -> Result<Box<dyn Source + 'a>, UserError> {
        let Self {
            precision,
            options,
            torch,
            ..
        } = *self;
        let attention = torch.attention.as_deref();
        if is_saved(Path::new(model)) {
            return Ok(Box::new(File::new(model, precision, options, attention)?));
        }
        if model_source::is_path(model) {
            return Ok(Box::new(Configured::of_path(model, self)?));
        }
        let variant = model_zoo::find(model)?;
        // Whoever names a Python asks about the PyTorch in it.
        let is_recorded =
            torch.python.is_none() && zoo::is_recorded(&variant, precision, options, attention);
        Ok(match definitions::find(variant.name) {
            Some(definition) if !is_recorded => {
                Box::new(Configured::of_zoo(&variant, definition, self)?)
            }
            _ => Box::new(Network::new(variant, precision, options, attention)?),
        })
    }
}

impl<'a> Typed<'a> {
    fn of_job(job: &'a cli::Job, output: &cli::Output, training: &'a TrainingStep) -> Self {
        Self {
            precision: &job.step.precision,
            options: &job.step.options,
            torch: &job.torch,
            offline: job.hub.offline,
            quiet: output.quiet,
            training,
        }
    }
}

/// The answer of `estimate`.
pub(super) fn estimate(raw: &cli::Estimate) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    raw.plots.check(&raw.output)?;
    let training = TrainingStep::default();
    let source = Typed::of_job(&raw.job, &raw.output, &training).find(&raw.job.model)?;
    let batch = source.batch(raw.batch.as_deref(), raw.tokens.as_deref())?;
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    interrupt::watch(GRACE)?;
    let steps = source.steps(batch, &cards)?;
    let (first, recording) = (&steps[0], &steps[0].recording);
    let torch = Torch::of(&recording.process);
    torch.check(&cards)?;
    let never = Advise::Never;
    let process = ProcessReport::new(recording, cards.first(), &first.config, never);
    let on_cards = cards.iter().zip(&steps);
    let mut process = on_cards
        .clone()
        .skip(1)
        .fold(process, |process, (card, step)| {
            process.on(&step.recording, card, &step.config, never)
        });
    let mut verdicts = process.verdicts().iter().zip(on_cards);
    let advised = match raw.advise {
        Advise::Always => verdicts.next(),
        Advise::Auto => verdicts.find(|(verdict, _)| !verdict.fits),
        Advise::Never => None,
    };
    if let Some((_, (card, step))) = advised {
        process.alternatives = changes(&*source, batch, card, step)?;
    }
    interrupt::disarm();
    let report = TorchReport {
        schema: SCHEMA,
        program: source.name().replace(BATCH, &batch.to_string()),
        job: source.job(Some(batch)),
        recorded_on: Some(names_of(&steps)).filter(|_| source.is_kept()),
        recorded_batches: batches_of(&steps),
        torch,
        steps: recording.steps,
        processes: vec![process],
        approximations: recording.approximations.clone(),
        information: recording.information.clone(),
    };
    match raw.layers {
        true => output::write(&WithModules(&report), &raw.output)?,
        false => output::write(&report, &raw.output)?,
    }
    if raw.plots.any() {
        let names = layer_names(&recording.trace);
        let process = &report.processes[0];
        let plot = plot(&report, process, &recording.trace, &first.config, &names);
        raw.plots.write(&plot)?;
    }
    Ok(if report.fits() { FITS } else { DOES_NOT_FIT })
}

/// What would make `source` fit on `card`, on which it makes `step`: the changes that cost no other card come first.
fn changes(
    source: &dyn Source,
    batch: u64,
    card: &Card,
    step: &Step,
) -> Result<Vec<Alternative>, UserError> {
    let mut found = source.with_changes(batch, card);
    found.extend(segments(&step.recording.trace, &step.config, card));
    let usual = source.steps(batch, &[])?.remove(0);
    let enough = fitting(source, batch, &usual)?.cards;
    let cards = enough.iter().take(MAX_CARDS);
    found.extend(cards.map(|card| other_card(card.alias, &card.gpu.name, card.required_bytes)));
    Ok(found)
}

/// What of the catalogue is enough.
struct Fitting {
    /// The cards on which a step fits.
    cards: Vec<FittingGpu>,
    /// The one that comes nearest, if there are none.
    nearest: Option<NearestGpu>,
    /// What the step does with the kernels of each generation.
    steps: Vec<Rc<Step>>,
}

/// The cards on which `source` fits, of which `usual` has the kernels of most.
fn fitting(source: &dyn Source, batch: u64, usual: &Rc<Step>) -> Result<Fitting, UserError> {
    let cuda = usual.recording.process.cuda.as_deref();
    let driven = driven_cards(cuda).into_iter();
    let driven: Vec<_> = driven.filter(|(_, card)| source.knows(card)).collect();
    // Of all cards with like kernels, the last, which has the most memory, stands for them.
    let kernels = |card: &Card| kept::recorded_on(Some(card.device.card.compute_capability));
    let mut others: BTreeMap<&str, Card> = BTreeMap::new();
    for (_, card) in &driven {
        others.insert(kernels(card), card.clone());
    }
    let usual_kernels = kept::recorded_on(None);
    others.remove(usual_kernels);
    let cards: Vec<_> = others.values().cloned().collect();
    let recorded = match cards.is_empty() {
        true => Vec::new(),
        false => source.steps(batch, &cards)?,
    };
    let mut steps: BTreeMap<_, _> = others.into_keys().zip(recorded).collect();
    steps.insert(usual_kernels, usual.clone());
    let (cards, nearest) = fitting_cards(&driven, |card| &steps[kernels(card)]);
    Ok(Fitting {
        cards,
        nearest,
        steps: steps.into_values().collect(),
    })
}

/// The cards on which `steps` were recorded.
fn names_of(steps: &[Rc<Step>]) -> String {
    let mut names: Vec<_> = steps.iter().map(|step| step.recorded_on.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

/// The batches at which `steps` were recorded beforehand.
fn batches_of(steps: &[Rc<Step>]) -> Vec<u64> {
    let mut batches = Vec::new();
    for step in steps {
        add_batches(&mut batches, &step.batches);
    }
    batches
}

/// The answer of `max-batch`.
pub(super) fn max_batch(raw: &cli::MaxBatch) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let training = TrainingStep::default();
    let source = Typed::of_job(&raw.job, &raw.output, &training).find(&raw.job.model)?;
    if raw.save.is_some() && source.is_kept() {
        return Err(UserError::new(format!(
            "{} was recorded beforehand",
            raw.job.model
        ))
        .hint("leave --save out: it is for a program, and for a path with --framework pytorch")
        .into());
    }
    let kept = raw.save.as_deref();
    let kept = kept.map(|path| kept_file(path, &raw.output)).transpose()?;
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    if cards.is_empty() {
        return Err(UserError::no_card("max-batch needs a card").into());
    }
    interrupt::watch(GRACE)?;
    let found = source.largest_batches(&cards, raw.advise)?;
    interrupt::disarm();
    found.report.torch.check(&cards)?;
    write(&found, &raw.output, kept)
}

/// The answer of `gpus --fits`.
pub(super) fn gpus(raw: &cli::Gpus, model: &str) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let training = TrainingStep::default();
    let typed = Typed {
        precision: &raw.step.precision,
        options: &raw.step.options,
        torch: &raw.torch,
        offline: raw.hub.offline,
        quiet: raw.output.quiet,
        training: &training,
    };
    let source = typed.find(model)?;
    let batch = source.batch(raw.batch.as_deref(), raw.tokens.as_deref())?;
    interrupt::watch(GRACE)?;
    let usual = source.steps(batch, &[])?.remove(0);
    let torch = Torch::of(&usual.recording.process);
    let Fitting {
        cards,
        nearest,
        steps,
    } = fitting(&*source, batch, &usual)?;
    interrupt::disarm();
    let report = TorchFitsReport {
        schema: SCHEMA,
        program: source.name().replace(BATCH, &batch.to_string()),
        batch,
        job: source.job(Some(batch)),
        torch,
        recorded_on: names_of(&steps),
        recorded_batches: batches_of(&steps),
        required_bytes: usual.required(),
        cards,
        nearest,
    };
    output::write(&report, &raw.output)?;
    Ok(match report.cards.is_empty() {
        true => DOES_NOT_FIT,
        false => FITS,
    })
}

/// The answer of `table`.
pub(super) fn table(raw: &cli::Table, cards: &[Card]) -> anyhow::Result<u8> {
    output::check_file(&raw.output)?;
    let curve = CurveFile::new(raw)?;
    if raw.preset.is_some() {
        return Err(
            UserError::new("--preset is not followed with --framework pytorch")
                .hint("name models, or leave them out for all that were recorded")
                .into(),
        );
    }
    let named = raw.precision.iter().flat_map(|list| list.split(','));
    let named = named.map(str::trim).filter(|text| !text.is_empty());
    let mut precisions: Vec<&str> = named.collect();
    if precisions.is_empty() {
        precisions.push("fp32");
    }
    interrupt::watch(GRACE)?;
    let training = TrainingStep::default();
    let mut report = empty_table(Torch::default(), cards);
    for precision in precisions {
        let models = match raw.models.is_empty() {
            true => kept::names().map(str::to_string).collect(),
            false => raw.models.clone(),
        };
        for model in models {
            for sizes in raw.options.sizes.each() {
                let options = cli::Options {
                    sizes,
                    ..raw.options.clone()
                };
                let typed = Typed {
                    precision,
                    options: &options,
                    torch: &raw.torch,
                    offline: raw.hub.offline,
                    quiet: raw.output.quiet,
                    training: &training,
                };
                let source = typed.find(&model)?;
                let found = source.largest_batches(cards, Advise::Never)?;
                found.report.torch.check(cards)?;
                add(&mut report, found.report);
            }
        }
    }
    interrupt::disarm();
    output::write(&report, &raw.output)?;
    curve.save(&report.sweeps())?;
    Ok(FITS)
}

/// Adds the row of `found`.
fn add(table: &mut TorchTableReport, found: TorchBatchReport) {
    let job = found.job.as_ref();
    table.rows.push(TorchTableRow {
        model: found.program,
        recipe: match job {
            Some(job) => job.short_recipe(),
            None => found.optimizer.unwrap_or_default(),
        },
        precision: job.map_or(String::new(), |job| job.number_format().into()),
        seq: job.and_then(|job| job.input.seq).map(|seq| seq as u64),
        batches: found.cards.iter().map(|card| card.max_batch).collect(),
    });
    table.torch = found.torch;
    add_batches(&mut table.recorded_batches, &found.recorded_batches);
    table.recorded_on = found.recorded_on.or(table.recorded_on.take());
}
