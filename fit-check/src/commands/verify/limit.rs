//! The largest batch within a budget: N must train, and N + 1 must fail.
//!
//! What a process takes beside the pools is measured first, on the same job, so that just the
//! budget is left to them. The memory of a software device is that of its process, and the system
//! can limit it; of a GPU another process holds all that is not to be left.

use estimator::{Bytes, CardSpec, largest_batch};

use super::super::{DOES_NOT_FIT, FITS, UNKNOWN};
use super::Proof;
use crate::cli;
use crate::measure::{self, Ending, Mark, Measurement, Mode};
use crate::output;
use crate::report::{BatchRun, LimitReport};
use crate::step::{AnyBatch, forecast};
use crate::trouble::Trouble;

/// Runs the largest batch that fits `budget`, and the next.
pub(super) fn run(proof: &Proof, budget: Bytes, raw: &cli::Verify) -> anyhow::Result<u8> {
    let means = Means::of(proof, budget)?;
    let program = AnyBatch::new(&proof.model, &proof.job);
    let forecast = forecast(&program, &proof.card().without_limit()).map_err(Trouble::from)?;
    let found =
        largest_batch(&program, forecast.as_ref(), &left(proof, budget)).map_err(Trouble::from)?;
    let Some(at_max) = &found.at_max else {
        return Err(Trouble::new(format!(
            "not one sample fits {budget}: {}",
            found.next.refused
        ))
        .hint(format!(
            "one sample needs {}",
            found.next.estimate.peak.required_bytes
        ))
        .into());
    };
    let free = proof.train(found.batch, Mode::Real, false, None)?;
    let Some(beside) = means.overhead(&free) else {
        anyhow::bail!(
            "batch {} {} before there was any limit",
            found.batch,
            free.ending
        );
    };
    let largest = means.train(proof, found.batch, beside + budget)?;
    // On a busy machine a run can take some 30 MB more than another; if this one did with less,
    // more would only be added to the budget of the next.
    let overhead = means
        .overhead(&largest)
        .map_or(beside, |seen| seen.min(beside));
    let next = means.train(proof, found.next.batch, overhead + budget)?;
    let runs = vec![
        BatchRun {
            batch: found.batch,
            required_bytes: at_max.peak.required_bytes,
            fits: true,
            ending: largest.ending,
        },
        BatchRun {
            batch: found.next.batch,
            required_bytes: found.next.estimate.peak.required_bytes,
            fits: false,
            ending: next.ending,
        },
    ];
    proof.progress.done();
    let agrees = runs.iter().all(BatchRun::agrees);
    let unknown = runs
        .iter()
        .any(|run| matches!(run.ending, Ending::TimedOut(_)));
    let report = LimitReport {
        asked: proof.asked(None),
        device: proof.opened.report.clone(),
        budget_bytes: budget,
        overhead_bytes: overhead,
        runs,
        agrees,
    };
    output::write(&report, &raw.output)?;
    Ok(match (agrees, unknown) {
        (true, _) => FITS,
        (false, true) => UNKNOWN,
        (false, false) => DOES_NOT_FIT,
    })
}

/// A card like the device of which only `budget` is left.
fn left(proof: &Proof, budget: Bytes) -> CardSpec {
    let card = proof.card();
    // What a runtime asks of its device is all of its memory, whoever holds it.
    let total = card.total.unwrap_or(budget).max(budget);
    card.with_memory(total, total.saturating_sub(budget))
}

/// How no more memory is left to a process than it is to have.
enum Means {
    /// The system limits what it takes of the host: that of a software device.
    Limit,
    /// Another process holds the rest of the device.
    Ballast,
}

impl Means {
    /// What the device of `proof` allows.
    ///
    /// # Errors
    ///
    /// Nothing, or less than `budget` of it is free.
    fn of(proof: &Proof, budget: Bytes) -> Result<Self, Trouble> {
        let device = &proof.opened.report;
        match proof.opened.free {
            _ if device.software => Ok(Self::Limit),
            None => Err(Trouble::new(format!(
                "nothing says how much memory of {} is free, so just {budget} cannot be left to a job",
                device.name
            ))
            .hint("NVIDIA's driver says it (libnvidia-ml.so.1); `fit-check max-batch` answers without a device")),
            Some(free) if free < budget => Err(Trouble::new(format!(
                "{free} of {} are free, and {budget} are to be left to the job",
                device.name
            ))
            .hint(format!("--memory is less than {free}: what a process takes beside burn's pools comes on top"))),
            Some(_) => Ok(Self::Ballast),
        }
    }

    /// Trains `batch` in a process to which no more than `left` is left.
    fn train(&self, proof: &Proof, batch: u64, left: Bytes) -> anyhow::Result<Measurement> {
        let (limit, _held) = match self {
            Self::Limit => (Some(left), None),
            Self::Ballast => {
                let held = measure::hold(proof.device, left, proof.patience)?;
                (None, Some(held))
            }
        };
        proof.train(batch, Mode::Real, false, limit)
    }

    /// The most that the process took beside the pools; none if it did not train, or nothing says
    /// what it took.
    fn overhead(&self, run: &Measurement) -> Option<Bytes> {
        if run.ending != Ending::Trained {
            return None;
        }
        let taken = |mark: &Mark| match self {
            Self::Limit => mark.process,
            Self::Ballast => mark.device,
        };
        let beside = |mark: &Mark| Some(taken(mark)?.saturating_sub(mark.pools.reserved));
        run.marks.iter().filter_map(beside).max()
    }
}
