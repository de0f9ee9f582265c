//! Memory of one training step, by category and layer.

use estimator::{Bytes, Estimate};
use model_zoo::Model;

use super::{DOES_NOT_FIT, FITS, UNKNOWN};
use crate::ask::{Ask, Batch, Card};
use crate::cli;
use crate::lower_bound::LowerBound;
use crate::output::{self, WithLayers};
use crate::own::{Checkpoint, Subject};
use crate::progress::Progress;
use crate::report::{EstimateReport, GpuName, Verdict};
use crate::simulate_step;
use crate::trouble::Trouble;

/// Runs the command.
pub fn run(raw: &cli::Estimate) -> anyhow::Result<u8> {
    let ask = Ask::new(&raw.job, batch(raw))?;
    if let (Subject::Weights(_), Some(checkpoint)) = (&ask.model, &ask.origin.checkpoint) {
        return lower_bound(raw, &ask, checkpoint);
    }
    answer(raw, &ask)
}

/// The batch that `raw` asks for.
pub fn batch(raw: &cli::Estimate) -> Batch<'_> {
    Batch {
        samples: raw.batch.as_deref(),
        tokens: raw.tokens.as_deref(),
    }
}

/// Runs the command for `ask`.
pub fn answer<M: Model + Sync>(raw: &cli::Estimate, ask: &Ask<M>) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let progress = Progress::new(raw.output.quiet, 1 + ask.cards.len() as u64);
    progress.at(&format!(
        "training {} on a simulated card",
        ask.model.name()
    ));
    let spec = ask.endless();
    let simulated = simulate_step(&ask.model, &ask.job, spec.clone()).map_err(Trouble::from)?;
    let estimate = Estimate::of(&simulated, &spec);
    let mut verdicts = Vec::with_capacity(ask.cards.len());
    for card in &ask.cards {
        progress.at(&format!("training it on {}", GpuName::new(card).name));
        verdicts.push(verdict(ask, card, &estimate)?);
    }
    progress.done();
    let report = EstimateReport::new(ask, estimate, verdicts);
    match raw.layers {
        true => output::write(&WithLayers(&report), &raw.output)?,
        false => output::write(&report, &raw.output)?,
    }
    Ok(if report.fits() { FITS } else { DOES_NOT_FIT })
}

/// The answer where only weights are known.
fn lower_bound(raw: &cli::Estimate, ask: &Ask, checkpoint: &Checkpoint) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let report = LowerBound::of(ask, checkpoint)?;
    output::write(&report, &raw.output)?;
    Ok(match report.fits() {
        Some(true) => FITS,
        Some(false) => DOES_NOT_FIT,
        None => UNKNOWN,
    })
}

/// Whether the step fits on `card`: it is run there, with the card's memory in force.
fn verdict<M: Model + Sync>(
    ask: &Ask<M>,
    card: &Card,
    estimate: &Estimate,
) -> anyhow::Result<Verdict> {
    let simulated =
        simulate_step(&ask.model, &ask.job, card.spec.clone()).map_err(Trouble::from)?;
    let available = card.spec.available().unwrap_or(Bytes(u64::MAX));
    let reason = simulated.outcome().err().map(|refused| refused.to_string());
    Ok(Verdict {
        gpu: GpuName::new(card),
        fits: reason.is_none(),
        headroom_bytes: available.signed_difference(estimate.peak.required_bytes),
        reason,
    })
}
