//! Memory of one training step, by category and layer.

use estimator::{Bytes, CardSpec, Choice, Estimate, Favour, LayerMemory, Pace, Tuning, Workbench};
use model_zoo::Model;

use super::{DOES_NOT_FIT, FITS, UNKNOWN};
use crate::advice::{self, Advice, Goal, advise};
use crate::ask::{Ask, Batch, Card};
use crate::cache::{Answer, Cache};
use crate::cli::{self, Advise};
use crate::lower_bound::{LowerBound, need_network};
use crate::output::{self, Rendered, WithLayers};
use crate::own::{Checkpoint, Subject};
use crate::picture::Picture;
use crate::progress::Progress;
use crate::report::{EstimateReport, GpuName, Range, Verdict};
use crate::step::simulate_step_on;
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
    raw.pictures.check(&raw.output)?;
    if raw.kernels && !cfg!(feature = "autotune") {
        return Err(
            Trouble::new("this fit-check is built without burn's autotune")
                .hint("leave --kernels out: nothing is chosen between")
                .into(),
        );
    }
    // Of pictures nothing is kept: they show every allocation.
    let cache = match raw.pictures.any() {
        true => Cache::none(),
        false => Cache::about(&ask.model, &raw.caching),
    };
    let question = ask.question(format!(
        "estimate layers {} kernels {} advise {:?}",
        raw.layers, raw.kernels, raw.advise
    ));
    if let Some(known) = cache.find(&question) {
        known.rendered.write(&raw.output)?;
        return Ok(known.status);
    }
    if raw.kernels {
        estimator::listen();
    }
    let progress = Progress::new(raw.output.quiet, 1 + ask.cards.len() as u64);
    progress.at(&format!(
        "training {} on a simulated card",
        ask.model.name()
    ));
    let spec = ask.endless();
    let bench = Workbench::new(ask.job.precision.float_type());
    let simulated = simulate_step_on(&bench, &ask.model, &ask.job, spec.clone());
    let simulated = simulated.map_err(Trouble::from)?;
    let mut estimate = Estimate::of(&simulated, &spec);
    let range = match raw.kernels {
        true => Some(range(ask, &bench, &spec).map_err(Trouble::from)?),
        false => None,
    };
    let mut verdicts = Vec::with_capacity(ask.cards.len());
    for card in &ask.cards {
        progress.at(&format!("training it on {}", GpuName::new(card).name));
        verdicts.push(verdict(ask, &bench, card, &estimate)?);
    }
    let advice = advice(raw, ask, &estimate, &verdicts, &progress)?;
    progress.done();
    let refused = verdicts.iter().any(|verdict| !verdict.fits);
    let unfused = raw.layers && cfg!(feature = "fusion");
    if unfused {
        progress.at("training it without fusion, for the layers");
        estimate.layers = unfused_layers(ask, &bench, &spec).map_err(Trouble::from)?;
    }
    let report = EstimateReport {
        layers_unfused: unfused,
        offers_advice: refused && raw.advise == Advise::Auto,
        advice,
        range,
        kernels: raw.kernels.then(|| largest(&simulated.choices)),
        ..EstimateReport::new(ask, estimate, verdicts)
    };
    if raw.pictures.any() {
        let published = ask.origin.published.as_deref();
        raw.pictures
            .write(&Picture::new(&report, published, &simulated))?;
    }
    let rendered = match raw.layers {
        true => Rendered::report(&WithLayers(&report)),
        false => Rendered::report(&report),
    };
    rendered.write(&raw.output)?;
    let status = if report.fits() { FITS } else { DOES_NOT_FIT };
    cache.keep(&question, Answer { rendered, status });
    Ok(status)
}

/// How many operations are shown with what was chosen for them.
const KERNELS: usize = 10;

/// Those of `choices` with the largest results.
fn largest(choices: &[Choice]) -> Vec<Choice> {
    let mut choices = choices.to_vec();
    choices.sort_by_key(|choice| std::cmp::Reverse(choice.result_bytes));
    choices.truncate(KERNELS);
    choices
}

