//! The runs of a step in which it has to complete to fit: how much memory they need, and whether a device has as much.

use std::sync::{Arc, OnceLock};

use recording::{Breakdown, Bytes, QueueLag, Recording, Refusal};

use crate::card::DeviceSpec;
use crate::estimate::Estimate;
use crate::job::Program;
use crate::queue_lag::{out_of_memory, refused_with_lag};
use crate::replay::replay;
use crate::required::{below, least_memory, most_needed};
use crate::run_kind::{Required, RunKind};
use crate::simulated::Simulated;
use crate::verdict::Verdict;
use crate::{Error, OutOfMemory, Runtime};

/// The runs of a step with some number of samples in which it has to complete to fit, on a device with unlimited memory.
///
/// On devices with the same kernels the step makes the same calls, so a replay of these runs tells whether they complete there.
/// Only the first run of a process is run there if the device is nearly full: burn's tuner leaves a kernel out that it has no
/// room to try.
pub struct StepRuns<'a, P> {
    program: &'a P,
    batch: u64,
    device: DeviceSpec,
    /// The run whose figures an answer shows.
    shown: Simulated,
    learned: Arc<Learned>,
}

/// What is learned about a step when it is needed: the same for devices on which the shown run makes the same calls.
#[derive(Default)]
struct Learned {
    /// The recordings of the shown run, with each lag that is required.
    recordings: OnceLock<Vec<Lagged>>,
    /// The least memory with which the shown run completes, with each lag.
    required_for_shown: OnceLock<Bytes>,
    /// The run in which burn overwrites no operand; `None` if it is not required, or tells nothing.
    not_overwriting: OnceLock<Result<Option<Lagged>, Error>>,
    /// The first run of a process, on a card with unlimited memory.
    first: OnceLock<Result<Arc<Simulated>, Error>>,
    /// The least memory with which the shown run and the first complete.
    required: OnceLock<Result<Bytes, Error>>,
}

/// The recording of a run with some queue lag.
#[derive(Debug)]
struct Lagged {
    run: Required,
    queue_lag: QueueLag,
    recording: Recording,
}

/// A device is nearly full if it has less than 1/`CLOSE` of the required memory to spare. Chosen. Only there do the pages decide
/// that the pools take by chance, or that other runs need: 16.2 % more were seen where burn overwrites nothing (ResNet-18, 53
/// pixels, batch 234: `tests/tests/largest_batch.rs`), and in the first run there are also those of kernels that burn tried.
const CLOSE: u64 = 4;

