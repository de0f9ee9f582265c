//! Where the search for the largest batch begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Remembering;
use super::gallop::MAX_BATCH;
use super::predictor::{Prediction, Predictor};
use super::scaling::Scaling;
use crate::analysis::Timeline;
use crate::card::{DeviceSpec, QueueLag};
use crate::job::Program;
use crate::record::Recording;
use crate::run_kind::Required;
use crate::{Bytes, Error};

/// Proposes the batch at which the search for the largest one begins, on devices with the same kernels. The search
/// runs the step with that batch and with the next, so a proposal costs time where it is wrong, and changes no answer.
#[derive(Debug)]
pub struct Proposer<'a, P> {
    /// `None` if the calls of the step change with the batch.
    predictor: Option<Predictor<'a, P>>,
    line: Option<Line>,
    /// Whether two batches near the limit of a device did not make the same calls. Then those of another device hardly
    /// do, and are not run.
    neighbors_differ: AtomicBool,
}

impl<'a, P: Program> Proposer<'a, P> {
    /// Learns how `program` grows with the batch on devices with the kernels of `device`.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub fn learn(program: &'a P, device: &DeviceSpec) -> Result<Self, Error> {
        Ok(Self::new(program, &Learned::of(program, device)?, device))
    }

    /// A proposer for `program` on devices with the kernels of `device`, from what was `learned` about it.
    pub(super) fn new(program: &'a P, learned: &Learned, device: &DeviceSpec) -> Self {
        let scaling = learned.scaling.clone();
        Self {
            neighbors_differ: scaling.is_none().into(),
            predictor: scaling.map(|scaling| {
                Predictor::new(program, scaling, Required::Tuned.on(device).without_limit())
            }),
            line: learned.line,
        }
    }

    /// A proposer that knows nothing: every search begins with one sample.
    pub fn without_knowledge() -> Self {
        Self {
            predictor: None,
            line: None,
            neighbors_differ: true.into(),
        }
    }

    /// Predicts the calls of the step at any batch; `None` if they change with the batch.
    pub(super) fn predictor(&self) -> Option<&Predictor<'a, P>> {
        self.predictor.as_ref()
    }

    /// A batch near the largest on a device like `spec`, without running the step; 0 if nothing is known.
    pub(super) fn guess(&self, spec: &DeviceSpec) -> u64 {
        match (&self.predictor, &self.line) {
            (Some(predictor), _) => predictor.predicted(spec, None).batch,
            (None, Some(line)) => line.batch(spec),
            (None, None) => 0,
        }
    }

    /// `batch`, which was proposed for a device like `spec`, or a smaller one that also fits with each lag of
    /// [`QueueLag::REQUIRED`](crate::QueueLag::REQUIRED), by replays.
    pub(super) fn with_each_lag(&self, batch: u64, spec: &DeviceSpec) -> u64 {
        let next = batch + 1;
        let prediction = Prediction { batch, next };
        let predictor = self.predictor.as_ref();
        predictor.map_or(batch, |predictor| {
            predictor.with_each_lag(prediction, spec).batch
        })
    }

    /// The batch at which to begin the search for the largest batch of `program` on a device like `spec`: what the
    /// predictor predicts, if the step makes the calls near `guess` that it predicts, or if the next batch does not
    /// fit; else what two batches near `guess` predict.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub(super) fn proposed(
        &self,
        program: &Remembering<P>,
        guess: u64,
        spec: &DeviceSpec,
    ) -> Result<u64, Error> {
        let predictor = self.predictor.as_ref();
        let guess = match predictor {
            // The recordings have about as many samples, or more, so nothing can be checked.
            Some(predictor) if guess / 2 < predictor.scaling().recorded() => return Ok(guess),
            _ => guess,
        };
        if !program.accepts(guess) {
            return Ok(guess);
        }
        let Some(run) = Error::if_kernels(program.simulate(guess, spec.clone()))? else {
            return Ok(guess);
        };
        let run = run.recording;
        let fits = run.failure.is_none();
        let is_last = || {
            let next = Error::if_kernels(program.attempt(guess + 1, spec, QueueLag::REQUIRED))?;
            Ok::<_, Error>(next.is_none_or(|(_, refused)| refused.is_some()))
        };
        if let Some(predictor) = predictor
            && fits
            && (predictor.scaling().matches(guess, &run)
                || program.accepts(guess + 1) && is_last()?)
        {
            return Ok(guess);
        }
        if self.neighbors_differ.load(Ordering::Relaxed) {
            return Ok(guess);
        }
        let unlimited = spec.without_limit();
        let near = Error::if_kernels(Scaling::near(program, guess, &unlimited))?;
        let Some(scaling) = near.flatten() else {
            self.neighbors_differ.store(true, Ordering::Relaxed);
            return Ok(guess);
        };
        let predictor = Predictor::new(program, scaling.into(), unlimited);
        let predicted = predicted(&predictor, guess, spec);
        Ok(if fits {
            predicted.max(guess)
        } else {
            predicted
        })
    }
}

