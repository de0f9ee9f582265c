//! Networks of the zoo in PyTorch (`--framework pytorch`), from what was recorded beforehand: no Python is started. Paths go to
//! [`torch_path`].

use std::collections::BTreeMap;
use std::rc::Rc;

use estimator::{Bytes, Runtime};
use model_zoo::Variant;
use strum::VariantNames;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::kept::{self, Kept};
use torch_memory::recorder::allocator_variable;
use torch_memory::replay::least_capacity;
use torch_memory::stream::Recording;

use super::torch_batches::empty_table;
use super::torch_path::{self, Configured, batch};
use crate::cli::{self, Advise};
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::interrupt;
use crate::job_info::SCHEMA;
use crate::model_source;
use crate::output;
use crate::output::sweep::CurveFile;
use crate::output::torch::WithModules;
use crate::progress::Progress;
use crate::resolve::Card;
use crate::torch_program::TorchReport;
use crate::torch_program::batches::{TorchBatchReport, TorchTableReport, TorchTableRow, of_kept};
use crate::torch_program::fitting::{RecordedStep, TorchFitsReport, fitting_cards};
use crate::torch_program::job::TorchJob;
use crate::torch_program::plot::{layer_names, plot};
use crate::torch_program::report::{ProcessReport, Torch};
use crate::user_error::UserError;
use crate::user_program::GRACE;
use crate::values;

/// A framework that trains a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
enum Framework {
    Burn,
    PyTorch,
}

/// Whether `framework`, as typed, is PyTorch. `torch` are options for it alone; `options` and `runtime` have some that are for
/// burn alone.
///
/// # Errors
///
/// It is neither PyTorch nor burn, or one has options of the other.
pub(super) fn is_asked(
    framework: &str,
    torch: Option<&cli::TorchOptions>,
    options: &cli::Options,
    runtime: &str,
) -> Result<bool, UserError> {
    if framework.contains(',') {
        return Err(UserError::new("--framework takes one framework")
            .hint("ask twice: with --framework burn, and with --framework pytorch"));
    }
    let framework: Framework = values::choice("--framework", framework, Framework::VARIANTS)?;
    let is_pytorch = framework == Framework::PyTorch;
    let of_torch = torch.and_then(|torch| {
        let attention = torch.attention.as_ref().map(|_| "--attention");
        attention.or_else(|| torch.python.as_ref().map(|_| "--python"))
    });
    if let Some(option) = of_torch.filter(|_| !is_pytorch) {
        return Err(UserError::new(format!("{option} is of PyTorch"))
            .hint("add --framework pytorch, or leave it out"));
    }
    match is_pytorch {
        true => refuse_of_burn(options, runtime).map(|()| true),
        false => Ok(false),
    }
}

/// [`is_asked`] about a job.
pub(super) fn is_asked_about(job: &cli::Job) -> Result<bool, UserError> {
    let runtime = &job.cards.runtime;
    is_asked(&job.framework, Some(&job.torch), &job.step.options, runtime)
}

/// Refuses options that are burn's.
fn refuse_of_burn(options: &cli::Options, runtime: &str) -> Result<(), UserError> {
    const SEVERAL: &str = "`fit-check run --gpu 4x24GB -- torchrun --nproc-per-node 4 train.py` follows a PyTorch program on several GPUs";
    let (option, hint) = match options {
        cli::Options {
            strategy: Some(_), ..
        } => ("--strategy", SEVERAL),
        cli::Options { nccl: Some(_), .. } => ("--nccl", SEVERAL),
        _ if runtime != Runtime::Cuda.to_string() => ("--runtime", "PyTorch runs on CUDA"),
        _ => return Ok(()),
    };
    Err(UserError::new(format!("{option} is of burn")).hint(format!("leave it out: {hint}")))
}

/// A network that was recorded.
struct Network {
    variant: Variant,
    precision: String,
    kept: Kept,
    config: AllocatorConfig,
}

impl Network {
    /// The recorded network that `model` names, in a number format, with the kernels of a card like `card`.
    fn find(
        model: &str,
        precision: &str,
        options: &cli::Options,
        torch: Option<&cli::TorchOptions>,
        card: Option<&Card>,
    ) -> Result<Self, UserError> {
        let variant = model_zoo::find(model)?;
        refuse(options, torch)?;
        let capability = card.map(|card| card.device.card.compute_capability);
        let kept = kept::find(variant.name, precision, capability);
        let kept = kept.map_err(|error| UserError::new(format!("{model}: {error}")))?;
        let kept = kept.ok_or_else(|| missing(&variant, precision))?;
        let conf = allocator_variable().unwrap_or_default();
        let config = conf.parse().map_err(|error| {
            UserError::new(format!("{}={conf}: {error}", AllocatorConfig::VARIABLES[0]))
                .hint("unset it, or write it as PyTorch's page \"CUDA semantics\" says")
        })?;
        Ok(Self {
            variant,
            precision: precision.into(),
            kept,
            config,
        })
    }

