//! Memory of one training step, by category and layer.

use estimator::record::Recording;
use estimator::{
    Choice, DeviceSpec, Estimate, KernelPreference, Program, Simulated, may_run_out, verdict,
};
use model_zoo::Model;
use serde::Serialize;

use crate::advice::{self, Goal, advise};
use crate::cache::{Answer, Cache, Question};
use crate::cli::{self, Advise};
use crate::commands::torch_zoo;
use crate::exit_status::{DOES_NOT_FIT, FITS, UNKNOWN};
use crate::interrupt;
use crate::job_info::GpuName;
use crate::lower_bound::{LowerBound, need_network};
use crate::model_source::{AnyModel, Checkpoint};
use crate::output::{self, Rendered, WithLayers};
use crate::plots::Plot;
use crate::progress::Progress;
use crate::report::{EstimateReport, Range, Verdict};
use crate::resolve::{Batch, ResolvedRequest};
use crate::step::training_job;
use crate::torch_program::snapshot;
use crate::user_error::UserError;

/// Runs the command.
pub fn run(raw: &cli::Estimate) -> anyhow::Result<u8> {
    if snapshot::is_snapshot(&raw.job.model) {
        return of_snapshot(raw);
    }
    if torch_zoo::is_asked(&raw.job.framework)? {
        return torch_zoo::estimate(raw);
    }
    let request = ResolvedRequest::new(&raw.job, Batch::typed(&raw.batch, &raw.tokens))?;
    if let (AnyModel::Weights(_), Some(checkpoint)) = (&request.model, &request.origin.checkpoint) {
        return lower_bound(raw, &request, checkpoint);
    }
    answer(raw, &request)
}

/// The answer about a memory snapshot of PyTorch.
fn of_snapshot(raw: &cli::Estimate) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    let conf = torch_memory::recorder::allocator_variable().unwrap_or_default();
    let report = snapshot::report(&raw.job.model, cards.first(), &conf)?;
    output::write(&report, &raw.output)?;
    Ok(match report.fits() {
        true => FITS,
        false => DOES_NOT_FIT,
    })
}

/// Runs the command for `request`.
pub fn answer<M: Model + Sync>(
    raw: &cli::Estimate,
    request: &ResolvedRequest<M>,
) -> anyhow::Result<u8> {
    check(raw, request)?;
    // Answers with plots are not kept, since a plot shows every allocation.
    let cache = match raw.plots.any() {
        true => Cache::none(),
        false => Cache::about(&request.model, &raw.caching),
    };
    let options = Options::new(raw);
    let question = Question::new("estimate", options, request);
    if let Some(known) = cache.find::<Answer>(&question) {
        known.rendered.write(&raw.output)?;
        return Ok(known.status);
    }
    let answer = simulate(options, request, &raw.plots, &raw.output)?;
    let status = answer.status;
    cache.keep(&question, answer);
    Ok(status)
}

/// The options that change the answer about a job. The key of the cache has all of them.
#[derive(Clone, Copy, Debug, Serialize)]
struct Options {
    layers: bool,
    kernels: bool,
    every_run: bool,
    advise: Advise,
}

impl Options {
    /// The options of `raw`.
    fn new(raw: &cli::Estimate) -> Self {
        // Every option has a name here, so that a new one is not forgotten in the key.
        let cli::Estimate {
            job: _,
            batch: _,
            tokens: _,
            layers,
            kernels,
            plots: _,
            every_run,
            advise,
            caching: _,
            output: _,
        } = *raw;
        Self {
            layers,
            kernels,
            every_run,
            advise,
        }
    }
}

/// Refuses options that do not go together, before anything is simulated.
fn check<M: Model>(raw: &cli::Estimate, request: &ResolvedRequest<M>) -> anyhow::Result<()> {
    output::check(&raw.output)?;
    raw.plots.check(&raw.output)?;
    if raw.every_run && request.cards.is_empty() {
        return Err(
            UserError::no_card("--every-run needs a card that the job is to fit on").into(),
        );
    }
    if raw.advise == Advise::Always && request.cards.is_empty() {
        return Err(UserError::no_card("--advise needs a card that the job is to fit on").into());
    }
    if raw.kernels && !cfg!(feature = "autotune") {
        return Err(
            UserError::new("this fit-check is built without burn's autotune")
                .hint("leave --kernels out: without autotune burn has one kernel per operation")
                .into(),
        );
    }
    Ok(())
}

