//! Largest batch per card.

use estimator::{
    ConfirmedCalls, LargestBatch, Program, Proposer, largest_batch_with_calls, largest_in_every_run,
};
use model_zoo::Model;
use serde::Serialize;

use crate::advice::{self, Goal};
use crate::cache::{Answer, Cache, CallsKey, Question};
use crate::cli::{self, Advise};
use crate::commands::{torch_batches, torch_zoo};
use crate::exit_status::{DOES_NOT_FIT, FITS};
use crate::interrupt;
use crate::job_info::{GpuName, JobInfo};
use crate::lower_bound::need_network;
use crate::output::{self, Rendered};
use crate::progress::Progress;
use crate::report::{CardBatch, ConfirmedRun, MaxBatchReport};
use crate::resolve::{Batch, Card, ResolvedRequest};
use crate::step::training_job;
use crate::user_error::UserError;

/// Runs the command.
pub fn run(raw: &cli::MaxBatch) -> anyhow::Result<u8> {
    if !raw.command.is_empty() {
        if !raw.job.model.is_empty() {
            return Err(UserError::new("a model and a program were named")
                .hint("leave one of them out: a program takes the place of a model")
                .into());
        }
        let named = &raw.job.cards;
        let cards = super::run::cards(&named.gpu, named.memory.as_deref())?;
        return torch_batches::run(&raw.command, &cards, &raw.output);
    }
    if torch_zoo::is_asked(&raw.job.framework)? {
        return torch_zoo::max_batch(raw);
    }
    let request = ResolvedRequest::new(&raw.job, Batch::default())?;
    need_network(&request.model, &request.origin, "max-batch")?;
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
    output::check(&raw.output)?;
    let cache = Cache::about(&request.model, &raw.caching);
    let options = Options::new(raw);
    let question = Question::new("max-batch", options, request);
    if let Some(known) = cache.find::<Answer>(&question) {
        known.rendered.write(&raw.output)?;
        return Ok(known.status);
    }
    let answer = simulate(options, request, &cache, &raw.output)?;
    let status = answer.status;
    cache.keep(&question, answer);
    Ok(status)
}

/// The options that change the answer about a job. The key of the cache has all of them.
#[derive(Clone, Copy, Debug, Serialize)]
struct Options {
    advise: Advise,
    every_run: bool,
}

impl Options {
    /// The options of `raw`.
    fn new(raw: &cli::MaxBatch) -> Self {
        // Every option has a name here, so that a new one is not forgotten in the key.
        let cli::MaxBatch {
            job: _,
            advise,
            every_run,
            caching: _,
            output: _,
            command: _,
        } = *raw;
        Self { advise, every_run }
    }
}

/// Answers `request` by simulation, or by replay of the calls in `cache`, and writes the answer.
fn simulate<M: Model + Sync>(
    options: Options,
    request: &ResolvedRequest<M>,
    cache: &Cache,
    output: &cli::Output,
) -> anyhow::Result<Answer> {
    let Options { advise, every_run } = options;
    let searches = if every_run { 2 } else { 1 };
    let advises = advise == Advise::Always;
    let steps = 1 + searches * request.cards.len() as u64 + u64::from(advises);
    let progress = Progress::new(output.quiet, steps);
    let found = largest_batches(every_run, request, cache, &progress)?;
    let tokens = request.job.input.tokens();
    let cards: Vec<_> = request
        .cards
        .iter()
        .zip(&found)
        .map(|(card, found)| found.report(card, tokens))
        .collect();
    // The first card on which not one sample fits, else the first card.
    let empty = cards.iter().position(|card| card.max_batch == 0);
    let mut report = MaxBatchReport {
        asked: JobInfo::new(request, None),
        offers_advice: advise == Advise::Auto && empty.is_some(),
        advice: None,
        cards,
    };
    if advises {
        progress.at("trying what would let more samples fit");
        Rendered::report(&report).write_if_interrupted(output)?;
        let card = &request.cards[empty.unwrap_or(0)];
        let layers = advice::layers_with_parameters(&found[0].largest.next.estimate);
        let advice = advice::advise(request, card, &layers, Goal::Most);
        interrupt::disarm();
        match advice {
            Ok(advice) => report.advice = Some(advice),
            Err(error) => {
                progress.done();
                Rendered::report(&report).write(output)?;
                return Err(card.error(error).about("no advice").into());
            }
        }
    }
    progress.done();
    let rendered = Rendered::report(&report);
    rendered.write(output)?;
    let fits = report.cards.iter().all(|card| card.max_batch > 0);
    let status = if fits { FITS } else { DOES_NOT_FIT };
    Ok(Answer { rendered, status })
}