    fn recording(&self, batch: u64) -> Recording {
        Recording {
            process: self.kept.process.clone(),
            trace: self.kept.scaling.at(batch),
            ..Recording::default()
        }
    }

    fn job(&self, batch: Option<u64>) -> TorchJob {
        TorchJob {
            model: self.variant.name.into(),
            batch,
            input: self.variant.input,
            precision: self.precision.clone(),
            optimizer: self.variant.optimizer.to_string(),
            ..TorchJob::default()
        }
    }

    /// The batch that was typed, or that of the published recipe.
    fn batch(&self, samples: Option<&str>, tokens: Option<&str>) -> Result<u64, UserError> {
        let typed = batch(samples, tokens, &self.job(None))?;
        Ok(typed.unwrap_or(self.variant.batch as u64))
    }
}

/// Where a network that was not recorded gets its answer.
const OTHERWISE: &str = "the path of a config.json, or a name on the Hugging Face Hub (owner/name), is recorded now, with its options; `fit-check run --gpu CARD -- python train.py` follows a program of yours";

/// Refuses what a recorded network does not follow.
fn refuse(options: &cli::Options, torch: Option<&cli::TorchOptions>) -> Result<(), UserError> {
    let attention = torch.is_some_and(|torch| torch.attention.is_some());
    let typed = [
        ("--optimizer", options.optimizer.is_some()),
        ("--accumulate", options.accumulate.is_some()),
        ("--checkpointing", options.checkpointing),
        ("--freeze", !options.freeze.is_empty()),
        ("--lora", options.lora.is_some()),
        ("--attention", attention),
    ];
    let typed = typed.into_iter().find(|(_, typed)| *typed);
    match typed.map(|(option, _)| option).or(options.sizes.typed()) {
        Some(option) => Err(UserError::new(format!(
            "{option} is for a config.json with --framework pytorch, not for a network of the zoo"
        ))
        .hint(format!(
            "these networks were recorded with the recipe of `fit-check models`; {OTHERWISE}"
        ))),
        None => Ok(()),
    }
}

fn missing(variant: &Variant, precision: &str) -> UserError {
    let known = ["fp32", "mixed"];
    let name = variant.name;
    if !known.contains(&precision) {
        return UserError::invalid_value("--precision", precision)
            .hint("--precision is fp32 or mixed (autocast to bf16) with --framework pytorch");
    }
    UserError::new(format!("{name} was not recorded in PyTorch ({precision})")).hint(format!(
        "recorded are {}; {OTHERWISE}",
        kept::names(precision).join(", ")
    ))
}

/// The answer of `estimate`.
pub(super) fn estimate(raw: &cli::Estimate) -> anyhow::Result<u8> {
    if model_source::is_path(&raw.job.model) {
        return torch_path::estimate(raw);
    }
    output::check(&raw.output)?;
    raw.plots.check(&raw.output)?;
    let step = &raw.job.step;
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    let (model, options) = (&raw.job.model, &step.options);
    let torch = Some(&raw.job.torch);
    let find = |card: Option<&Card>| Network::find(model, &step.precision, options, torch, card);
    let network = find(cards.first())?;
    Torch::of(&network.kept.process).check(&cards)?;
    let batch = network.batch(raw.batch.as_deref(), raw.tokens.as_deref())?;
    let recording = network.recording(batch);
    let config = &network.config;
    let mut process = ProcessReport::new(&recording, cards.first(), config, raw.advise);
    for card in cards.iter().skip(1) {
        let recording = find(Some(card))?.recording(batch);
        process = process.on(&recording, card, config, raw.advise);
    }
    let report = TorchReport {
        schema: SCHEMA,
        program: network.variant.name.into(),
        job: Some(network.job(Some(batch))),
        recorded_on: Some(network.kept.recorded_on.into()),
        torch: Torch::of(&network.kept.process),
        steps: recording.steps,
        processes: vec![process],
        approximations: Vec::new(),
        information: BTreeMap::new(),
    };
    match raw.layers {
        true => output::write(&WithModules(&report), &raw.output)?,
        false => output::write(&report, &raw.output)?,
    }
    if raw.plots.any() {
        let names = layer_names(&recording.trace);
        let process = &report.processes[0];
        raw.plots
            .write(&plot(&report, process, &recording.trace, config, &names))?;
    }
    Ok(if report.fits() { FITS } else { DOES_NOT_FIT })
}

/// The answer of `max-batch`.
pub(super) fn max_batch(raw: &cli::MaxBatch) -> anyhow::Result<u8> {
    if model_source::is_path(&raw.job.model) {
        return torch_path::max_batch(raw);
    }
    output::check(&raw.output)?;
    let step = &raw.job.step;
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    let (model, options) = (&raw.job.model, &step.options);
    let torch = Some(&raw.job.torch);
    let find = |card: Option<&Card>| Network::find(model, &step.precision, options, torch, card);
    let report = largest_batches(find, &cards, raw.advise)?;
    report.torch.check(&cards)?;
    output::write(&report, &raw.output)?;
    Ok(match report.cards.iter().all(|card| card.max_batch > 0) {
        true => FITS,
        false => DOES_NOT_FIT,
    })
}

