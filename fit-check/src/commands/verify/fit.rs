//! One batch: the estimate beside the measurement.

use cubecl_server::dry_run::DryRun;
use estimator::{
    Bytes, DeviceSpec, OutOfMemory, Overhead, Program, RunKind, Simulated, TrainingJob, Tuning,
};
use recording::Refusal;

use super::Verification;
use crate::cli;
use crate::comparison::{Errors, Figures};
use crate::exit_status::{DOES_NOT_FIT, FITS, UNKNOWN};
use crate::interrupt;
use crate::measure::{DeviceKind, Mark, Measurement, Mode, Outcome};
use crate::output;
use crate::records::{self, Record};
use crate::report::VerifyReport;
use crate::step::measured_job;
use crate::user_error::UserError;

/// Runs the job of `proof` on its device and on a simulated card like it.
pub(super) fn run(proof: &Verification, tolerance: f64, raw: &cli::Verify) -> anyhow::Result<u8> {
    let mode = match raw.dry_run {
        true => Mode::DryRun,
        false => Mode::Real,
    };
    let program = measured_job(&proof.model, &proof.job);
    let simulate = |device| simulate(proof, &program, mode, device);
    proof.progress.at(SIMULATING);
    let usual = simulate(proof.device())?;
    if let Err(refused) = usual.outcome() {
        return Err(cannot_train(proof, &refused).into());
    }
    let mut nearest = (Figures::estimated(&usual, overhead(proof)), None);
    let (run, measured) = measure(proof, mode)?;
    let trained = run.ending == Outcome::Trained;
    if trained && nearest.0.distance(&measured) > Bytes::ZERO {
        proof.progress.at(SIMULATING_OTHERS);
        nearest = nearest_run(proof, nearest, &measured, simulate);
    }
    let (estimated, other_run) = nearest;
    proof.progress.done();
    interrupt::disarm();
    let error = (!measured.phases.is_empty()).then(|| Errors::of(&estimated, &measured));
    let agrees = trained
        && estimated.phases.len() == measured.phases.len()
        && error.is_some_and(|error| error.within(tolerance));
    let report = VerifyReport {
        asked: proof.asked(Some(proof.job.batch)),
        tuner_requests: run.tuner_requests(),
        device: run.device.report,
        mode,
        ending: run.ending,
        estimated,
        other_run,
        measured,
        error,
        tolerance,
        agrees,
    };
    // The measurement took minutes: neither the record nor the answer is lost with the other.
    let recorded = match &proof.record {
        Some(file) if report.ending == Outcome::Trained => {
            records::append(file, &Record::new(&report))
        }
        _ => Ok(()),
    };
    recorded.and(output::write(&report, &raw.output))?;
    Ok(match (&report.ending, agrees) {
        (_, true) => FITS,
        (Outcome::Killed(_) | Outcome::Exited(_), _) => UNKNOWN,
        (ending, _) if ending.is_cut_short() => UNKNOWN,
        _ => DOES_NOT_FIT,
    })
}

/// The progress while the step is simulated.
const SIMULATING: &str = "simulating the step";

/// The progress while the step is simulated again, because the measurement is not as estimated.
const SIMULATING_OTHERS: &str = "simulating the other runs that the step has to complete";

/// The note if the sampled run fails.
const NOT_SAMPLED: &str =
    "the most in use within a phase is not in this answer, since the second run failed";

/// How the step of `proof` ran on its device, and the figures there.
fn measure(proof: &Verification, mode: Mode) -> anyhow::Result<(Measurement, Figures)> {
    let run = proof.train(proof.job.batch as u64, mode, false, None)?;
    let sampled = match run.ending {
        Outcome::Trained if needs_sampling(proof) => sampled_marks(proof),
        _ => Vec::new(),
    };
    let figures = Figures::measured(&run, &sampled);
    Ok((run, figures))
}

/// The marks of a second run, whose pools are sampled; none if it fails: the measurement is there without it.
fn sampled_marks(proof: &Verification) -> Vec<Mark> {
    match proof.train(proof.job.batch as u64, Mode::DryRun, true, None) {
        Ok(sampled) => sampled.marks,
        Err(error) => {
            let note = format!("note: {NOT_SAMPLED}: {error:#}");
            proof.progress.note(&note);
            Vec::new()
        }
    }
}

/// The run of the step that is nearest to `measured`, and which it is: `usual`, or another that the step has to complete to fit.
fn nearest_run(
    proof: &Verification,
    usual: (Figures, Option<String>),
    measured: &Figures,
    simulate: impl Fn(DeviceSpec) -> Result<Simulated, estimator::Error>,
) -> (Figures, Option<String>) {
    let mut nearest = usual;
    let mut distance = nearest.0.distance(measured);
    for device in RunKind::others(&proof.device()) {
        // A run that fails, or that the device refuses, is not the one that was measured.
        let run = simulate(device).ok().filter(|run| run.outcome().is_ok());
        let Some(run) = run else { continue };
        let figures = Figures::estimated(&run, overhead(proof));
        let closer = figures.distance(measured);
        if closer < distance {
            let kind = RunKind {
                tuning: Tuning::Warm,
                ..RunKind::on(&run.spec)
            };
            nearest = (figures, Some(kind.to_string().trim_start().to_string()));
            distance = closer;
        }
        if distance == Bytes::ZERO {
            break;
        }
    }
    nearest
}

/// Whether a second process samples the most in use within each phase, in a dry run. The counting driver records what
/// it needs to. On a GPU burn's tuner launches its candidates even in a dry run (`RealRun` in `tune_benchmark.rs` of
/// cubecl-runtime 0.11.3), so that a second process would take as long as the first on a card that may be rented.
fn needs_sampling(proof: &Verification) -> bool {
    let tunes_on_a_gpu = cfg!(feature = "autotune") && proof.opened.report.kind == DeviceKind::Gpu;
    proof.setup.counting.is_none() && !tunes_on_a_gpu
}

/// The estimate for the mode of the measurement: a dry run launches nothing, so launches take no uniforms.
fn simulate(
    proof: &Verification,
    program: &TrainingJob,
    mode: Mode,
    device: DeviceSpec,
) -> Result<Simulated, estimator::Error> {
    let _dry_run = (mode == Mode::DryRun).then(DryRun::new);
    program.simulate(proof.job.batch as u64, device)
}

/// The error if the device of `proof` refuses an allocation of the step.
fn cannot_train(proof: &Verification, refused: &OutOfMemory) -> UserError {
    let help = match refused.refusal {
        Refusal::TooLarge { largest } => format!(
            "no buffer of this device is larger than {largest}, and a dry run would pass over it in silence: make --batch, --image or --seq smaller"
        ),
        Refusal::Full => {
            "make --batch, --image or --seq smaller; with --dry-run it need not fit".into()
        }
    };
    let device = &proof.opened.report.name;
    UserError::new(format!("{device} cannot train this: {refused}")).hint(help)
}

/// The memory that a process takes on the device besides the pools, if known.
fn overhead(proof: &Verification) -> Option<Bytes> {
    let multiprocessors = proof.opened.description.multiprocessors?;
    Some(Overhead::of(multiprocessors).cautious_bytes)
}

/// A fraction, typed as percent.
pub(super) fn percent(text: &str) -> Result<f64, UserError> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
        _ => Err(UserError::invalid_value("--tolerance", text)
            .hint("--tolerance is a number of percent from 0 on, such as 2")),
    }
}
