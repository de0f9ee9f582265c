//! Largest batch per card.

use estimator::{CardSpec, Error, Program, Scaling, Simulated, largest_batch};
use model_zoo::{Job, Model};

use super::{DOES_NOT_FIT, FITS};
use crate::ask::Ask;
use crate::cli;
use crate::lower_bound::need_network;
use crate::output;
use crate::progress::Progress;
use crate::report::{Asked, CardBatch, GpuName, MaxBatchReport};
use crate::simulate_step;
use crate::trouble::Trouble;

/// The asked step at any batch.
struct Step<'a, M>(&'a Ask<M>);

impl<M: Model + Sync> Program for Step<'_, M> {
    fn simulate(&self, batch: u64, spec: CardSpec) -> Result<Simulated, Error> {
        let job = Job {
            batch: batch as usize,
            ..self.0.job.clone()
        };
        simulate_step(&self.0.model, &job, spec)
    }
}

/// The batches from which others are proposed. One sample is often special: what is wide in
/// the batch can be left out.
const PROPOSING: u64 = 2;

/// Runs the command.
pub fn run(raw: &cli::MaxBatch) -> anyhow::Result<u8> {
    let ask = Ask::new(&raw.job, Some("1"))?;
    need_network(&ask, "max-batch")?;
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
    let progress = Progress::new(raw.output.quiet, 1 + ask.cards.len() as u64);
    progress.at(&format!(
        "training {} on a simulated card",
        ask.model.name()
    ));
    let program = Step(ask);
    let endless = ask.endless();
    let proposing = |batch| program.simulate(batch, endless.clone());
    let few = proposing(PROPOSING).map_err(Trouble::from)?;
    let more = proposing(PROPOSING + 1).map_err(Trouble::from)?;
    let scaling = Scaling::between(PROPOSING, few.recording, &more.recording);
    let mut cards = Vec::with_capacity(ask.cards.len());
    for card in &ask.cards {
        progress.at(&format!("filling {}", GpuName::new(card).name));
        let found = largest_batch(&program, scaling.as_ref(), &card.spec).map_err(Trouble::from)?;
        cards.push(CardBatch::new(card, &found));
    }
    progress.done();
    let report = MaxBatchReport {
        asked: Asked::new(ask, None),
        cards,
    };
    output::write(&report, &raw.output)?;
    let fits = report.cards.iter().all(|card| card.max_batch > 0);
    Ok(if fits { FITS } else { DOES_NOT_FIT })
}
