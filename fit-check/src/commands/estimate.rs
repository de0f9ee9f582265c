//! Memory of one training step, by category and layer.

use estimator::{Bytes, Estimate};

use super::{DOES_NOT_FIT, FITS};
use crate::ask::{Ask, Batch, Card};
use crate::cli;
use crate::output::{self, WithLayers};
use crate::progress::Progress;
use crate::report::{EstimateReport, GpuName, Verdict};
use crate::simulate_step;
use crate::trouble::Trouble;

/// Runs the command.
pub fn run(raw: &cli::Estimate) -> anyhow::Result<u8> {
    let ask = Ask::new(
        &raw.job,
        Batch {
            samples: raw.batch.as_deref(),
            tokens: raw.tokens.as_deref(),
        },
    )?;
    output::check(&raw.output)?;
    let progress = Progress::new(raw.output.quiet, 1 + ask.cards.len() as u64);
    progress.at(&format!(
        "training {} on a simulated card",
        ask.variant.name
    ));
    let spec = ask.endless();
    let simulated = simulate_step(&ask.variant, &ask.job, spec.clone()).map_err(Trouble::from)?;
    let estimate = Estimate::of(&simulated, &spec);
    let mut verdicts = Vec::with_capacity(ask.cards.len());
    for card in &ask.cards {
        progress.at(&format!("training it on {}", GpuName::new(card).name));
        verdicts.push(verdict(&ask, card, &estimate)?);
    }
    progress.done();
    let report = EstimateReport::new(&ask, estimate, verdicts);
    match raw.layers {
        true => output::write(&WithLayers(&report), &raw.output)?,
        false => output::write(&report, &raw.output)?,
    }
    Ok(if report.fits() { FITS } else { DOES_NOT_FIT })
}

/// Whether the step fits on `card`: it is run there, with the card's memory in force.
fn verdict(ask: &Ask, card: &Card, estimate: &Estimate) -> anyhow::Result<Verdict> {
    let simulated =
        simulate_step(&ask.variant, &ask.job, card.spec.clone()).map_err(Trouble::from)?;
    let available = card.spec.available().unwrap_or(Bytes(u64::MAX));
    let reason = simulated.outcome().err().map(|refused| refused.to_string());
    Ok(Verdict {
        gpu: GpuName::new(card),
        fits: reason.is_none(),
        headroom_bytes: available.signed_difference(estimate.peak.required_bytes),
        reason,
    })
}
