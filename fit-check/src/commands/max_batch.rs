//! Largest batch per card.

use estimator::largest_batch;
use model_zoo::Model;

use super::{DOES_NOT_FIT, FITS};
use crate::advice::{self, Advice, Goal, advise};
use crate::ask::{Ask, Batch};
use crate::cache::{Answer, Cache};
use crate::cli::{self, Advise};
use crate::lower_bound::need_network;
use crate::output::{self, Rendered};
use crate::progress::Progress;
use crate::report::{Asked, CardBatch, GpuName, MaxBatchReport};
use crate::step::{AnyBatch, forecast};
use crate::trouble::Trouble;

/// Runs the command.
pub fn run(raw: &cli::MaxBatch) -> anyhow::Result<u8> {
    let ask = Ask::new(&raw.job, Batch::default())?;
    need_network(&ask.model, &ask.origin, "max-batch")?;
    answer(raw, &ask)
}

/// Runs the command for `ask`, whose batch does not matter.
pub fn answer<M: Model + Sync>(raw: &cli::MaxBatch, ask: &Ask<M>) -> anyhow::Result<u8> {
    if ask.cards.is_empty() {
        return Err(Trouble::new("max-batch needs a card")
            .hint(
                "add --gpu 24GB, --gpu rtx-3090 or --memory 24GB; `fit-check gpus` lists the cards",
            )
            .into());
    }
    output::check(&raw.output)?;
    let cache = Cache::about(&ask.model, &raw.caching);
    let question = ask.question(format!("max-batch advise {:?}", raw.advise));
    if let Some(known) = cache.find(&question) {
        known.rendered.write(&raw.output)?;
        return Ok(known.status);
    }
    let progress = Progress::new(raw.output.quiet, 1 + ask.cards.len() as u64);
    progress.at(&format!(
        "training {} on a simulated card",
        ask.model.name()
    ));
    let program = AnyBatch::new(&ask.model, &ask.job);
    let most = ask.cards.iter().max_by_key(|card| card.usable());
    let most = &most.expect("a card was named").spec;
    let forecast = forecast(&program, most).map_err(Trouble::from)?;
    let mut cards = Vec::with_capacity(ask.cards.len());
    let mut layers = Vec::new();
    for card in &ask.cards {
        progress.at(&format!("filling {}", GpuName::new(card).name));
        let found =
            largest_batch(&program, forecast.as_ref(), &card.spec).map_err(Trouble::from)?;
        cards.push(CardBatch::new(card, &found, ask.job.input.tokens()));
        layers = advice::trained(&found.next.estimate);
    }
    let advice = advice(raw, ask, &cards, &layers, &progress)?;
    progress.done();
    let report = MaxBatchReport {
        asked: Asked::new(ask, None),
        offers_advice: raw.advise == Advise::Auto && cards.iter().any(|card| card.max_batch == 0),
        advice,
        cards,
    };
    let rendered = Rendered::report(&report);
    rendered.write(&raw.output)?;
    let fits = report.cards.iter().all(|card| card.max_batch > 0);
    let status = if fits { FITS } else { DOES_NOT_FIT };
    cache.keep(&question, Answer { rendered, status });
    Ok(status)
}

/// What would let more samples fit, if that was asked: of the first card that holds none.
fn advice<M: Model + Sync>(
    raw: &cli::MaxBatch,
    ask: &Ask<M>,
    cards: &[CardBatch],
    layers: &[String],
    progress: &Progress,
) -> anyhow::Result<Option<Advice>> {
    if raw.advise != Advise::Always {
        return Ok(None);
    }
    let empty = cards.iter().position(|card| card.max_batch == 0);
    progress.at("trying what would let more samples fit");
    let card = &ask.cards[empty.unwrap_or(0)];
    let advice = advise(ask, card, layers, Goal::Most).map_err(Trouble::from)?;
    Ok(Some(advice))
}