/// The largest batch on a device like `spec` that `predictor` predicts; `guess` is near it.
fn predicted(predictor: &Predictor<impl Program>, guess: u64, spec: &DeviceSpec) -> u64 {
    let share = predictor.scaling().share(guess, spec);
    predictor.predicted(spec, share).batch
}

/// How a program grows with the batch, as two small batches tell.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    /// `None` if no two batches make the same calls.
    scaling: Option<Arc<Scaling>>,
    /// `None` if the program does not accept small batches.
    line: Option<Line>,
}

/// The batch of the first recording. One sample is often special: a step may leave out buffers that grow with
/// the batch.
const FEW: u64 = 2;

impl Learned {
    /// Learns how `program` grows with the batch on devices with the kernels of `device`.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub(super) fn of(program: &impl Program, device: &DeviceSpec) -> Result<Self, Error> {
        if !program.accepts(FEW) || !program.accepts(FEW + 1) {
            return Ok(Self::default());
        }
        let device = &Required::Tuned.on(device);
        let unlimited = device.without_limit();
        let sketch = |batch| program.sketch(batch, unlimited.clone());
        let (few, more) = (sketch(FEW)?, sketch(FEW + 1)?);
        let mut line = Line::of_peaks(&few, &more);
        let by_phases = Line::of_phases(&few, &more, device).unwrap_or(line);
        let near = |line: Line| match line.batch(device) {
            near if near > FEW + 1 => Error::if_kernels(Scaling::near(program, near, &unlimited)),
            _ => Ok(Some(None)),
        };
        let scaling = match Scaling::between((FEW, few), (FEW + 1, &more), &unlimited) {
            Some(scaling) => Some(scaling),
            // With so few samples burn may choose other kernels than for a full card.
            None => match near(line)? {
                Some(scaling) => scaling,
                // burn has none for so many: with few samples, the peak may hardly grow with the batch.
                None => {
                    line = by_phases;
                    near(line)?.flatten()
                }
            },
        };
        Ok(Self {
            scaling: scaling.map(Arc::new),
            line: Some(line),
        })
    }
}

/// Bytes that a step has in use, roughly: those with [`FEW`] samples, and as many more for each further sample.
#[derive(Clone, Copy, Debug)]
struct Line {
    least: Bytes,
    sample: u64,
}

impl Line {
    /// The line through the bytes in use with [`FEW`] samples and with one more.
    fn between(least: Bytes, next: Bytes) -> Self {
        Self {
            least,
            sample: next.0.saturating_sub(least.0).max(1),
        }
    }

    /// The line of the peaks of the recordings with [`FEW`] samples and with one more.
    fn of_peaks(few: &Recording, more: &Recording) -> Self {
        let [least, next] = [few, more].map(|recording| Timeline::of(recording).most());
        Self::between(least, next)
    }

    /// Of the lines of the bytes that are in use at the end of a phase, the one by which the fewest samples fit on a device
    /// like `spec`.
    fn of_phases(few: &Recording, more: &Recording, spec: &DeviceSpec) -> Option<Self> {
        let [few, more] = [few, more].map(|recording| Timeline::of(recording).phases(recording));
        let phases = few.iter().zip(&more);
        let lines = phases.map(|(few, more)| Self::between(few.live_bytes, more.live_bytes));
        lines.min_by_key(|line| line.batch(spec))
    }

    /// A batch somewhat below the largest on a device like `spec`: 1/32 of it is left to the pools. Chosen: a proposal
    /// changes no answer.
    fn batch(&self, spec: &DeviceSpec) -> u64 {
        let room = spec.available().unwrap_or_default();
        let room = room.saturating_sub(self.least);
        let most = (FEW + room.0 / self.sample).min(MAX_BATCH);
        most - most / 32
    }
}
