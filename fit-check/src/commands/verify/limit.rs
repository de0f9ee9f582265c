//! The largest batch within a budget: N must train, and N + 1 must fail.
//!
//! The memory of a software device is that of its process, and the system can limit it. What
//! the process takes beside the pools is measured first, on the same job, so that just the
//! budget is left to them.

use estimator::{Bytes, largest_batch};

use super::super::{DOES_NOT_FIT, FITS, UNKNOWN};
use super::Proof;
use crate::cli;
use crate::measure::{Ending, Measurement, Mode};
use crate::output;
use crate::report::{BatchRun, LimitReport};
use crate::step::{AnyBatch, forecast};
use crate::trouble::Trouble;

/// Runs the largest batch that fits `budget`, and the next.
pub(super) fn run(proof: &Proof, budget: Bytes, raw: &cli::Verify) -> anyhow::Result<u8> {
    let device = &proof.opened.report;
    if !device.software {
        return Err(Trouble::new(format!(
            "--max-batch cannot limit the memory of {}",
            device.name
        ))
        .hint("so far only a software device can be limited; `fit-check max-batch` answers without a device")
        .into());
    }
    let program = AnyBatch::new(&proof.model, &proof.job);
    let forecast = forecast(&program, &proof.card()).map_err(Trouble::from)?;
    let card = proof.card().with_memory(budget, Bytes::ZERO);
    let found = largest_batch(&program, forecast.as_ref(), &card).map_err(Trouble::from)?;
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
    let Some(beside) = overhead(&free) else {
        anyhow::bail!(
            "batch {} {} before there was any limit",
            found.batch,
            free.ending
        );
    };
    let limited = |batch, overhead| proof.train(batch, Mode::Real, false, Some(overhead + budget));
    let largest = limited(found.batch, beside)?;
    // On a busy machine a run can take some 30 MB more than another; if this one did with less,
    // more would only be added to the budget of the next.
    let overhead = overhead(&largest).map_or(beside, |seen| seen.min(beside));
    let next = limited(found.next.batch, overhead)?;
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
        device: device.clone(),
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

/// The most that the process took of the host beside the pools; none if it did not train.
fn overhead(run: &Measurement) -> Option<Bytes> {
    if run.ending != Ending::Trained {
        return None;
    }
    let beside =
        |mark: &crate::measure::Mark| Some(mark.process?.saturating_sub(mark.pools.reserved));
    run.marks.iter().filter_map(beside).max()
}
