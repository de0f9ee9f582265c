//! Largest batch per card.

use estimator::{LargestBatch, Program, Proposer, largest_batch};
use model_zoo::Model;
use serde::Serialize;

use super::advising;
use crate::advice::{self, Goal};
use crate::cache::{Answer, Cache, Question};
use crate::cli::{self, Advise};
use crate::commands::torch;
use crate::commands::torch_batches::Asked;
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::job_info::JobInfo;
use crate::output::job_lines::job_name;
use crate::output::{self, Rendered, terminal};
use crate::progress::Progress;
use crate::report::{CardBatch, MaxBatchReport};
use crate::resolve::{Batch, Card, ResolvedRequest, one_model};
use crate::size_limit::{self, Work};
use crate::step::training_job;
use crate::user_error::UserError;

/// Runs the command.
pub fn run(raw: &cli::MaxBatch) -> anyhow::Result<u8> {
    one_model("max-batch", &raw.job.model, &raw.more)?;
    if !raw.command.is_empty() {
        if !raw.job.model.is_empty() {
            return Err(UserError::new("a model and a program were named")
                .hint("leave one of them out: a program takes the place of a model")
                .into());
        }
        let named = &raw.job.cards;
        let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
        let sizes = &raw.job.step.options.sizes;
        let asked = Asked::new(&raw.command, sizes, &raw.program)?;
        if sizes.seqs()?.len() > 1 {
            return Err(UserError::new("max-batch takes one --seq")
                .hint("`fit-check table` takes several lengths, with commas between them")
                .into());
        }
        return asked.max_batch(raw, &cards);
    }
    if torch::is_asked_about(&raw.job)? {
        return torch::max_batch(raw);
    }
    let request = ResolvedRequest::new(&raw.job, Batch::default())?;
    answer(raw, &request)
}

/// Runs the command for `request`, and ignores its batch.
pub fn answer<M: Model + Sync>(
    raw: &cli::MaxBatch,
    request: &ResolvedRequest<M>,
) -> anyhow::Result<u8> {
    if request.cards.is_empty() {
        return Err(UserError::no_card("max-batch needs a card").into());
    }
    if raw.save.is_some() {
        return Err(UserError::new("--save is for PyTorch")
            .hint("leave it out: burn's answers take a second, and are kept by themselves")
            .into());
    }
    output::check(&raw.output)?;
    let cache = Cache::about(&request.model, &raw.caching);
    let options = Options::new(raw);
    let question = Question::about("max-batch", options, request);
    cache.answer(&question, &raw.output, || {
        simulate(options, request, &raw.output)
    })
}

/// The options that change the answer about a job. The key of the cache has all of them.
#[derive(Clone, Copy, Debug, Serialize)]
struct Options {
    advise: Advise,
    /// The page is wrapped to it.
    columns: usize,
}

impl Options {
    /// The options of `raw`.
    fn new(raw: &cli::MaxBatch) -> Self {
        // Every option has a name here, so that a new one is not forgotten in the key.
        let cli::MaxBatch {
            job: _,
            more: _,
            advise,
            save: _,
            caching: _,
            output: _,
            program: _,
            command: _,
        } = *raw;
        Self {
            advise,
            columns: terminal::width(),
        }
    }
}

/// Answers `request` by simulation, and writes the answer.
fn simulate<M: Model + Sync>(
    options: Options,
    request: &ResolvedRequest<M>,
    output: &cli::Output,
) -> anyhow::Result<Answer> {
    let advises = options.advise == Advise::Always;
    let steps = 1 + request.cards.len() as u64 + u64::from(advises);
    let progress = Progress::new(output.quiet, steps);
    let asked = JobInfo::new(request, None);
    let _watch = size_limit::watch(&job_name(&asked), Work::Search);
    let found = largest_batches(request, &progress)?;
    let cards = request.cards.iter().zip(&found);
    let cards: Vec<_> = cards
        .map(|(card, found)| CardBatch::new(request, card, found))
        .collect();
    // The first card on which not one sample fits, else the first card.
    let empty = cards.iter().position(|card| card.max_batch == 0);
    let mut report = MaxBatchReport {
        asked: JobInfo::new(request, None),
        offers_advice: options.advise == Advise::Auto && empty.is_some(),
        advice: None,
        cards,
    };
    if advises {
        progress.at("trying what would let more samples fit");
        let card = &request.cards[empty.unwrap_or(0)];
        let layers = advice::layers_with_parameters(&found[0].next.estimate);
        let (so_far, to) = (report.clone(), output.clone());
        let write = move |advice| {
            let advised = MaxBatchReport {
                advice: Some(advice),
                ..so_far
            };
            Rendered::report(&advised).write(&to)
        };
        let status = status(&report);
        match advising::changes(request, card, &layers, Goal::Most, &progress, status, write) {
            Ok(advice) => report.advice = Some(advice),
            Err(error) => {
                progress.done();
                Rendered::report(&report).write(output)?;
                return Err(error);
            }
        }
    }
    progress.done();
    let rendered = Rendered::report(&report);
    rendered.write(output)?;
    Ok(Answer {
        rendered,
        status: status(&report),
    })
}

/// The exit status of an answer.
fn status(report: &MaxBatchReport) -> u8 {
    match report.cards.iter().all(|card| card.max_batch > 0) {
        true => FITS,
        false => DOES_NOT_FIT,
    }
}

/// Learns how `program` grows with the batch, on the one of `cards` with the most memory.
fn learn<'a, P: Program>(program: &'a P, cards: &[Card]) -> Result<Proposer<'a, P>, UserError> {
    let most = cards.iter().max_by_key(|card| card.usable());
    let most = most.expect("a card was named");
    Proposer::learn(program, &most.device).map_err(|error| most.error(error))
}

/// Finds the largest batch of `request` on each of its cards.
fn largest_batches<M: Model + Sync>(
    request: &ResolvedRequest<M>,
    progress: &Progress,
) -> anyhow::Result<Vec<LargestBatch>> {
    let program = training_job(&request.model, &request.job);
    let program = program.only(request.only).without_first_runs();
    let model = request.model.name();
    progress.at(&format!("training {model} on a simulated card"));
    let proposer = learn(&program, &request.cards)?;
    let cards = request.cards.iter();
    let found = cards.map(|card| {
        progress.at(&format!("filling {}", card.name()));
        let found = largest_batch(&program, &proposer, &card.device);
        Ok(found.map_err(|error| card.error(error))?)
    });
    found.collect()
}
