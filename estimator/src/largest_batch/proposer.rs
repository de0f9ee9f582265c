//! Where the search for the largest batch begins.

use std::sync::Arc;

use recording::analysis::Timeline;
use recording::{Bytes, QueueLag, Recording};

use super::Remembering;
use super::gallop::MAX_BATCH;
use super::predictor::{Prediction, Predictor};
use super::scaling::Scaling;
use crate::Error;
use crate::card::DeviceSpec;
use crate::job::Program;
use crate::run_kind::Required;

/// Proposes the batch at which the search for the largest one begins, on devices with the same kernels. The search
/// runs the step with that batch and with the next, so a proposal costs time where it is wrong, and changes no answer.
#[derive(Debug)]
pub struct Proposer<'a, P> {
    /// `None` if the calls of the step change with the batch.
    predictor: Option<Predictor<'a, P>>,
    line: Option<Line>,
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
        }
    }

    /// Predicts the calls of the step at any batch; `None` if they change with the batch.
    pub(super) fn predictor(&self) -> Option<&Predictor<'a, P>> {
        self.predictor.as_ref()
    }

    /// A batch near the largest on a device like `spec`, without running the step; 0 if nothing is known.
    pub(super) fn guess(&self, spec: &DeviceSpec) -> u64 {
        match (&self.predictor, &self.line) {
            (Some(predictor), _) => predictor.predicted(spec).batch,
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

    /// Whether a run of `program` on `device`, near the largest batch there, completes and makes the predicted calls.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub(super) fn is_right_on(
        &self,
        program: &Remembering<P>,
        device: &DeviceSpec,
    ) -> Result<bool, Error> {
        let Some(predictor) = &self.predictor else {
            return Ok(false);
        };
        let tuned = Required::Tuned.on(device);
        let guess = self.guess(&tuned);
        let run = run_to_check(predictor, program, guess, &tuned)?;
        Ok(
            run.is_some_and(|run| {
                run.failure.is_none() && predictor.scaling().matches(guess, &run)
            }),
        )
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
        let Some(predictor) = &self.predictor else {
            // Even two batches near the limit did not make the same calls.
            return Ok(guess);
        };
        let Some(run) = run_to_check(predictor, program, guess, spec)? else {
            return Ok(guess);
        };
        let fits = run.failure.is_none();
        let is_last = || {
            let next = Error::if_kernels(program.attempt(guess + 1, spec, &QueueLag::REQUIRED))?;
            Ok::<_, Error>(next.is_none_or(|(_, refused)| refused.is_some()))
        };
        if fits
            && (predictor.scaling().matches(guess, &run)
                || program.accepts(guess + 1) && is_last()?)
        {
            return Ok(guess);
        }
        let unlimited = spec.without_limit();
        let near = Error::if_kernels(Scaling::near(program, guess, &unlimited))?;
        let Some(scaling) = near.flatten() else {
            return Ok(guess);
        };
        let predicted = Predictor::new(program, scaling.into(), unlimited)
            .predicted(spec)
            .batch;
        Ok(if fits {
            predicted.max(guess)
        } else {
            predicted
        })
    }
}

/// The run with `guess` samples on a device like `spec`, against which `predictor` can be checked. `None` if the recordings have
/// about as many samples or more, or if there is no such run.
fn run_to_check<P: Program>(
    predictor: &Predictor<P>,
    program: &Remembering<P>,
    guess: u64,
    spec: &DeviceSpec,
) -> Result<Option<Recording>, Error> {
    if guess / 2 < predictor.scaling().recorded() || !program.accepts(guess) {
        return Ok(None);
    }
    let run = Error::if_kernels(program.simulate(guess, spec.clone()))?;
    Ok(run.map(|run| run.recording))
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
