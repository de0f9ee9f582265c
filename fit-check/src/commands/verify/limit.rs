//! The largest batch within a budget: N must train, and N + 1 must fail.
//!
//! A first run of the same job measures what the process takes besides the pools, so that exactly the budget
//! is left to them. The memory of a software device is that of its process, and the system can limit it. On a
//! GPU another process holds the rest of the memory.

use estimator::{Bytes, DeviceSpec, FirstRejected, Proposer, StepRuns, TrainingJob, largest_batch};

use super::Verification;
use crate::cli;
use crate::exit_status::{DOES_NOT_FIT, FITS, UNKNOWN};
use crate::interrupt;
use crate::measure::{DeviceKind, Mark, Measurement, Mode, Outcome};
use crate::output;
use crate::records::{self, LargestBatchRecord};
use crate::report::{BatchRun, LimitReport};
use crate::step::measured_job;
use crate::user_error::UserError;

/// Runs the largest batch that fits `budget`, and the next.
pub(super) fn run(
    proof: &Verification,
    budget: Option<Bytes>,
    raw: &cli::Verify,
) -> anyhow::Result<u8> {
    let budget = budget.or(proof.device().available()).ok_or_else(|| {
        UserError::new("--max-batch needs --memory SIZE").hint(
            "the free memory of this device is unknown; --memory 8GB leaves so much to the job",
        )
    })?;
    let limiter = MemoryLimiter::of(proof, budget)?;
    // The device trains in this state of the tuner.
    let program = measured_job(&proof.model, &proof.job);
    let program = program.only(Some(proof.tuning)).without_first_runs();
    let card = left(proof, budget);
    proof.progress.at("simulating small batches");
    let proposer = Proposer::learn(&program, &card)?;
    proof.progress.at("searching for the largest batch");
    let found = largest_batch(&program, &proposer, &card)?;
    let Some(at_max) = &found.at_max else {
        return Err(not_one_fits(budget, &found.next).into());
    };
    let (largest, next, overhead) = limiter.both(proof, found.batch, found.next.batch, budget)?;
    if next.ending == Outcome::Trained {
        proof
            .progress
            .at("simulating the other runs that the step has to complete");
    }
    let next = next_run(&program, &card, &found.next, next)?;
    let largest = BatchRun {
        batch: found.batch,
        required_bytes: at_max.peak.required_bytes,
        fits: true,
        may_fit: true,
        tuner_requests: largest.tuner_requests(),
        ending: largest.ending,
    };
    let runs = [largest, next];
    proof.progress.done();
    interrupt::disarm();
    let kind = proof.opened.report.kind;
    let agrees = runs.iter().all(|run| run.agrees(kind));
    let unknown = runs.iter().any(|run| run.ending.is_cut_short());
    let report = LimitReport {
        asked: proof.asked(None),
        device: proof.opened.report.clone(),
        budget_bytes: budget,
        overhead_bytes: overhead,
        runs,
        agrees,
    };
    // The measurement took minutes: neither the record nor the answer is lost with the other.
    let recorded = match &proof.record {
        Some(file) if !unknown => records::append(file, &LargestBatchRecord::new(&report)),
        _ => Ok(()),
    };
    recorded.and(output::write(&report, &raw.output))?;
    Ok(match (agrees, unknown) {
        (true, _) => FITS,
        (false, true) => UNKNOWN,
        (false, false) => DOES_NOT_FIT,
    })
}

/// The first batch that does not fit, as it ended in `run`. If it trained, the simulated runs that it has to complete show
/// whether it can by chance: one of them refuses it, and another may not.
fn next_run(
    program: &TrainingJob,
    card: &DeviceSpec,
    next: &FirstRejected,
    run: Measurement,
) -> Result<BatchRun, estimator::Error> {
    let trained = run.ending == Outcome::Trained;
    let may_fit = trained && StepRuns::of(program, next.batch, card)?.may_complete(card)?;
    Ok(BatchRun {
        batch: next.batch,
        required_bytes: next.estimate.peak.required_bytes,
        fits: false,
        may_fit,
        tuner_requests: run.tuner_requests(),
        ending: run.ending,
    })
}

/// The error if not one sample fits `budget`; `next` is the first batch that does not.
fn not_one_fits(budget: Bytes, next: &FirstRejected) -> UserError {
    let needed = next.estimate.peak.required_bytes;
    UserError::new(format!("not one sample fits {budget}: {}", next.refused))
        .hint(format!("one sample needs {needed}"))
}

