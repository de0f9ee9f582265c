//! Memory of one training step, by category and layer.

use estimator::{Choice, DeviceSpec, Error, KernelPreference, Program, Simulated, StepRuns};
use model_zoo::Model;
use serde::Serialize;

use super::advising;
use crate::advice::{self, Goal};
use crate::cache::{Answer, Cache, Question};
use crate::cli::{self, Advise};
use crate::commands::torch;
use crate::exit_status::{DOES_NOT_FIT, FITS, UNKNOWN};
use crate::job_info::JobInfo;
use crate::output::job_lines::job_name;
use crate::output::{self, EstimatePage, Rendered, terminal};
use crate::plots::Plot;
use crate::progress::Progress;
use crate::report::{EstimateReport, Range, Verdict};
use crate::resolve::{Batch, Card, ResolvedRequest, one_model};
use crate::several_gpus::with_least_nccl;
use crate::size_limit::{self, Work};
use crate::step::training_job;
use crate::torch_program::snapshot;
use crate::user_error::UserError;

/// Runs the command.
pub fn run(raw: &cli::Estimate) -> anyhow::Result<u8> {
    one_model("estimate", &raw.job.model, &raw.more)?;
    if snapshot::is_snapshot(&raw.job.model) {
        return of_snapshot(raw);
    }
    if torch::is_asked_about(&raw.job)? {
        return torch::estimate(raw);
    }
    let request = ResolvedRequest::new(&raw.job, Batch::typed(&raw.batch, &raw.tokens))?;
    answer(raw, &request)
}

/// The answer about a memory snapshot of PyTorch.
fn of_snapshot(raw: &cli::Estimate) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let named = &raw.job.cards;
    let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
    let conf = torch_memory::recorder::allocator_variable().unwrap_or_default();
    let report = snapshot::report(&raw.job.model, &cards, &conf, raw.advise)?;
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
    let question = Question::about("estimate", options, request);
    cache.answer(&question, &raw.output, || {
        simulate(options, request, &raw.plots, &raw.output)
    })
}

/// The options that change the answer about a job. The key of the cache has all of them.
#[derive(Clone, Copy, Debug, Serialize)]
struct Options {
    details: bool,
    layers: bool,
    kernels: bool,
    advise: Advise,
    /// The page is wrapped to it.
    columns: usize,
}

impl Options {
    /// The options of `raw`.
    fn new(raw: &cli::Estimate) -> Self {
        // Every option has a name here, so that a new one is not forgotten in the key.
        let cli::Estimate {
            job: _,
            more: _,
            batch: _,
            tokens: _,
            details,
            layers,
            kernels,
            plots: _,
            advise,
            caching: _,
            output: _,
        } = *raw;
        Self {
            details,
            layers,
            kernels,
            advise,
            columns: terminal::width(),
        }
    }
}

/// Refuses options that do not go together, before anything is simulated.
fn check<M: Model>(raw: &cli::Estimate, request: &ResolvedRequest<M>) -> anyhow::Result<()> {
    output::check(&raw.output)?;
    raw.plots.check(&raw.output)?;
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
    let unfused = layers_unfused(options, plots);
    let steps = 1 + request.cards.len() as u64 + u64::from(unfused) + u64::from(advises);
    let progress = Progress::new(output.quiet, steps);
    // Changes that are simulated have a time of their own.
    let work = if advises {
        Work::Search
    } else {
        Work::Estimate
    };
    let asked = JobInfo::new(request, Some(request.job.batch));
    let _watch = size_limit::watch(&job_name(&asked), work);
    let SimulatedReport {
        mut report,
        simulated,
        layers,
    } = simulate_report(options, unfused, request, &progress)?;
    let mut unadvised = None;
    if advises {
        let refused = report.verdicts().iter().position(|verdict| !verdict.fits);
        let card = &request.cards[refused.unwrap_or(0)];
        progress.at("trying what would make it fit");
        let (so_far, to) = (report.clone(), output.clone());
        let write = move |advice| {
            let advised = EstimateReport {
                advice: Some(advice),
                ..so_far
            };
            render(&advised, options).write(&to)
        };
        let status = status(&report);
        match advising::changes(
            request,
            card,
            &layers,
            Goal::Batch,
            &progress,
            status,
            write,
        ) {
            Ok(advice) => report.advice = Some(advice),
            Err(error) => unadvised = Some(error),
        }
    }
    progress.done();
    let answer = Answer {
        rendered: render(&report, options),
        status: status(&report),
    };
    let written = answer.rendered.write(output);
    if plots.any() {
        let published = request.origin.published.as_deref();
        plots.write(&Plot::new(&report, published, &simulated))?;
    }
    written?;
    match unadvised {
        Some(error) => Err(error),
        None => Ok(answer),
    }
}

