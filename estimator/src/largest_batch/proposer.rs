//! Where the search for the largest batch begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Remembering;
use super::predictor::{Prediction, Predictor};
use super::scaling::Scaling;
use super::search::MAX_BATCH;
use crate::analysis::Timeline;
use crate::card::DeviceSpec;
use crate::job::Program;
use crate::record::Recording;
use crate::{Bytes, Error};

/// Proposes the batch at which the search for the largest one begins, on devices with the same kernels. The search
/// runs the step with that batch and with the next, so a proposal costs time where it is wrong, and changes no answer.
#[derive(Debug)]
pub struct Proposer<'a, P> {
    /// `None` if the calls of the step change with the batch.
    predictor: Option<Predictor<'a, P>>,
    lines: Option<Lines>,
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
            predictor: scaling
                .map(|scaling| Predictor::new(program, scaling, device.without_limit())),
            lines: learned.lines.clone(),
        }
    }

    /// A proposer that knows nothing: every search begins with one sample.
    pub fn without_knowledge() -> Self {
        Self {
            predictor: None,
            lines: None,
            neighbors_differ: true.into(),
        }
    }

    /// Predicts the calls of the step at any batch; `None` if they change with the batch.
    pub(super) fn predictor(&self) -> Option<&Predictor<'a, P>> {
        self.predictor.as_ref()
    }

    /// A batch near the largest on a device like `spec`, without running the step; 0 if nothing is known.
    pub(super) fn guess(&self, spec: &DeviceSpec) -> u64 {
        match (&self.predictor, &self.lines) {
            (Some(predictor), _) => predictor.guess(spec),
            (None, Some(lines)) => lines.batch(spec),
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

    /// Whether a device like `spec` refuses an allocation of the step with `batch` samples, by a replay.
    pub(super) fn predicts_refusal(&self, batch: u64, spec: &DeviceSpec) -> bool {
        let predictor = self.predictor.as_ref();
        predictor.is_some_and(|predictor| predictor.predicts_refusal(batch, spec))
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
            Some(predictor) if guess / 2 < predictor.scaling().recorded() => {
                return Ok(predicted(predictor, guess, spec));
            }
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
            let next = Error::if_kernels(program.attempt(guess + 1, spec))?;
            Ok::<_, Error>(next.is_none_or(|(_, refused)| refused.is_some()))
        };
        if let Some(predictor) = predictor
            && fits
            && (predictor.scaling().matches(guess, &run)
                || program.accepts(guess + 1) && is_last()?)
        {
            // A larger batch may fit although the next does not.
            return Ok(predicted(predictor, guess, spec).max(guess));
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
    lines: Option<Lines>,
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
        let unlimited = device.without_limit();
        let sketch = |batch| program.sketch(batch, unlimited.clone());
        let (few, more) = (sketch(FEW)?, sketch(FEW + 1)?);
        let lines = Lines::between(&few, &more);
        let near = lines.batch(device);
        let scaling = match Scaling::between((FEW, few), (FEW + 1, &more), &unlimited) {
            Some(scaling) => Some(scaling),
            // With so few samples burn may choose other kernels than for a full card.
            None if near > FEW + 1 => {
                Error::if_kernels(Scaling::near(program, near, &unlimited))?.flatten()
            }
            None => None,
        };
        Ok(Self {
            scaling: scaling.map(Arc::new),
            lines: Some(lines),
        })
    }
}

/// How many bytes a step has in use, roughly, at its peak and at the end of each phase. With few samples the peak alone may not
/// grow with the batch: it may be that of the optimizer, or of a kernel that burn chooses for few samples.
#[derive(Clone, Debug)]
struct Lines(Vec<Line>);

/// Bytes in use: those with [`FEW`] samples, and as many more for each further sample.
#[derive(Clone, Copy, Debug)]
struct Line {
    least: Bytes,
    sample: u64,
}

impl Lines {
    /// The lines through the recordings with [`FEW`] samples and with one more.
    fn between(few: &Recording, more: &Recording) -> Self {
        let [few, more] = [few, more].map(|recording| {
            let timeline = Timeline::of(recording);
            let phases = timeline.phases(recording).into_iter();
            let ends = phases.map(|phase| phase.live_bytes);
            std::iter::once(timeline.most())
                .chain(ends)
                .collect::<Vec<_>>()
        });
        let lines = few.into_iter().zip(more).map(|(least, next)| Line {
            least,
            sample: next.0.saturating_sub(least.0).max(1),
        });
        Self(lines.collect())
    }

    /// A batch somewhat below the largest on a device like `spec`: 1/32 of it is left to the pools. Chosen: a proposal
    /// changes no answer.
    fn batch(&self, spec: &DeviceSpec) -> u64 {
        let room = spec.available().unwrap_or_default();
        let batches = self.0.iter().map(|line| {
            let room = room.saturating_sub(line.least);
            FEW + room.0 / line.sample
        });
        let most = batches.min().unwrap_or(FEW).min(MAX_BATCH);
        most - most / 32
    }
}