impl<'a, P: Program> StepRuns<'a, P> {
    /// The runs of `program` with `batch` samples on a device like `device` without its limit.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub fn of(program: &'a P, batch: u64, device: &DeviceSpec) -> Result<Self, Error> {
        let shown = Required::runs(program.only())[0];
        if shown == Required::First && device.available().is_some() {
            // With room for fewer kernels to try, the first run is another.
            let run = program.simulate(batch, shown.on(device))?;
            if run.outcome().is_ok() {
                return Ok(Self::with(program, batch, device, run));
            }
        }
        let mut run = program.simulate_unlimited(batch, &shown.on(device))?;
        // The run stands for one on the device.
        run.trials.stand_for(device.largest_trial());
        Ok(Self::with(program, batch, device, run))
    }

    /// The runs of `program` with `batch` samples on a device like `device`; `shown` is the one with unlimited memory whose figures
    /// an answer shows.
    pub(crate) fn with(program: &'a P, batch: u64, device: &DeviceSpec, shown: Simulated) -> Self {
        let learned = Learned::default();
        if let Some(first) = &shown.first_run {
            learned.first.get_or_init(|| Ok(first.clone()));
        }
        Self {
            program,
            batch,
            device: device.clone(),
            shown,
            learned: Arc::new(learned),
        }
    }

    /// The run whose figures an answer shows: one with tuned kernels, or the first if only that counts.
    pub fn shown(&self) -> &Simulated {
        &self.shown
    }

    /// The [shown](Self::shown) run alone.
    pub fn into_shown(self) -> Simulated {
        self.shown
    }

    /// Whether these runs stand for those on `device` too: burn offers the same kernels there, and its tuner chooses the same.
    pub fn hold_for(&self, device: &DeviceSpec) -> bool {
        let same_memory = self.device.available() == device.available();
        self.shown.chooses_as_on(device) && (same_memory || !self.is_only_first())
    }

    /// Whether only the first run is asked about.
    fn is_only_first(&self) -> bool {
        Required::runs(self.program.only()) == [Required::First]
    }

    /// Shares what is known of `other` if the shown runs of both make the same calls.
    pub(crate) fn share_with(&mut self, other: &Self) -> bool {
        let same = self.shown.recording.makes_calls_of(&other.shown.recording);
        if same {
            self.learned = other.learned.clone();
        }
        same
    }

    /// The runs of the same step in a program that keeps no copy of its model ([`Recording::without_kept`]), by replays.
    ///
    /// # Errors
    ///
    /// As for [`estimate`](Self::estimate).
    pub fn without_kept(&self) -> Result<Self, Error> {
        let without = |run: &Simulated| {
            let recording = run.recording.without_kept();
            Simulated::by_replay(&run.spec, &recording, run.parameters)
        };
        let mut shown = without(&self.shown);
        if self.requires(Required::First) {
            let first = without(&*self.first_without_limit()?);
            shown.first_run = Some(Arc::new(first));
        }
        Ok(Self::with(self.program, self.batch, &self.device, shown))
    }

    /// The estimate of the step.
    ///
    /// # Errors
    ///
    /// The step itself failed, or it needs a buffer that is larger than the device allows ([`Error::OutOfMemory`]).
    pub fn estimate(&self) -> Result<Estimate, Error> {
        self.shown.outcome()?;
        Ok(self.shown.estimate_that_requires(self.required()?))
    }

    /// What is in use at the peak of the shown run.
    pub(crate) fn at_peak(&self) -> Result<Breakdown, Error> {
        self.shown.outcome()?;
        Ok(self.shown.at_peak())
    }

    /// The least memory, in whole MiB, with which the first run and those after it complete. (Where burn overwrites no operand, a
    /// step can need a little more: [`verdict`](Self::verdict) makes that run if a device is nearly full.)
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub fn required(&self) -> Result<Bytes, Error> {
        let required = || {
            let first = match self.requires(Required::First) {
                true => Some(self.first_without_limit()?),
                false => None,
            };
            let first = first.as_deref().map(Simulated::whole_recording);
            let required = self.least_memory(Bytes::ZERO, None, first);
            // That of a run that completed.
            Ok(required.min(self.shown.spec.available().unwrap_or(required)))
        };
        self.learned.required.get_or_init(required).clone()
    }

    /// Whether the step fits on `device`, for which these runs [hold](Self::hold_for).
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub fn verdict(&self, device: &DeviceSpec) -> Result<Verdict, Error> {
        let Some(available) = device.available() else {
            let refused = match self.fits_a_page(device) {
                true => None,
                false => self.refused_by_recordings(device),
            };
            return Ok(Verdict::new(refused, self.required()?, None));
        };
        if self.is_only_first() {
            return self.verdict_on_first(device, available);
        }
        let mut refused = None;
        let mut not_overwriting = None;
        if !self.has_room(device) {
            refused = self.refused_by_recordings(device);
            if refused.is_none() {
                not_overwriting = self.not_overwriting()?;
                refused = not_overwriting.and_then(|lagged| lagged.refused(device));
            }
        }
        let first = match &refused {
            _ if !self.requires(Required::First) => None,
            None => Some(self.first_for(device)?),
            // Whether it completes does not matter any more, so it is not made for that.
            Some(_) => self.known_first(),
        };
        if let Some(first) = first.as_ref().filter(|first| !is_unlimited(first)) {
            let refused_in_first = || match first.outcome() {
                Ok(()) => refused_with_lag(first, Required::First.lags()),
                Err(refused) => Some(refused),
            };
            refused = refused.or_else(refused_in_first);
        }
        let required = match (not_overwriting, &first) {
            (None, None) => self.required_for_shown(),
            (None, Some(first)) if is_unlimited(first) => self.required()?,
            (_, first) => {
                let first = first.as_deref().map(Simulated::whole_recording);
                self.least_memory(Bytes::ZERO, not_overwriting, first)
            }
        };
        let required = match &refused {
            // A run completes on some cards that have less than what one needs to complete: see `least_memory`.
            None => required.min(available),
            Some(refused) if refused.refusal == Refusal::Full && required <= available => {
                let first = first.as_deref().map(Simulated::whole_recording);
                self.least_memory(available, not_overwriting, first)
            }
            // No memory is enough for a buffer that is too large.
            Some(_) => required,
        };
        Ok(Verdict::new(refused, required, Some(available)))
    }

    /// Whether one of the runs that the step has to complete does so on `device`, for which these runs [hold](Self::hold_for):
    /// a step that does not fit may train there all the same.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub fn may_complete(&self, device: &DeviceSpec) -> Result<bool, Error> {
        let completes = |lagged: &Lagged| lagged.refused(device).is_none();
        if self.shown.outcome().is_err() {
            return Ok(false);
        }
        let with_a_lag = self.recordings().iter().any(completes);
        Ok(with_a_lag || self.not_overwriting()?.is_some_and(completes))
    }

    /// The verdict on a device with so much `available`, if only the first run is asked about.
    fn verdict_on_first(&self, device: &DeviceSpec, available: Bytes) -> Result<Verdict, Error> {
        let device = Required::First.on(device);
        let run = match self.shown.spec == device {
            true => self.shown.clone(),
            false => self.program.simulate(self.batch, device)?,
        };
        let refused = match run.outcome() {
            Ok(()) => refused_with_lag(&run, Required::First.lags()),
            Err(refused) => Some(refused),
        };
        let recording = [run.whole_recording()];
        let short = below(most_needed(recording[0]));
        let least = |short| least_memory(&self.shown.spec, &recording, short, self.shown.reserved);
        let required = least(short);
        let required = match &refused {
            None => required.min(available),
            Some(refused) if refused.refusal == Refusal::Full && required <= available => {
                least(available)
            }
            Some(_) => required,
        };
        Ok(Verdict::new(refused, required, Some(available)))
    }

    /// Whether `device` has more room than the shown run requires, and is not nearly full.
    fn has_room(&self, device: &DeviceSpec) -> bool {
        let required = self.required_for_shown();
        let wanted = required + required / CLOSE;
        let room = device
            .available()
            .is_none_or(|available| available >= wanted);
        room && self.fits_a_page(device)
    }

    /// The first run of a process on `device`, or on a card with unlimited memory where it is the same there, or where there is
    /// room to spare.
    fn first_for(&self, device: &DeviceSpec) -> Result<Arc<Simulated>, Error> {
        // On wgpu that does not tell: ResNet-18 in fp16 (52 pixels, batch 2305) is refused with 10 % to spare, though a card with
        // unlimited memory reserves less than that one has. Why is not known.
        let same = |first: &Arc<Simulated>| {
            let room = device
                .available()
                .is_none_or(|available| first.reserved <= available);
            room && device.runtime == Runtime::Cuda && self.fits_a_page(device)
        };
        let has_room = || self.has_room(device);
        if self.known_first().as_ref().is_some_and(same) || has_room() {
            return self.first_without_limit();
        }
        let first = Required::First.on(device);
        self.program.simulate(self.batch, first).map(Arc::new)
    }

    /// The first run of a process on a card with unlimited memory, if it was made.
    fn known_first(&self) -> Option<Arc<Simulated>> {
        let known = self.learned.first.get()?;
        known.as_ref().ok().cloned()
    }

    /// The allocation that `device` refuses in the shown run, with some queue lag.
    fn refused_by_recordings(&self, device: &DeviceSpec) -> Option<OutOfMemory> {
        if let Err(refused) = self.shown.outcome() {
            // It needs a buffer that is too large with each kernel that burn's tuner can try.
            return Some(refused);
        }
        let mut recordings = self.recordings().iter();
        recordings.find_map(|lagged| lagged.refused(device))
    }

    /// Whether the step has to complete in this run, which is not the shown one.
    fn requires(&self, run: Required) -> bool {
        Required::runs(self.program.only())[1..].contains(&run)
    }

    /// Whether `device` allows a single allocation as large as each that the step cannot go on without.
    fn fits_a_page(&self, device: &DeviceSpec) -> bool {
        let largest = device.largest_page();
        let mut buffers = self.shown.recording.buffers.iter();
        buffers.all(|buffer| buffer.optional || buffer.bytes <= largest)
    }

    /// The recordings of the shown run, with each lag that is required.
    fn recordings(&self) -> &[Lagged] {
        self.learned.recordings.get_or_init(|| {
            let run = Required::runs(self.program.only())[0];
            let lags = [QueueLag::None].iter().chain(run.lags());
            let lagged = lags.map(|lag| Lagged {
                run,
                queue_lag: *lag,
                recording: self.shown.recording.with_queue_lag(*lag),
            });
            lagged.collect()
        })
    }

    /// The run in which burn overwrites no operand; `None` if it is not required, or tells nothing.
    fn not_overwriting(&self) -> Result<Option<&Lagged>, Error> {
        let run = Required::NotOverwriting;
        if !self.requires(run) {
            return Ok(None);
        }
        let known = self.learned.not_overwriting.get_or_init(|| {
            let device = run.on(&self.device);
            let simulated = self.program.simulate_unlimited(self.batch, &device);
            let simulated = run.if_it_tells(simulated)?;
            Ok(simulated.map(|simulated| Lagged::of(run, simulated)))
        });
        known.as_ref().map(Option::as_ref).map_err(Error::clone)
    }

    /// The first run of a process on a card with unlimited memory.
    fn first_without_limit(&self) -> Result<Arc<Simulated>, Error> {
        let first = self.learned.first.get_or_init(|| {
            let device = Required::First.on(&self.device);
            let run = self.program.simulate_unlimited(self.batch, &device);
            run.map(Arc::new)
        });
        first.clone()
    }

    /// The least memory with which the shown run completes, with each lag.
    fn required_for_shown(&self) -> Bytes {
        let least = || self.least_memory(Bytes::ZERO, None, None);
        *self.learned.required_for_shown.get_or_init(least)
    }

    /// The least memory, more than `short`, with which the shown run and these complete.
    fn least_memory(
        &self,
        short: Bytes,
        not_overwriting: Option<&Lagged>,
        first: Option<&Recording>,
    ) -> Bytes {
        let shown = self.recordings().iter().chain(not_overwriting);
        let recordings: Vec<_> = shown.map(|lagged| &lagged.recording).chain(first).collect();
        let needed = recordings.iter().map(|recording| most_needed(recording));
        let short = short.max(below(needed.max().unwrap_or_default()));
        least_memory(&self.shown.spec, &recordings, short, self.shown.reserved)
    }

    /// The estimate of the step, which fits on a device like that of these runs: `runs` are those with its limit.
    pub(crate) fn estimate_with(&self, runs: &[(Required, Simulated)]) -> Estimate {
        let run = |wanted| runs.iter().find(|(run, _)| *run == wanted);
        let not_overwriting = run(Required::NotOverwriting);
        let not_overwriting =
            not_overwriting.map(|(run, simulated)| Lagged::of(*run, simulated.clone()));
        let first = run(Required::First).filter(|_| self.requires(Required::First));
        let first = first.map(|(_, simulated)| &simulated.recording);
        let available = self.device.available().unwrap_or(Bytes(u64::MAX));
        let required = self.least_memory(Bytes::ZERO, not_overwriting.as_ref(), first);
        self.shown.estimate_that_requires(required.min(available))
    }
}

/// Whether `run` was on a card with unlimited memory.
fn is_unlimited(run: &Simulated) -> bool {
    run.spec.available().is_none()
}

impl Lagged {
    /// `simulated` without a lag.
    fn of(run: Required, simulated: Simulated) -> Self {
        Self {
            run,
            queue_lag: QueueLag::None,
            recording: simulated.recording,
        }
    }

    /// The allocation that `device` refuses in this run, by a replay.
    fn refused(&self, device: &DeviceSpec) -> Option<OutOfMemory> {
        let device = self.run.on(device);
        let recording = &self.recording;
        let outcome = replay(&device, recording, |buffer| recording.buffer(buffer).bytes);
        let run = RunKind::on(&device).with_queue_lag(self.queue_lag);
        Some(out_of_memory(recording.clone(), outcome.failure?, run))
    }
}
