//! The search for the largest batch that fits on one device.

use recording::{BufferId, Refusal};

use super::gallop::{MAX_BATCH, Tried, gallop};
use super::{LargestFit, Proposer, Remembering};
use crate::card::DeviceSpec;
use crate::job::Program;
use crate::replay::replay_growing;
use crate::required::most_needed;
use crate::run_kind::Required;
use crate::simulated::Simulated;
use crate::{Error, OutOfMemory};

/// What replays tell of the runs with tuned kernels of some number of samples: whether the device refuses an allocation; `None`
/// where it takes a run.
pub(super) type Replayed<'a> = dyn Fn(u64) -> Option<Option<OutOfMemory>> + 'a;

/// The search for the largest batch that fits on one device.
pub(super) struct Search<'a, 'p, P> {
    program: &'a Remembering<'p, P>,
    proposer: &'a Proposer<'p, P>,
    device: &'a DeviceSpec,
    replayed: Option<&'a Replayed<'a>>,
}

/// A run of the step that was tried, and the allocation that the device refused.
type Attempt = (Option<Simulated>, Option<OutOfMemory>);

impl<'a, 'p, P: Program> Search<'a, 'p, P> {
    /// The search for the largest batch of `program` on a device like `device`; `proposer` knows that program.
    pub fn new(
        program: &'a Remembering<'p, P>,
        proposer: &'a Proposer<'p, P>,
        device: &'a DeviceSpec,
    ) -> Self {
        Self {
            program,
            proposer,
            device,
            replayed: None,
        }
    }

    /// The same search, in which the step is not run where `replayed` tells what such a run does.
    pub fn with_replays(self, replayed: &'a Replayed<'a>) -> Self {
        Self {
            replayed: Some(replayed),
            ..self
        }
    }

    /// Searches from where the proposer proposes. That place depends on the device alone, with replays and without, so that a
    /// table and a search for one card have the same answer where batches fit without order.
    ///
    /// # Errors
    ///
    /// The step itself failed, or every batch fits ([`Error::NoLimit`]).
    pub fn find(&self) -> Result<LargestFit, Error> {
        let tuned = Required::Tuned.on(self.device);
        let guess = self.proposer.guess(&tuned);
        let proposed = match self.replayed.and_then(|replayed| replayed(guess)) {
            Some(_) => guess,
            None => self.proposer.proposed(self.program, guess, &tuned)?,
        };
        // Where it does not fit, replays find a smaller one sooner than runs.
        let is_refused = || {
            let attempt = Error::if_kernels(self.attempt(Required::Tuned, proposed))?;
            Ok::<_, Error>(attempt.is_some_and(|(_, refused)| refused.is_some()))
        };
        self.find_near(match self.program.accepts(proposed) && is_refused()? {
            true => self.proposer.with_each_lag(proposed, &tuned),
            false => proposed,
        })
    }

    /// Searches from `proposed` outwards.
    ///
    /// # Errors
    ///
    /// As for [`find`](Self::find).
    pub fn find_near(&self, proposed: u64) -> Result<LargestFit, Error> {
        let mut order = Required::runs(self.program.only()).to_vec();
        let mut largest = Vec::new();
        let mut refused = None;
        let tried = |batch: u64| {
            let mut runs = Vec::new();
            for place in 0..order.len() {
                let required = order[place];
                let (run, refusal) = match self.attempt(required, batch) {
                    Err(error @ Error::NoKernel(_)) => {
                        if !matches!(refused, Some(Err(_))) {
                            self.runs_at_all()?;
                        }
                        refused = Some(Err(error));
                        return Ok(Tried::TooLarge(1));
                    }
                    attempt => attempt?,
                };
                if let Some(refusal) = refusal {
                    let excess = self.excess(run.as_ref(), &refusal, batch);
                    refused = Some(Ok(refusal));
                    // In the run in which one batch does not fit, others hardly fit either.
                    order[..=place].rotate_right(1);
                    return Ok(Tried::TooLarge(excess));
                }
                runs.extend(run.map(|run| (required, run)));
            }
            largest = runs;
            Ok::<_, Error>(Tried::Fits)
        };
        // The proposal is often the answer, so the search begins there and goes outwards.
        let accepts = |batch| self.program.accepts(batch);
        let (most, least) = gallop(proposed, MAX_BATCH, accepts, tried)?;
        largest.sort_by_key(|(required, _)| *required);
        Ok(LargestFit {
            batch: most,
            runs: largest,
            next: least,
            refused: refused.unwrap_or(Err(Error::NoLimit { batch: most }))?,
        })
    }

    /// Runs the step with `batch` samples on the device.
    fn attempt(&self, required: Required, batch: u64) -> Result<Attempt, Error> {
        let replayed = self.replayed.filter(|_| required == Required::Tuned);
        if let Some(refused) = replayed.and_then(|replayed| replayed(batch)) {
            return Ok((None, refused));
        }
        let device = required.on(self.device);
        let attempt = self.program.attempt(batch, &device, required.lags());
        let attempt = required.if_it_tells(attempt)?;
        Ok(attempt.map_or((None, None), |(run, refused)| (Some(run), refused)))
    }

    /// By about how many samples `batch` is too large, of which the device `refused` an allocation in `run`.
    fn excess(&self, run: Option<&Simulated>, refused: &OutOfMemory, batch: u64) -> u64 {
        if let Refusal::TooLarge { largest } = refused.refusal {
            // Of so many samples the buffer is small enough, if it grows in proportion.
            let enough = u128::from(batch) * u128::from(largest.0) / u128::from(refused.bytes.0);
            return batch.saturating_sub(enough as u64).max(1);
        }
        let Some((run, available)) = run.zip(self.device.available()) else {
            return 1;
        };
        if run.recording.failure.is_none() {
            return 1;
        }
        let recording = run.whole_recording();
        let bytes = |buffer: BufferId| recording.buffer(buffer).bytes;
        let unlimited = run.spec.without_limit();
        let needed = replay_growing(&unlimited, recording, bytes, available);
        let sample = match self.proposer.predictor() {
            Some(predictor) => predictor.scaling().sample(batch),
            None => most_needed(recording).0 / batch.max(1),
        };
        needed.0.saturating_sub(available.0).div_ceil(sample.max(1))
    }

    /// Shows that burn has a kernel for each call of the step with the fewest samples on such a device.
    fn runs_at_all(&self) -> Result<(), Error> {
        let fewest = (1..MAX_BATCH).find(|batch| self.program.accepts(*batch));
        if let Some(fewest) = fewest {
            let tuned = Required::Tuned.on(self.device);
            self.program.sketch(fewest, tuned.without_limit())?;
        }
        Ok(())
    }
}
