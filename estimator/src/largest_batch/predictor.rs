//! Predicts the calls and sizes of a step at any batch, on cards with the same kernels, from recordings.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};

use super::scaling::Scaling;
use super::search::{MAX_PROBES, gallop, stride, strided};
use crate::card::{DeviceSpec, QueueLag};
use crate::estimate::Analysis;
use crate::job::Program;
use crate::record::{Failure, Recording};
use crate::replay::replay;
use crate::{Bytes, OutOfMemory};

/// Predicts the calls and sizes of a step at any batch, on cards with the same kernels.
#[derive(Debug)]
pub(super) struct Predictor<'a, P> {
    program: &'a P,
    scaling: Arc<Scaling>,
    /// One of the cards, with unlimited memory.
    unlimited: DeviceSpec,
    /// The step with one sample, if it can run with that; recorded on first use.
    one: OnceLock<Option<Recording>>,
    /// A predictor of the step with a full queue; learned on first use.
    full_queue: OnceLock<Option<Box<Self>>>,
    /// What was replayed: for each card the batches, and the allocations that it refused.
    replayed: Mutex<Vec<(DeviceSpec, Refused)>>,
}

/// By batch: the allocation that a card refused of it, if any.
type Refused = HashMap<u64, Option<Failure>>;

/// The largest batch whose replayed calls fit on a card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prediction {
    /// Number of samples; 0 if not even one fits.
    pub batch: u64,
    /// The first batch that does not fit.
    pub next: u64,
}

impl<'a, P: Program> Predictor<'a, P> {
    /// A predictor of `program` on devices with the kernels of `unlimited`, which has unlimited memory;
    /// `scaling` is how the program grows.
    pub fn new(program: &'a P, scaling: Arc<Scaling>, unlimited: DeviceSpec) -> Self {
        Self {
            program,
            scaling,
            unlimited,
            one: OnceLock::new(),
            full_queue: OnceLock::new(),
            replayed: Mutex::default(),
        }
    }

    /// How the step grows with the batch.
    pub fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// Predicts the largest batch that the program accepts and that completes on a card like `spec`, whose
    /// memory must be limited, and the next batch. The predictor replays the recorded calls on such a card.
    /// The prediction is right if a step with that many samples makes these calls; see [`Scaling::matches`].
    ///
    /// The search takes fewer replays with the [share](Scaling::share) of another card.
    pub fn predicted(&self, spec: &DeviceSpec, share: Option<f64>) -> Prediction {
        let accepts = |batch| self.program.accepts(batch);
        let bound = self.scaling.bound(spec);
        let (start, reach) = match share {
            Some(share) => ((bound as f64 * share).round() as u64, 1),
            None => (bound - bound / 32, bound / 32),
        };
        let fits = |batch| self.refusal(batch, spec).is_none();
        let above = bound + 1;
        let near = |start, reach| self.near(start, reach, above, fits);
        let larger = |than| {
            let mut candidates = strided(than + 1, above, MAX_PROBES);
            candidates.find(|batch| accepts(*batch) && fits(*batch))
        };
        // Search from above: a card refuses a batch that is too large early, so that replay costs less.
        let (mut batch, mut next) = match larger(start) {
            Some(larger) => near(larger, stride(start + 1, above, MAX_PROBES)),
            None => near(start, reach.max(1)),
        };
        // A batch larger than `next` may fit again: with another batch the pools have pages of another size.
        while let Some(larger) = larger(next) {
            (batch, next) = near(larger, 1);
        }
        Prediction { batch, next }
    }

    /// A batch that completes on a card like `spec` while the next does not, by replays: mostly what
    /// [`predicted`](Self::predicted) returns, which also looks whether a larger batch completes.
    pub(super) fn guess(&self, spec: &DeviceSpec) -> u64 {
        let bound = self.scaling.bound(spec);
        let fits = |batch| self.refusal(batch, spec).is_none();
        let reach = (bound / 32).max(1);
        self.near(bound - bound / 32, reach, bound + 1, fits).0
    }

    /// A batch that `fits` while the next does not, searched from `start` outwards, first by `reach`, below `above`.
    fn near(&self, start: u64, reach: u64, above: u64, fits: impl Fn(u64) -> bool) -> (u64, u64) {
        let accepts = |batch| self.program.accepts(batch);
        let fits = |batch| Ok::<_, Infallible>(fits(batch));
        let Ok(found) = gallop(start, reach, above, accepts, fits);
        found
    }