/// Answers `request` by simulation. Writes the answer, and then the plots that `plots` asks for: if one of them cannot
/// be written, the answer is there.
fn simulate<M: Model + Sync>(
    options: Options,
    request: &ResolvedRequest<M>,
    plots: &cli::PlotFiles,
    output: &cli::Output,
) -> anyhow::Result<Answer> {
    let advises = options.advise == Advise::Always;
    let runs_per_card = if options.every_run { 2 } else { 1 };
    let steps = 1
        + runs_per_card * request.cards.len() as u64
        + u64::from(layers_unfused(options))
        + u64::from(advises);
    let progress = Progress::new(output.quiet, steps);
    let SimulatedReport {
        mut report,
        simulated,
        layers,
    } = simulate_report(options, request, &progress)?;
    let mut unadvised = None;
    if advises {
        let refused = report.verdicts().iter().position(|verdict| !verdict.fits);
        let card = &request.cards[refused.unwrap_or(0)];
        progress.at("trying what would make it fit");
        render(&report, options.layers).write_if_interrupted(output)?;
        let advice = advise(request, card, &layers, Goal::Batch);
        interrupt::disarm();
        match advice {
            Ok(advice) => report.advice = Some(advice),
            Err(error) => unadvised = Some(card.error(error).about("no advice")),
        }
    }
    progress.done();
    let answer = Answer {
        rendered: render(&report, options.layers),
        status: if report.fits() { FITS } else { DOES_NOT_FIT },
    };
    let written = answer.rendered.write(output);
    if plots.any() {
        let published = request.origin.published.as_deref();
        plots.write(&Plot::new(&report, published, &simulated))?;
    }
    written?;
    match unadvised {
        Some(error) => Err(error.into()),
        None => Ok(answer),
    }
}

/// Whether the table of layers needs a run of its own: a fused kernel computes several layers at once, so tensors
/// between them belong to no layer.
fn layers_unfused(options: Options) -> bool {
    options.layers && cfg!(feature = "fusion")
}

/// An answer without advice, and what advice and plots need.
struct SimulatedReport {
    report: EstimateReport,
    simulated: Simulated,
    /// The paths of the layers with parameters, in the order of first use.
    layers: Vec<String>,
}

/// Simulates `request` on an unlimited card and on its own cards.
fn simulate_report<M: Model + Sync>(
    options: Options,
    request: &ResolvedRequest<M>,
    progress: &Progress,
) -> anyhow::Result<SimulatedReport> {
    let layers_unfused = layers_unfused(options);
    let Options {
        layers: _,
        kernels,
        every_run,
        advise,
    } = options;
    progress.at(&format!(
        "training {} on a simulated card",
        request.model.name()
    ));
    let device = request.unlimited();
    let program = training_job(&request.model, &request.job);
    let batch = request.job.batch as u64;
    let on_first = |error: estimator::Error| match request.cards.first() {
        Some(card) => card.error(error),
        None => error.into(),
    };
    let simulated = program
        .simulate_unlimited(batch, &device)
        .map_err(on_first)?;
    let mut estimate = simulated.estimate()?;
    let range = match kernels {
        true => Some(range(&program, batch, &device)?),
        false => None,
    };
    let first = (&simulated, &estimate);
    let verdicts = verdicts(every_run, request, &program, first, progress)?;
    let refused = verdicts.iter().any(|verdict| !verdict.fits);
    let layers = advice::layers_with_parameters(&estimate);
    if layers_unfused {
        progress.at("training it without fusion, for the layers");
        let unfused = program.simulate_unlimited(batch, &device.unfused())?;
        estimate.layers = unfused.estimate()?.layers;
    }
    let report = EstimateReport {
        layers_unfused,
        offers_advice: refused && advise == Advise::Auto,
        advice: None,
        range,
        kernels: kernels.then(|| largest(&simulated.choices)),
        ..EstimateReport::new(request, estimate, verdicts)
    };
    Ok(SimulatedReport {
        report,
        simulated,
        layers,
    })
}

