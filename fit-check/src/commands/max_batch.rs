//! Largest batch per card.

use estimator::{Proposer, largest_batch, largest_in_every_run};
use model_zoo::Model;

use super::{DOES_NOT_FIT, FITS};
use crate::advice::{self, Goal, advise};
use crate::cache::{Answer, Cache, Question};
use crate::cli::{self, Advise};
use crate::interrupt;
use crate::job_info::{GpuName, JobInfo};
use crate::lower_bound::need_network;
use crate::output::{self, Rendered};
use crate::progress::Progress;
use crate::report::{CardBatch, MaxBatchReport};
use crate::resolve::{Batch, ResolvedRequest};
use crate::step::training_job;
use crate::user_error::UserError;

/// Runs the command.
pub fn run(raw: &cli::MaxBatch) -> anyhow::Result<u8> {
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
    let question = Question::new(
        format!(
            "max-batch advise {:?} every run {}",
            raw.advise, raw.every_run
        ),
        request,
    );
    if let Some(known) = cache.find(&question) {
        known.rendered.write(&raw.output)?;
        return Ok(known.status);
    }
    let searches = if raw.every_run { 2 } else { 1 };
    let advises = raw.advise == Advise::Always;
    let steps = 1 + searches * request.cards.len() as u64 + u64::from(advises);
    let progress = Progress::new(raw.output.quiet, steps);
    progress.at(&format!(
        "training {} on a simulated card",
        request.model.name()
    ));
    let program = training_job(&request.model, &request.job).without_first_runs();
    let most = request.cards.iter().max_by_key(|card| card.usable());
    let most = most.expect("a card was named");
    let learnt = Proposer::learn(&program, &most.device);
    let proposer = learnt.map_err(|error| most.error(error))?;
    let mut cards = Vec::with_capacity(request.cards.len());
    let mut layers = Vec::new();
    for card in &request.cards {
        let name = GpuName::new(card).name;
        progress.at(&format!("filling {name}"));
        let found = largest_batch(&program, &proposer, &card.device);
        let found = found.map_err(|error| card.error(error))?;
        let every_run = match raw.every_run {
            true => {
                let batch = found.batch;
                progress.at(&format!("trying other runs of batch {batch} on {name}"));
                let found = largest_in_every_run(&program, batch, &card.device);
                Some(found.map_err(|error| card.error(error))?)
            }
            false => None,
        };
        let tokens = request.job.input.tokens();
        cards.push(CardBatch::new(card, &found, every_run, tokens));
        layers = advice::trained(&found.next.estimate);
    }
    // The first card on which not one sample fits, else the first card.
    let empty = cards.iter().position(|card| card.max_batch == 0);
    let mut report = MaxBatchReport {
        asked: JobInfo::new(request, None),
        offers_advice: raw.advise == Advise::Auto && empty.is_some(),
        advice: None,
        cards,
    };
    if advises {
        progress.at("trying what would let more samples fit");
        Rendered::report(&report).write_if_interrupted(&raw.output)?;
        let card = &request.cards[empty.unwrap_or(0)];
        let advice = advise(request, card, &layers, Goal::Most);
        interrupt::disarm();
        match advice {
            Ok(advice) => report.advice = Some(advice),
            Err(error) => {
                progress.done();
                Rendered::report(&report).write(&raw.output)?;
                return Err(card.error(error).about("no advice").into());
            }
        }
    }
    progress.done();
    let rendered = Rendered::report(&report);
    rendered.write(&raw.output)?;
    let fits = report.cards.iter().all(|card| card.max_batch > 0);
    let status = if fits { FITS } else { DOES_NOT_FIT };
    cache.keep(&question, Answer { rendered, status });
    Ok(status)
}