/// The largest batch on a card, and the largest that fits in every run if that was asked for.
struct Found {
    largest: LargestBatch,
    every_run: Option<u64>,
    replayed_from: Option<ConfirmedRun>,
}

impl Found {
    /// The largest batch of `program` on `card` by replay of `calls`; none if it takes a run.
    fn by_replay(
        program: &impl Program,
        calls: &ConfirmedCalls,
        card: &Card,
    ) -> Result<Option<Self>, UserError> {
        let replayed = calls.largest_batch(program, &card.device);
        let largest = replayed.map_err(|error| card.error(error))?;
        Ok(largest.map(|largest| Self {
            largest,
            every_run: None,
            replayed_from: Some(ConfirmedRun::of(calls)),
        }))
    }

    /// The answer for `card`; `tokens` are those of a sample.
    fn report(&self, card: &Card, tokens: Option<usize>) -> CardBatch {
        let replayed_from = self.replayed_from.clone();
        CardBatch::new(card, &self.largest, self.every_run, replayed_from, tokens)
    }
}

/// Learns how `program` grows with the batch, on the one of `cards` with the most memory.
fn learn<'a, P: Program>(program: &'a P, cards: &[Card]) -> Result<Proposer<'a, P>, UserError> {
    let most = cards.iter().max_by_key(|card| card.usable());
    let most = most.expect("a card was named");
    Proposer::learn(program, &most.device).map_err(|error| most.error(error))
}

/// Finds the largest batch of `request` on each of its cards: by replay of the calls in `cache`, if that is enough and not
/// every run is asked for.
fn largest_batches<M: Model + Sync>(
    every_run: bool,
    request: &ResolvedRequest<M>,
    cache: &Cache,
    progress: &Progress,
) -> anyhow::Result<Vec<Found>> {
    let program = training_job(&request.model, &request.job).without_first_runs();
    let learned = || {
        let model = request.model.name();
        progress.at(&format!("training {model} on a simulated card"));
        learn(&program, &request.cards)
    };
    let mut proposer = None;
    let mut found = Vec::with_capacity(request.cards.len());
    for card in &request.cards {
        let name = GpuName::new(card).name;
        let key = CallsKey::new(request, &card.device);
        let kept: Option<ConfirmedCalls> = cache.find(&key);
        if let Some(calls) = kept.as_ref().filter(|_| !every_run) {
            progress.at(&format!("replaying the step on {name}"));
            if let Some(replayed) = Found::by_replay(&program, calls, card)? {
                found.push(replayed);
                continue;
            }
        }
        let proposer = match &proposer {
            Some(proposer) => proposer,
            None => proposer.insert(learned()?),
        };
        progress.at(&format!("filling {name}"));
        let largest = largest_batch_with_calls(&program, proposer, &card.device);
        let (largest, calls) = largest.map_err(|error| card.error(error))?;
        let known = kept.as_ref().map_or(0, ConfirmedCalls::batch);
        if let Some(calls) = calls.filter(|calls| calls.batch() > known) {
            cache.keep(&key, calls);
        }
        let every_run = match every_run {
            true => {
                let batch = largest.batch;
                progress.at(&format!("trying other runs of batch {batch} on {name}"));
                let found = largest_in_every_run(&program, batch, &card.device);
                Some(found.map_err(|error| card.error(error))?)
            }
            false => None,
        };
        found.push(Found {
            largest,
            every_run,
            replayed_from: None,
        });
    }
    Ok(found)
}