/// A card like the device, with only `budget` of its memory free.
fn left(proof: &Verification, budget: Bytes) -> DeviceSpec {
    proof.device().with_free(budget)
}

/// How a process is kept from taking more memory than it should.
enum MemoryLimiter {
    /// The system limits its host memory, which is the memory of a software device.
    Limit,
    /// Another process holds the rest of the device.
    Ballast,
    /// The card of the counting driver has no more free memory.
    Counting,
}

impl MemoryLimiter {
    /// The limiter that works for the device of `proof`.
    ///
    /// # Errors
    ///
    /// No limiter works, or less than `budget` of the device is free.
    fn of(proof: &Verification, budget: Bytes) -> Result<Self, UserError> {
        let device = &proof.opened.report;
        match proof.opened.free {
            _ if device.kind == DeviceKind::Software => Ok(Self::Limit),
            _ if device.kind == DeviceKind::Counting => Ok(Self::Counting),
            None => Err(UserError::new(format!(
                "the free memory of {} is unknown, so fit-check cannot leave exactly {budget} to the job",
                device.name
            ))
            .hint("NVIDIA's driver says it (libnvidia-ml.so.1); `fit-check max-batch` answers without a device")),
            Some(free) if free < budget => Err(UserError::new(format!(
                "{free} of {} are free, and {budget} are to be left to the job",
                device.name
            ))
            .hint(format!("--memory is less than {free}: what a process takes beside burn's pools comes on top"))),
            Some(_) => Ok(Self::Ballast),
        }
    }

    /// Trains the batches `largest` and `next` with `budget` for the pools. Also returns the memory that the
    /// process took besides the pools.
    fn both(
        &self,
        proof: &Verification,
        largest: u64,
        next: u64,
        budget: Bytes,
    ) -> anyhow::Result<(Measurement, Measurement, Bytes)> {
        if matches!(self, Self::Counting) {
            let train = |batch| proof.train(batch, Mode::Real, false, None);
            return Ok((train(largest)?, train(next)?, Bytes::ZERO));
        }
        let free = proof.train(largest, Mode::Real, false, None)?;
        let Some(beside) = self.overhead(&free) else {
            return Err(no_overhead(largest, &free.ending).into());
        };
        let first = self.train(proof, largest, beside + budget)?;
        // On a busy machine a run can take some 30 MB more than another. If this run needed less, the
        // difference would only add to the budget of the next.
        let overhead = self
            .overhead(&first)
            .map_or(beside, |seen| seen.min(beside));
        let second = self.train(proof, next, overhead + budget)?;
        Ok((first, second, overhead))
    }

    /// Trains `batch` in a process that can take at most `left`.
    fn train(&self, proof: &Verification, batch: u64, left: Bytes) -> anyhow::Result<Measurement> {
        let (limit, _held) = match self {
            Self::Limit => (Some(left), None),
            Self::Ballast => {
                let held = proof.setup.hold(left)?;
                (None, Some(held))
            }
            Self::Counting => (None, None),
        };
        proof.train(batch, Mode::Real, false, limit)
    }

    /// The most memory that the process took besides the pools; none if it did not train, or if nothing
    /// measures its memory.
    fn overhead(&self, run: &Measurement) -> Option<Bytes> {
        if run.ending != Outcome::Trained {
            return None;
        }
        let overhead = |mark: &Mark| match self {
            Self::Limit => mark.process,
            Self::Ballast | Self::Counting => mark.device,
        };
        let beside = |mark: &Mark| Some(overhead(mark)?.saturating_sub(mark.pools.reserved));
        run.marks.iter().filter_map(beside).max()
    }
}

/// The error if the run of batch `largest` without a limit, which `ending` describes, does not tell what the process
/// takes besides the pools.
fn no_overhead(largest: u64, ending: &Outcome) -> UserError {
    let (error, hint) = match ending {
        Outcome::Trained => (
            "trained, but the system does not report the memory of its process".to_string(),
            "`fit-check max-batch` answers without a device",
        ),
        Outcome::TimedOut(_) => (ending.to_string(), "--timeout SECONDS gives it longer"),
        Outcome::OutOfMemory(_) => (
            format!("{ending} before there was any limit"),
            "end the other programs that hold memory of the device, or make --memory smaller",
        ),
        _ => (
            format!("{ending} before there was any limit"),
            "`verify` with --batch N in place of --max-batch trains a smaller batch",
        ),
    };
    UserError::new(format!("batch {largest} {error}")).hint(hint)
}