    /// Whether the predictor has a recording for `batch`: as many samples as were recorded or more, or a
    /// single one, for which this runs the step once.
    pub fn knows(&self, batch: u64) -> bool {
        batch >= self.scaling.recorded() || batch == 1 && self.one().is_some()
    }

    /// A predictor of the step with a full queue ([`QueueLag::Full`]); `None` if the calls then change with the
    /// batch.
    pub(super) fn with_full_queue(&self) -> Option<&Self> {
        let unlimited = self.unlimited.clone().with_queue_lag(QueueLag::Full);
        let learn = || {
            let scaling = self.scaling.learn_on(self.program, &unlimited).ok()??;
            let predictor = Self::new(self.program, scaling.into(), unlimited.clone());
            Some(Box::new(predictor))
        };
        self.full_queue.get_or_init(learn).as_deref()
    }

    /// Whether the predictor says that a batch that fits on a device like `spec` also fits there with a full
    /// queue ([`QueueLag::Full`]); false if it does not know.
    pub fn fits_full_queue(&self, batch: u64, spec: &DeviceSpec) -> bool {
        let known = || {
            let full_queue = self.with_full_queue()?;
            let recorded = batch >= full_queue.scaling.recorded();
            Some(recorded && full_queue.refusal(batch, spec).is_none())
        };
        batch == 0 || known().unwrap_or(false)
    }

    /// The allocation that a card like `spec` refuses of the first batch that does not fit by `predicted`.
    pub fn refused(&self, predicted: &Prediction, spec: &DeviceSpec) -> Option<OutOfMemory> {
        let failure = self.refusal(predicted.next, spec)?;
        let recording = self.until(predicted.next, failure);
        let lag = spec.simulation.queue_lag;
        Some(Analysis::of(&recording).out_of_memory(&recording, &failure, lag))
    }

    /// The allocation that a card like `spec` refuses if the step with `batch` samples is replayed there.
    fn refusal(&self, batch: u64, spec: &DeviceSpec) -> Option<Failure> {
        let replayed = || self.replayed.lock().expect("no replay panics");
        let of_card = |(card, _): &(DeviceSpec, Refused)| card == spec;
        let card = {
            let mut replayed = replayed();
            let known = replayed.iter().position(of_card);
            known.unwrap_or_else(|| {
                replayed.push((spec.clone(), Refused::new()));
                replayed.len() - 1
            })
        };
        if let Some(known) = replayed()[card].1.get(&batch) {
            return *known;
        }
        let (recording, sizes) = self.step(batch);
        let outcome = replay(spec, recording, |buffer| sizes[buffer.0 as usize]);
        replayed()[card].1.insert(batch, outcome.failure);
        outcome.failure
    }

    /// The recording of a step with `batch` samples, up to the end of the phase of `failure`.
    fn until(&self, batch: u64, failure: Failure) -> Recording {
        let (recording, sizes) = self.step(batch);
        let mut recording = recording.clone();
        for (buffer, bytes) in recording.buffers.iter_mut().zip(sizes) {
            buffer.bytes = bytes;
        }
        recording.failure = Some(failure);
        recording.cut_at_failure();
        recording
    }

    /// The calls of the step with `batch` samples, and the size of each buffer, by
    /// [`BufferId`](crate::record::BufferId).
    fn step(&self, batch: u64) -> (&Recording, Vec<Bytes>) {
        let one = (batch == 1).then(|| self.one()).flatten();
        match one {
            Some(one) => (one, one.buffers.iter().map(|buffer| buffer.bytes).collect()),
            None => self.scaling.step(batch),
        }
    }

    /// The recording of the step with one sample. Recordings of more samples do not predict it, since with
    /// one sample a step may leave out buffers that grow with the batch.
    fn one(&self) -> Option<&Recording> {
        let run = || {
            let runs = self.program.accepts(1);
            let run = runs.then(|| self.program.simulate(1, self.unlimited.clone()));
            Some(run?.ok()?.recording)
        };
        self.one.get_or_init(run).as_ref()
    }
}
