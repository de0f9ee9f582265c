//! The state that a card and its server share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::Bytes;
use crate::device_spec::DeviceSpec;
use crate::recorder::Recorder;
use crate::storage::MemoryBudget;
use crate::tuning::{Choice, Trial};

/// The state that a card and its server share.
#[derive(Debug)]
pub struct CardState {
    /// The card, its runtime and the options of its simulation.
    pub spec: DeviceSpec,
    /// The card's memory budget.
    pub budget: Arc<MemoryBudget>,
    /// The index of the card's runtime name: see [`runtime_names`](crate::runtime_names).
    pub(crate) name: usize,
    /// Whether the program runs only so that burn's tuner learns. The card then has room for everything, and the
    /// recording says nothing about memory.
    pub(crate) only_tunes: bool,
    recorder: Mutex<Recorder>,
    pub(crate) tuned: AtomicBool,
    windows: AtomicUsize,
    /// The bytes of the largest buffer that burn's tuner requested to try a kernel.
    largest_trial: AtomicU64,
    /// Whether the next synchronization is the end of a phase.
    phase_ends: AtomicBool,
    /// Trials that the tuner has not decided about yet, those of outer windows first.
    trials: Mutex<Vec<Trial>>,
    choices: Mutex<Vec<Choice>>,
    /// The state that replaces this one at the card's next flush.
    pub(crate) next: OnceLock<Arc<CardState>>,
}

impl CardState {
    /// The state of a new card like `spec`.
    pub fn new(spec: DeviceSpec) -> Arc<Self> {
        Self::named(spec, 0, false)
    }

    /// The state of a card like `spec` with the runtime name at index `name`. burn's tuner remembers its
    /// results by that name. `only_tunes` says whether the program runs only so that the tuner learns: the card then
    /// has room for everything, and no pools.
    pub fn named(spec: DeviceSpec, name: usize, only_tunes: bool) -> Arc<Self> {
        let capacity = spec.available().map(|bytes| bytes.0);
        let budget = MemoryBudget::refusing(capacity, spec.simulation.refusals);
        Arc::new(Self {
            spec,
            budget,
            name,
            only_tunes,
            recorder: Mutex::default(),
            tuned: AtomicBool::new(false),
            windows: AtomicUsize::new(0),
            largest_trial: AtomicU64::new(0),
            phase_ends: AtomicBool::new(false),
            trials: Mutex::default(),
            choices: Mutex::default(),
            next: OnceLock::new(),
        })
    }

    /// Whether burn's tuner has timed anything on the card.
    pub fn tuned(&self) -> bool {
        self.tuned.load(Ordering::Relaxed)
    }

    /// The largest buffer that burn's tuner requested to try a kernel.
    pub fn largest_trial(&self) -> Bytes {
        Bytes(self.largest_trial.load(Ordering::Relaxed))
    }

    /// burn's tuner requests a buffer of `size` bytes to try a kernel.
    pub(crate) fn tries(&self, size: u64) {
        self.largest_trial.fetch_max(size, Ordering::Relaxed);
    }

    /// Sets the number of windows that the profiler has open.
    pub(crate) fn set_open_windows(&self, windows: usize) {
        self.windows.store(windows, Ordering::Relaxed);
    }

    /// The program ends a phase: it synchronizes the device next, outside burn's tuner.
    pub fn end_phase(&self) {
        self.phase_ends.store(true, Ordering::Relaxed);
    }

    /// Whether a phase ends here. It is over then.
    pub(crate) fn phase_ends(&self) -> bool {
        self.phase_ends.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn tried(&self, trial: Trial) {
        locked(&self.trials).push(trial);
    }

    /// Records a decision of the tuner; `choice` reads it from the trials since the last decision.
    pub(crate) fn decided(&self, choice: impl FnOnce(&[Trial]) -> Option<Choice>) {
        let within = self.windows.load(Ordering::Relaxed);
        let mut trials = locked(&self.trials);
        trials.retain(|trial| trial.within <= within);
        let own = trials.partition_point(|trial| trial.within < within);
        // A decision that the tuner needs to time a candidate of another operation only matters to that
        // candidate.
        if within == 0 {
            locked(&self.choices).extend(choice(&trials[own..]));
        }
        trials.truncate(own);
    }

    /// The tuner's decisions so far.
    pub fn choices(&self) -> Vec<Choice> {
        locked(&self.choices).clone()
    }

    /// Makes `next` the card's state from its next flush on.
    pub fn becomes(&self, next: Arc<CardState>) {
        // A state has one successor: the next restart replaces the successor.
        let _ = self.next.set(next);
    }

    /// The recorder, to read from or to add to.
    pub fn recorder(&self) -> MutexGuard<'_, Recorder> {
        locked(&self.recorder)
    }
}

/// Locks `mutex`, even after a panic elsewhere: a panic leaves no event half written.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