/// The largest batch on each of `cards`, of the network that `find` finds for it.
fn largest_batches(
    find: impl Fn(Option<&Card>) -> Result<Network, UserError>,
    cards: &[Card],
    advise: Advise,
) -> Result<TorchBatchReport, UserError> {
    if cards.is_empty() {
        // What was typed may be wrong too.
        find(None)?;
    }
    let mut reports = Vec::with_capacity(cards.len());
    for card in cards {
        let network = find(Some(card))?;
        let (job, card) = (network.job(None), std::slice::from_ref(card));
        reports.push(of_kept(job, &network.kept, network.config, card, advise));
    }
    let report = reports.into_iter().reduce(TorchBatchReport::with);
    report.ok_or_else(|| UserError::no_card("max-batch needs a card"))
}

/// The answer of `gpus --fits`.
pub(super) fn gpus(raw: &cli::Gpus, model: &str) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    if model_source::is_path(model) {
        return Err(UserError::new("--fits takes networks of the zoo with --framework pytorch")
            .hint(format!(
                "`fit-check estimate {model} --framework pytorch --gpu 24GB --advise` names cards that are enough"
            ))
            .into());
    }
    let find = |card: Option<&Card>| {
        Network::find(model, &raw.step.precision, &raw.step.options, None, card)
    };
    let network = find(None)?;
    let batch = network.batch(raw.batch.as_deref(), raw.tokens.as_deref())?;
    let torch = Torch::of(&network.kept.process);
    let usual = least_capacity(&network.recording(batch).trace, &network.config);
    // The generations of cards that were met, by the card on which each was recorded.
    let mut steps: BTreeMap<&str, Rc<RecordedStep>> = BTreeMap::new();
    let on = |card: &Card| {
        let recorded_on = kept::recorded_on(card.device.card.compute_capability);
        if let Some(known) = steps.get(recorded_on) {
            return Ok(known.clone());
        }
        let network = find(Some(card))?;
        let trace = network.recording(batch).trace;
        let step = Rc::new(RecordedStep::new(trace, &network.config));
        steps.insert(recorded_on, step.clone());
        Ok::<_, UserError>(step)
    };
    let (cards, nearest) = fitting_cards(on, &network.config, &torch)?;
    let report = TorchFitsReport {
        schema: SCHEMA,
        job: network.job(Some(batch)),
        torch,
        recorded_on: steps.into_keys().collect::<Vec<_>>().join(", "),
        required_bytes: Bytes(usual),
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
    let mut report = empty_table(Torch::default(), cards);
    for precision in precisions {
        let every = kept::names(precision).into_iter().map(str::to_string);
        let models = match raw.models.is_empty() {
            true => every.collect(),
            false => raw.models.clone(),
        };
        for model in models {
            match model_source::is_path(&model) {
                true => {
                    for sizes in raw.options.sizes.each() {
                        let options = cli::Options {
                            sizes,
                            ..raw.options.clone()
                        };
                        add_path(&mut report, raw, &model, precision, &options, cards)?;
                    }
                }
                false => add_kept(&mut report, raw, &model, precision, cards)?,
            }
        }
    }
    interrupt::disarm();
    output::write(&report, &raw.output)?;
    curve.save(&report.sweeps())?;
    Ok(FITS)
}

/// Adds the row of a network that was recorded beforehand.
fn add_kept(
    table: &mut TorchTableReport,
    raw: &cli::Table,
    model: &str,
    precision: &str,
    cards: &[Card],
) -> Result<(), UserError> {
    let torch = Some(&raw.torch);
    let find = |card: Option<&Card>| Network::find(model, precision, &raw.options, torch, card);
    let job = find(cards.first())?.job(None);
    let found = largest_batches(find, cards, Advise::Never)?;
    add(table, &job, found);
    Ok(())
}

/// Adds the row of the network of a `config.json`, with one size of its sample.
fn add_path(
    table: &mut TorchTableReport,
    raw: &cli::Table,
    model: &str,
    precision: &str,
    options: &cli::Options,
    cards: &[Card],
) -> anyhow::Result<()> {
    let asked = Configured::new(model, raw.hub.offline, precision, options, &raw.torch)?;
    interrupt::watch(GRACE)?;
    let progress = Progress::new(raw.output.quiet, 2 + 2 * cards.len() as u64);
    let found = asked.largest_batches(cards, Advise::Never, &progress)?;
    progress.done();
    add(table, asked.job(), found);
    Ok(())
}

/// Adds the row of `job`, whose largest batches are `found`.
fn add(table: &mut TorchTableReport, job: &TorchJob, found: TorchBatchReport) {
    table.rows.push(TorchTableRow {
        model: job.model.clone(),
        recipe: job.short_recipe(),
        precision: job.number_format().into(),
        seq: job.input.seq.map(|seq| seq as u64),
        batches: found.cards.iter().map(|card| card.max_batch).collect(),
    });
    table.torch = found.torch;
    table.recorded_on = found.recorded_on.or(table.recorded_on.take());
}