/// The most that is in use with the leanest and with the hungriest of the kernels that burn's
/// tuner chooses between, on a card like `spec`.
fn range<M: Model + Sync>(
    ask: &Ask<M>,
    bench: &Workbench,
    spec: &CardSpec,
) -> Result<Range, estimator::Error> {
    let live = |favour| {
        let spec = CardSpec {
            favour,
            ..spec.clone()
        };
        Ok(simulate_step_on(bench, &ask.model, &ask.job, spec)?.most_in_use())
    };
    Ok(Range {
        least_bytes: live(Favour::LeastMemory)?,
        most_bytes: live(Favour::MostMemory)?,
    })
}

/// The layers of the step where burn does not fuse: a fused kernel computes several at once, and what is
/// saved between them is then nobody's.
fn unfused_layers<M: Model + Sync>(
    ask: &Ask<M>,
    bench: &Workbench,
    spec: &CardSpec,
) -> Result<Vec<LayerMemory>, estimator::Error> {
    let spec = CardSpec {
        fused: false,
        ..spec.clone()
    };
    let simulated = simulate_step_on(bench, &ask.model, &ask.job, spec.clone())?;
    Ok(Estimate::of(&simulated, &spec).layers)
}

/// What would make it fit, if that was asked: of the first card on which it does not.
fn advice<M: Model + Sync>(
    raw: &cli::Estimate,
    ask: &Ask<M>,
    estimate: &Estimate,
    verdicts: &[Verdict],
    progress: &Progress,
) -> anyhow::Result<Option<Advice>> {
    if raw.advise != Advise::Always {
        return Ok(None);
    }
    let refusing = verdicts.iter().position(|verdict| !verdict.fits);
    let card = ask.cards.get(refusing.unwrap_or(0));
    let card = card.ok_or_else(advice::needs_card)?;
    progress.at("trying what would make it fit");
    let layers = advice::trained(estimate);
    let advice = advise(ask, card, &layers, Goal::Batch).map_err(Trouble::from)?;
    Ok(Some(advice))
}

/// The answer where only weights are known.
fn lower_bound(raw: &cli::Estimate, ask: &Ask, checkpoint: &Checkpoint) -> anyhow::Result<u8> {
    if raw.pictures.any() {
        need_network(&ask.model, &ask.origin, "a picture")?;
    }
    output::check(&raw.output)?;
    let report = LowerBound::of(ask, checkpoint)?;
    output::write(&report, &raw.output)?;
    Ok(match report.fits() {
        Some(true) => FITS,
        Some(false) => DOES_NOT_FIT,
        None => UNKNOWN,
    })
}

/// Where less than this part of what is required is to spare, the pages that the pools take by
/// chance decide: at the most 7.3 % were seen (DCGAN, batch 2; `docs/accuracy.md`, "Pages").
const CLOSE: u64 = 10;

/// So many ways in which the device's thread can be behind the program are tried where a step fits
/// only just. Each costs a run.
const PACES: usize = 4;

/// Whether the step fits on `card`: it is run there, with the card's memory in force.
fn verdict<M: Model + Sync>(
    ask: &Ask<M>,
    bench: &Workbench,
    card: &Card,
    estimate: &Estimate,
) -> anyhow::Result<Verdict> {
    let refused = |spec: CardSpec| -> anyhow::Result<Option<String>> {
        let simulated =
            simulate_step_on(bench, &ask.model, &ask.job, spec).map_err(Trouble::from)?;
        Ok(simulated.outcome().err().map(|refused| refused.to_string()))
    };
    let available = card.spec.available().unwrap_or(Bytes(u64::MAX));
    let reason = refused(card.spec.clone())?;
    let first_run_fits = match (&reason, &estimate.first_run) {
        (None, Some(first)) if first.reserved_bytes <= available => Some(true),
        (None, Some(_)) => {
            let cold = CardSpec {
                tuning: Tuning::Cold,
                ..card.spec.clone()
            };
            Some(refused(cold)?.is_none())
        }
        _ => None,
    };
    let required = estimate.peak.required_bytes;
    let close = available.saturating_sub(required) < required / CLOSE;
    let behind_fits = match &reason {
        None if close => {
            let mut fits = true;
            for pace in Pace::OTHERS.into_iter().take(PACES) {
                let card = CardSpec {
                    pace,
                    ..card.spec.clone()
                };
                fits = fits && refused(card)?.is_none();
            }
            Some(fits)
        }
        _ => None,
    };
    Ok(Verdict {
        gpu: GpuName::new(card),
        fits: reason.is_none(),
        headroom_bytes: available.signed_difference(required),
        reason,
        first_run_fits,
        behind_fits,
    })
}
