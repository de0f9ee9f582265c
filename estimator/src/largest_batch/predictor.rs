//! Predicts the calls and sizes of a step at any batch, on cards with the same kernels, from recordings.

use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};

use recording::{BufferId, Bytes, Failure, QueueLag, Recording};

use super::gallop::gallop;
use super::scaling::Scaling;
use crate::OutOfMemory;
use crate::card::DeviceSpec;
use crate::job::Program;
use crate::parallel::{parallel_find_map, parallel_map};
use crate::queue_lag::{Lagged, out_of_memory, resized};
use crate::replay::{record_replay, replay, replay_growing};
use crate::run_kind::RunKind;

/// Predicts the calls and sizes of a step at any batch, on cards with the same kernels.
#[derive(Debug)]
pub(super) struct Predictor<'a, P> {
    program: &'a P,
    scaling: Arc<Scaling>,
    /// One of the cards, with unlimited memory.
    unlimited: DeviceSpec,
    /// The step with one sample, if it can run with that; recorded on first use.
    one: OnceLock<Option<Recording>>,
    /// The calls of `scaling`, and of the step with one sample, with queue lag.
    lagged: [Lagged; 2],
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
            lagged: Default::default(),
            replayed: Mutex::default(),
        }
    }

    /// How the step grows with the batch.
    pub fn scaling(&self) -> &Arc<Scaling> {
        &self.scaling
    }

    /// Predicts the largest batch that the program accepts and that completes on a card like `spec`, whose memory must
    /// be limited, with the queue lag that needs more memory there (none, or a full queue), and the next batch. The
    /// predictor replays the recorded calls on such a card. The prediction is right if a step with that many samples makes
    /// these calls; see [`Scaling::matches`]. It depends on nothing that was asked of other cards.
    pub fn predicted(&self, spec: &DeviceSpec) -> Prediction {
        let bound = self.scaling.bound(spec);
        let (start, lag) = self.start(bound, spec);
        let lagged = spec.clone().with_queue_lag(lag);
        let fits = |batch| self.refusal(batch, &lagged).is_none();
        let (batch, next) = self.near(start, bound + 1, fits);
        // Where the search ends at `bound`, the program need not accept that many samples.
        let accepted = (next..=2 * next).find(|batch| self.program.accepts(*batch));
        Prediction {
            batch,
            next: accepted.unwrap_or(next),
        }
    }

    /// `prediction` if its batch fits on a card like `spec` without queue lag and with each of [`QueueLag::REQUIRED`];
    /// else smaller batches of which that is true.
    pub fn with_each_lag(&self, prediction: Prediction, spec: &DeviceSpec) -> Prediction {
        // With the lag that one batch does not fit with, others hardly fit either.
        let latest = Cell::new(QueueLag::None);
        let fits = |batch| {
            let refused = self.first_refusal(batch, spec, latest.get());
            latest.set(refused.map_or(latest.get(), |(_, lag)| lag));
            refused.is_none()
        };
        if prediction.batch == 0 || fits(prediction.batch) {
            return prediction;
        }
        let (batch, next) = self.near(prediction.batch, prediction.next, fits);
        Prediction { batch, next }
    }

    /// Where to begin the search for the largest batch on a card like `spec`, where the buffers of no more than
    /// `bound` samples have room, and the queue lag with which that many need more memory. That memory is taken to grow
    /// with the batch.
    fn start(&self, bound: u64, spec: &DeviceSpec) -> (u64, QueueLag) {
        let Some(available) = spec.available().filter(|_| bound > 0) else {
            return (bound, QueueLag::None);
        };
        let needed = parallel_map([QueueLag::None, QueueLag::Full], |lag| {
            let (recording, sizes) = self.step(bound, lag);
            let bytes = |buffer: BufferId| sizes[buffer.0 as usize];
            (replay_growing(spec, recording, bytes, available), lag)
        });
        let (none, full) = (needed[0], needed[1]);
        let (needed, lag) = if full.0 > none.0 { full } else { none };
        let fixed = self.scaling.peak(0);
        let [available, needed] = [available, needed].map(|bytes| bytes.0.saturating_sub(fixed));
        let start = u128::from(bound) * u128::from(available) / u128::from(needed.max(1));
        ((start as u64).min(bound), lag)
    }

    /// A batch that `fits` while the next does not, searched from `start` outwards, below `above`.
    fn near(&self, start: u64, above: u64, fits: impl Fn(u64) -> bool) -> (u64, u64) {
        let accepts = |batch| self.program.accepts(batch);
        let tried = |batch| Ok::<_, Infallible>(fits(batch).into());
        let Ok(found) = gallop(start, above, accepts, tried);
        found
    }

    /// Whether the predictor has a recording for `batch`: as many samples as were recorded or more, or a
    /// single one, for which this runs the step once.
    pub fn knows(&self, batch: u64) -> bool {
        batch >= self.scaling.recorded() || batch == 1 && self.one().is_some()
    }

    /// The allocation that a card like `spec` refuses of the step with `batch` samples.
    pub fn refused(&self, batch: u64, spec: &DeviceSpec) -> Option<OutOfMemory> {
        let (failure, lag) = self.first_refusal(batch, spec, QueueLag::None)?;
        let (recording, sizes) = self.step(batch, lag);
        let device = spec.clone().with_queue_lag(lag);
        let (recording, _) = record_replay(&device, &resized(recording, sizes));
        Some(out_of_memory(recording, failure, RunKind::on(&device)))
    }

    /// The allocation that a card like `spec` refuses of the step with `batch` samples with the queue lag `first`, or
    /// else without one or with one of [`QueueLag::REQUIRED`], and with which lag.
    fn first_refusal(
        &self,
        batch: u64,
        spec: &DeviceSpec,
        first: QueueLag,
    ) -> Option<(Failure, QueueLag)> {
        let refusal = |lag| {
            let refused = self.refusal(batch, &spec.clone().with_queue_lag(lag));
            Some((refused?, lag))
        };
        let required = QueueLag::REQUIRED.iter().copied();
        let others = [QueueLag::None].into_iter().chain(required);
        let others = others.filter(|lag| *lag != first);
        refusal(first).or_else(|| parallel_find_map(others, refusal))
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
        let (recording, sizes) = self.step(batch, spec.simulation.queue_lag);
        let outcome = replay(spec, recording, |buffer| sizes[buffer.0 as usize]);
        replayed()[card].1.insert(batch, outcome.failure);
        outcome.failure
    }

    /// The calls of the step with `batch` samples and `queue_lag`, and the size of each buffer, by
    /// [`BufferId`](recording::BufferId).
    pub fn step(&self, batch: u64, queue_lag: QueueLag) -> (&Recording, Vec<Bytes>) {
        let one = (batch == 1).then(|| self.one()).flatten();
        let [of_scaling, of_one] = &self.lagged;
        match one {
            Some(one) => {
                let sizes = one.buffers.iter().map(|buffer| buffer.bytes).collect();
                (of_one.of(one, queue_lag), sizes)
            }
            None => {
                let (recording, sizes) = self.scaling.step(batch);
                (of_scaling.of(recording, queue_lag), sizes)
            }
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
