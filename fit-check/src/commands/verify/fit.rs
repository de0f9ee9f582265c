//! One batch: what was estimated beside what was measured.

use std::path::Path;
use std::sync::Mutex;

use cubecl_server::dry_run::DryRun;
use estimator::record::Refusal;
use estimator::{CardSpec, Overhead, Pace, Simulated};
use model_zoo::Model;

use super::super::{DOES_NOT_FIT, FITS, UNKNOWN};
use super::Proof;
use crate::cli;
use crate::comparison::{Errors, Figures};
use crate::measure::{Ending, Mode};
use crate::output;
use crate::own::{Loaded, Loading, Values};
use crate::records::{self, Record};
use crate::report::VerifyReport;
use crate::step::{STEPS, Watched, training_device};
use crate::trouble::Trouble;

/// Runs the job of `proof` on its device and on a simulated card like it.
pub(super) fn run(proof: &Proof, tolerance: f64, raw: &cli::Verify) -> anyhow::Result<u8> {
    let mode = match raw.dry_run {
        true => Mode::DryRun,
        false => Mode::Real,
    };
    let weights = proof.weights.as_deref();
    let values = weights.map(|path| Values::of(path, &proof.model, &proof.job));
    let values = values.transpose()?;
    let estimate = |pace| {
        let (simulated, loaded) = simulate(proof, mode, pace, values.as_ref())?;
        anyhow::Ok((Figures::estimated(&simulated, overhead(proof)), loaded))
    };
    let (mut estimated, loaded) = estimate(Pace::InStep)?;
    weights.map_or(Ok(()), |path| are_loaded(proof, path, loaded.as_ref()))?;
    let batch = proof.job.batch as u64;
    let run = proof.train(batch, mode, false, None)?;
    let measured = match run.ending {
        // A driver that counts has seen the most, and needs no other run for it.
        Ending::Trained if proof.setup.counting.is_none() => {
            let sampled = proof.train(batch, Mode::DryRun, true, None)?;
            Figures::measured(&run, &sampled.marks)
        }
        _ => Figures::measured(&run, &[]),
    };
    // Which page a buffer finds free can depend on how far the device's thread is behind: one way
    // after the other, until what was measured is among what is possible.
    let mut paces = Pace::OTHERS.into_iter();
    while run.ending == Ending::Trained
        && !estimated.covers_reserved(&measured)
        && let Some(pace) = paces.next()
    {
        estimated.widen(&estimate(pace)?.0);
    }
    proof.progress.done();
    let error = Errors::of(&estimated, &measured);
    let agrees = run.ending == Ending::Trained
        && estimated.phases.len() == measured.phases.len()
        && error.within(tolerance);
    let report = VerifyReport {
        asked: proof.asked(Some(proof.job.batch)),
        device: run.device.report,
        mode,
        loaded_weights: loaded,
        ending: run.ending,
        estimated,
        measured,
        error,
        tolerance,
        agrees,
    };
    output::write(&report, &raw.output)?;
    if let Some(file) = &proof.record
        && report.ending == Ending::Trained
    {
        records::append(file, &Record::new(&report))?;
    }
    Ok(match (&report.ending, agrees) {
        (_, true) => FITS,
        (Ending::Killed(_) | Ending::Exited(_) | Ending::TimedOut(_), _) => UNKNOWN,
        _ => DOES_NOT_FIT,
    })
}

/// The estimate, made in the way in which the measurement is: a dry run launches nothing, so
/// that launches take no uniforms.
fn simulate(
    proof: &Proof,
    mode: Mode,
    pace: Pace,
    values: Option<&Values>,
) -> anyhow::Result<(Simulated, Option<Loaded>)> {
    let _dry_run = (mode == Mode::DryRun).then(DryRun::new);
    let card = CardSpec {
        pace,
        ..proof.card()
    };
    let Proof { model, job, .. } = proof;
    let loaded = Mutex::default();
    let simulated = estimator::simulate(card, job.precision.float_type(), |run| {
        let device = training_device(run.device(), job);
        let mut watched = Watched(run);
        let mut loading = Loading::new(values, &mut watched);
        let ended = model.train(job, &device, STEPS, &mut loading);
        *loaded.lock().expect("nothing panics while it is held") = loading.loaded;
        ended
    })
    .map_err(Trouble::from)?;
    let loaded = loaded
        .into_inner()
        .expect("nothing panics while it is held");
    match simulated.outcome() {
        Ok(()) => Ok((simulated, loaded)),
        Err(refused) => {
            let help = match refused.refusal {
                Refusal::TooLarge { largest } => format!(
                    "no buffer of this device is larger than {largest}, and a dry run would pass over it in silence: make --batch, --image or --seq smaller"
                ),
                Refusal::Full => {
                    "make --batch, --image or --seq smaller; with --dry-run it need not fit".into()
                }
            };
            Err(Trouble::new(format!(
                "{} cannot train this: {refused}",
                proof.opened.report.name
            ))
            .hint(help)
            .into())
        }
    }
}

/// Refuses weights of which nothing was put into the network.
fn are_loaded(proof: &Proof, path: &Path, loaded: Option<&Loaded>) -> Result<(), Trouble> {
    let name = proof.model.name();
    match loaded {
        None => Err(Trouble::new(format!(
            "--weights cannot be put into {name}: its training step has several networks"
        ))
        .hint("--weights is for a step that trains one network, such as that of resnet-50 or bert-base")),
        Some(loaded) if loaded.loaded.is_empty() => Err(Trouble::new(format!(
            "no tensor of {} belongs to {name}",
            path.display()
        ))
        .hint("tensors go by the names that transformers or burn gives to them; `fit-check estimate FOLDER` compares those of a folder with its config.json")),
        Some(_) => Ok(()),
    }
}

/// What a process costs on the device beside the pools, where that is known.
fn overhead(proof: &Proof) -> Option<estimator::Bytes> {
    let multiprocessors = proof.opened.description.multiprocessors?;
    Some(Overhead::of(multiprocessors).cautious_bytes)
}

/// A share, typed as percent.
pub(super) fn percent(text: &str) -> Result<f64, Trouble> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
        _ => Err(Trouble::new(format!("`{text}` is no value of --tolerance"))
            .hint("--tolerance is a number of percent from 0 on, such as 2")),
    }
}
