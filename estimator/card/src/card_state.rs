//! The state that a card and its server share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use recording::Bytes;

use crate::device_spec::DeviceSpec;
use crate::recorder::Recorder;
use crate::storage::MemoryBudget;
use crate::trial_sizes::TrialSizes;
use crate::tuning::{Choice, Trial, TunerCalls};

/// The state that a card and its server share.
#[derive(Debug)]
pub struct CardState {
    /// The card, its runtime and the options of its simulation.
    pub spec: DeviceSpec,
    /// The card's memory budget.
    pub budget: Arc<MemoryBudget>,
    /// The index of the card's runtime name: see [`runtime_names`](crate::runtime_names).
    pub(crate) name: usize,
    pub(crate) tuner_calls: TunerCalls,
    recorder: Mutex<Recorder>,
    pub(crate) tuned: AtomicBool,
    windows: AtomicUsize,
    trial_sizes: Mutex<TrialSizes>,
    /// Whether the next synchronization is the end of a phase.
    phase_ends: AtomicBool,
    /// Trials that the tuner has not decided about yet, those of outer windows first.
    trials: Mutex<Vec<Trial>>,
    choices: Mutex<Vec<Choice>>,
    /// The operations for which the tuner is choosing a kernel, the outermost first.
    requests: Mutex<Vec<String>>,
    /// Whether the log did not tell for some operation that the tuner had chosen.
    lost_requests: AtomicBool,
    /// Whether burn searched for what it can fuse.
    searched: AtomicBool,
    /// The state that replaces this one at the card's next flush.
    pub(crate) next: OnceLock<Arc<CardState>>,
}

impl CardState {
    /// The state of a new card like `spec`.
    pub fn new(spec: DeviceSpec) -> Arc<Self> {
        Self::named(spec, 0, TunerCalls::OnCard)
    }

    /// The state of a card like `spec` with the runtime name at index `name`. burn's tuner remembers its
    /// results by that name.
    pub fn named(spec: DeviceSpec, name: usize, tuner_calls: TunerCalls) -> Arc<Self> {
        let capacity = spec.available().map(|bytes| bytes.0);
        let budget = MemoryBudget::refusing(capacity, spec.simulation.refusals);
        Arc::new(Self {
            spec,
            budget,
            name,
            tuner_calls,
            recorder: Mutex::default(),
            tuned: AtomicBool::new(false),
            windows: AtomicUsize::new(0),
            trial_sizes: Mutex::default(),
            phase_ends: AtomicBool::new(false),
            trials: Mutex::default(),
            choices: Mutex::default(),
            requests: Mutex::default(),
            lost_requests: AtomicBool::new(false),
            searched: AtomicBool::new(false),
            next: OnceLock::new(),
        })
    }

    /// Whether burn's tuner has timed anything on the card.
    pub fn tuned(&self) -> bool {
        self.tuned.load(Ordering::Relaxed)
    }

    /// The sizes of the buffers that burn's tuner requested to try kernels.
    pub fn trial_sizes(&self) -> TrialSizes {
        *locked(&self.trial_sizes)
    }

    /// burn's tuner requests a buffer of `size` bytes to try a kernel.
    pub(crate) fn tries(&self, size: u64) {
        locked(&self.trial_sizes).add(Bytes(size), self.spec.largest_trial());
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

    /// The tuner begins to choose a kernel for `operation`.
    pub(crate) fn requested(&self, operation: &str) {
        locked(&self.requests).push(operation.to_string());
    }

    /// The tuner has chosen a kernel for `operation`. What it began within that choice and did not finish, a candidate
    /// that panicked had begun.
    pub(crate) fn answered(&self, operation: &str) {
        let mut requests = locked(&self.requests);
        match requests.iter().rposition(|known| known == operation) {
            Some(place) => requests.truncate(place),
            None => self.lost_requests.store(true, Ordering::Relaxed),
        }
    }

    /// The tuner has chosen a kernel for the operation that it began with last, although it could time none. (If a
    /// candidate that panicked had begun with another, then one operation remains, which is lost.)
    pub(crate) fn answered_untimed(&self) {
        locked(&self.requests).pop();
    }

    /// Whether the tuner is choosing a kernel.
    pub(crate) fn is_choosing(&self) -> bool {
        !locked(&self.requests).is_empty()
    }

    /// The tuner is not at work, whatever it began.
    pub(crate) fn lose_requests(&self) {
        if !std::mem::take(&mut *locked(&self.requests)).is_empty() {
            self.lost_requests.store(true, Ordering::Relaxed);
        }
    }

    /// burn searches for what it can fuse.
    pub(crate) fn searches(&self) {
        self.searched.store(true, Ordering::Relaxed);
    }

    /// Whether the recording has the calls of the program, with the kernels that the tuner chose, and no others.
    pub fn has_calls_of_program(&self) -> bool {
        match self.tuner_calls {
            TunerCalls::OnCard => !self.tuned(),
            TunerCalls::Apart => !self.lost_requests.load(Ordering::Relaxed) && !self.is_choosing(),
            TunerCalls::Only => false,
        }
    }

    /// Whether the program would make the same calls again, by all that is known: burn had no kernel to choose, or it did
    /// not search for what it can fuse.
    pub fn is_settled(&self) -> bool {
        let searched = self.searched.load(Ordering::Relaxed);
        self.has_calls_of_program() && !(self.tuned() && searched)
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