/// Whether the step fits on each of the cards of `request`; `first` is the run on the first of them without its limit,
/// with its estimate.
fn verdicts<M: Model + Sync>(
    every_run: bool,
    request: &ResolvedRequest<M>,
    program: &impl Program,
    first: (&Simulated, &Estimate),
    progress: &Progress,
) -> Result<Vec<Verdict>, UserError> {
    let batch = request.job.batch as u64;
    // The runs, without their recordings, and estimates of cards with other kernels than the first.
    let mut others: Vec<(Simulated, Estimate)> = Vec::new();
    let cards = request.cards.iter();
    let verdicts = cards.map(|card| {
        let name = GpuName::new(card).name;
        progress.at(&format!("training it on {name}"));
        let chooses_alike = |run: &Simulated| run.chooses_as_on(&card.device);
        let place = others.iter().position(|(run, _)| chooses_alike(run));
        let estimate = match place {
            _ if chooses_alike(first.0) => first.1,
            Some(place) => &others[place].1,
            None => {
                let run = program.simulate_unlimited(batch, &card.device);
                let run = run.map_err(|error| card.error(error))?;
                // If a buffer is too large for the card with each kernel, the step does not fit in any case.
                let estimate = run.estimate().unwrap_or_else(|_| first.1.clone());
                let recording = Recording::default();
                others.push((Simulated { recording, ..run }, estimate));
                &others[others.len() - 1].1
            }
        };
        let found = verdict(program, batch, &card.device, estimate);
        let found = found.map_err(|error| card.error(error))?;
        let mut verdict = Verdict::new(card, &found);
        if every_run && verdict.fits {
            progress.at(&format!("trying other runs on {name}"));
            let runs_out = may_run_out(program, batch, &card.device);
            verdict.every_run_fits = Some(!runs_out.map_err(|error| card.error(error))?);
        }
        Ok(verdict)
    });
    verdicts.collect()
}

fn render(report: &EstimateReport, layers: bool) -> Rendered {
    match layers {
        true => Rendered::report(&WithLayers(report)),
        false => Rendered::report(report),
    }
}

/// The number of operations that are shown with their kernels.
const KERNELS: usize = 10;

/// The choices with the largest results.
fn largest(choices: &[Choice]) -> Vec<Choice> {
    let mut choices = choices.to_vec();
    choices.sort_by_key(|choice| std::cmp::Reverse(choice.result_bytes));
    choices.truncate(KERNELS);
    choices
}

/// The most bytes in use, with the kernels that need the least memory and with those that need the most, of
/// those that burn's tuner chooses between.
fn range(
    program: &impl Program,
    batch: u64,
    device: &DeviceSpec,
) -> Result<Range, estimator::Error> {
    let live = |preference| {
        let device = device.clone().with_preference(preference);
        let run = program.simulate_unlimited(batch, &device)?;
        Ok::<_, estimator::Error>(run.most_in_use())
    };
    Ok(Range {
        least_bytes: live(KernelPreference::LeastMemory)?,
        most_bytes: live(KernelPreference::MostMemory)?,
    })
}

/// The answer for weights whose network is not known.
fn lower_bound(
    raw: &cli::Estimate,
    request: &ResolvedRequest,
    checkpoint: &Checkpoint,
) -> anyhow::Result<u8> {
    let advises = raw.advise == Advise::Always;
    for (asked, what) in [
        (raw.plots.any(), "a plot"),
        (raw.layers, "--layers"),
        (raw.kernels, "--kernels"),
        (raw.every_run, "--every-run"),
        (advises, "--advise"),
    ] {
        if asked {
            need_network(&request.model, &request.origin, what)?;
        }
    }
    output::check(&raw.output)?;
    let report = LowerBound::of(request, checkpoint)?;
    output::write(&report, &raw.output)?;
    Ok(match report.fits() {
        Some(true) => FITS,
        Some(false) => DOES_NOT_FIT,
        None => UNKNOWN,
    })
}