/// The exit status of an answer.
fn status(report: &EstimateReport) -> u8 {
    let refused = report.verdicts().iter().filter(|verdict| !verdict.fits);
    match refused.count() {
        0 => FITS,
        refused if refused == report.nccl_decides.len() => UNKNOWN,
        _ => DOES_NOT_FIT,
    }
}

/// Whether the table of layers needs a run of its own: a fused kernel computes several layers at once, so tensors
/// between them belong to no layer.
fn layers_unfused(options: Options, plots: &cli::PlotFiles) -> bool {
    (options.layers || plots.html.is_some()) && cfg!(feature = "fusion")
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
    layers_unfused: bool,
    request: &ResolvedRequest<M>,
    progress: &Progress,
) -> anyhow::Result<SimulatedReport> {
    progress.at(&format!(
        "training {} on a simulated card",
        request.model.name()
    ));
    let program = training_job(&request.model, &request.job).only(request.only);
    let batch = request.job.batch as u64;
    let on_first = |error: Error| match request.cards.first() {
        Some(card) => card.error(error),
        None => error.into(),
    };
    let first = match request.cards.first() {
        Some(card) => card.device.clone(),
        None => request.unlimited(),
    };
    let runs = StepRuns::of(&program, batch, &first).map_err(on_first)?;
    let mut estimate = runs.estimate().map_err(on_first)?;
    let unlimited = request.unlimited();
    let range = match options.kernels {
        true => Some(range(&program, batch, &unlimited)?),
        false => None,
    };
    let (verdicts, nccl_decides) = verdicts(request, &program, &runs, progress)?;
    let refused = verdicts.iter().any(|verdict| !verdict.fits);
    let layers = advice::layers_with_parameters(&estimate);
    if layers_unfused {
        progress.at("training it without fusion, for the layers");
        let unfused = program.simulate_unlimited(batch, &unlimited.unfused())?;
        estimate.layers = unfused.estimate()?.layers;
    }
    let others = match request.cards.first().and_then(|card| card.group) {
        None => None,
        // The other GPUs do what GPU 0 does, and keep no copy of the model.
        Some(group) => {
            let others = runs.without_kept().and_then(|runs| runs.estimate());
            Some((group, others.map_err(on_first)?))
        }
    };
    let simulated = runs.into_shown();
    let mut report = EstimateReport {
        layers_unfused,
        nccl_decides,
        offers_advice: refused && options.advise == Advise::Auto,
        advice: None,
        range,
        kernels: options.kernels.then(|| largest(&simulated.choices)),
        ..EstimateReport::new(request, estimate, verdicts)
    };
    if let Some((group, others)) = others {
        report.add_other_gpus(&request.cards[0], group, &others);
    }
    Ok(SimulatedReport {
        report,
        simulated,
        layers,
    })
}

/// Whether the step fits on each of the cards of `request`, and the names of those where that depends on NCCL; `first` are the
/// runs on the first of them.
fn verdicts<M: Model + Sync, P: Program>(
    request: &ResolvedRequest<M>,
    program: &P,
    first: &StepRuns<P>,
    progress: &Progress,
) -> Result<(Vec<Verdict>, Vec<String>), UserError> {
    let batch = request.job.batch as u64;
    let mut nccl_decides = Vec::new();
    // The runs on cards with other kernels than the first.
    let mut others: Vec<StepRuns<P>> = Vec::new();
    let cards = request.cards.iter();
    let verdicts = cards.map(|card| {
        progress.at(&format!("training it on {}", card.name()));
        let holds = |runs: &&StepRuns<P>| runs.hold_for(&card.device);
        let known = [first].into_iter().chain(&others).find(holds);
        let runs = match known {
            Some(runs) => runs,
            None => {
                let runs = StepRuns::of(program, batch, &card.device);
                others.push(runs.map_err(|error| card.error(error))?);
                others.last().expect("it was just added")
            }
        };
        let verdict = |card: &Card| {
            runs.verdict(&card.device)
                .map_err(|error| card.error(error))
        };
        let fits = verdict(card)?;
        if let Some(with_least) = with_least_nccl(card).filter(|_| !fits.fits())
            && verdict(&with_least)?.fits()
        {
            nccl_decides.push(card.name());
        }
        Ok::<_, UserError>(Verdict::new(card, &fits))
    });
    let verdicts = verdicts.collect::<Result<_, _>>()?;
    Ok((verdicts, nccl_decides))
}

fn render(report: &EstimateReport, options: Options) -> Rendered {
    Rendered::report(&EstimatePage {
        report,
        details: options.details,
        layers: options.layers,
    })
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
