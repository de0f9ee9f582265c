//! The largest batch that fits on a card.

mod forecast;
mod scaling;
mod search;

use std::cell::Cell;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::card::{CardSpec, Pace};
use crate::estimate::Estimate;
use crate::record::Refusal;
use crate::run::Simulated;
use crate::{Bytes, Error, OutOfMemory};
pub use forecast::{Forecast, Foretold};
pub use scaling::Scaling;
use search::{MOST, gallop};

/// What stands against a larger batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// The card is full.
    #[serde(rename = "device memory")]
    DeviceMemory,
    /// No single allocation may be as large as one that the step needs.
    #[serde(rename = "single allocation")]
    SingleAllocation,
}

/// The first batch that does not fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// Samples in it.
    pub batch: u64,
    /// What it would take on a card with room.
    pub estimate: Estimate,
    /// What was refused on this one.
    pub refused: OutOfMemory,
}

/// The largest batch that fits on a card.
#[derive(Clone, Debug, PartialEq)]
pub struct LargestBatch {
    /// Samples in it; 0 if not even one fits.
    pub batch: u64,
    /// What it takes; none if not even one fits.
    pub at_max: Option<Estimate>,
    /// The first that does not fit; none if the batch has no limit that was looked for.
    pub next: Next,
    /// What stands against it.
    pub limit: Limit,
}

/// A training step at any batch, on any card.
pub trait Program {
    /// Runs the step with `batch` samples on a new card like `spec`.
    ///
    /// # Errors
    ///
    /// Not that the card is too small, which is in the recording: the step itself failed.
    fn simulate(&self, batch: u64, spec: CardSpec) -> Result<Simulated, Error>;

    /// Whether the step can be run with `batch` samples, on any card: some networks compare
    /// samples with each other, in pairs or groups.
    fn accepts(&self, batch: u64) -> bool {
        let _ = batch;
        true
    }
}

/// A program on a card whose thread keeps up with it, and on one whose thread is behind: where it fits on
/// the first and not on the second, the card is said to refuse it.
struct AnyPace<'a, P> {
    program: &'a P,
    /// A batch that is known to fit where the thread is behind.
    fits_behind: Cell<Option<u64>>,
}

impl<'a, P: Program> AnyPace<'a, P> {
    fn new(program: &'a P) -> Self {
        Self {
            program,
            fits_behind: Cell::new(None),
        }
    }

    /// What is proposed for a card like `spec`: what is foretold, or what is foretold where the thread is
    /// behind if that decides.
    fn proposed(&self, forecast: &Forecast<P>, spec: &CardSpec) -> Result<u64, Error> {
        let in_step = forecast.foretold(spec, None).batch;
        let behind = behind(spec);
        if in_step == 0 || self.run_behind(in_step, &behind)?.is_none() {
            return Ok(in_step);
        }
        let Some(scaling) = Scaling::of(self.program, &behind)? else {
            return Ok(in_step);
        };
        let forecast = Forecast::new(self.program, Arc::new(scaling), behind.without_limit());
        Ok(in_step.min(forecast.foretold(spec, None).batch))
    }

    /// The step on a card like `behind`, if it does not fit there.
    fn run_behind(&self, batch: u64, behind: &CardSpec) -> Result<Option<Simulated>, Error> {
        if self.fits_behind.get() == Some(batch) {
            return Ok(None);
        }
        let run = self.program.simulate(batch, behind.clone())?;
        if run.recording.failure.is_none() {
            self.fits_behind.set(Some(batch));
            return Ok(None);
        }
        Ok(Some(run))
    }
}

/// A card like `spec` whose thread is as far behind the program as it can be.
fn behind(spec: &CardSpec) -> CardSpec {
    CardSpec {
        pace: Pace::Behind,
        ..spec.clone()
    }
}

impl<P: Program> Program for AnyPace<'_, P> {
    fn simulate(&self, batch: u64, spec: CardSpec) -> Result<Simulated, Error> {
        let behind = spec.total.map(|_| behind(&spec));
        let in_step = self.program.simulate(batch, spec)?;
        match behind {
            Some(behind) if in_step.recording.failure.is_none() => {
                let refused = self.run_behind(batch, &behind)?;
                Ok(refused.unwrap_or(in_step))
            }
            _ => Ok(in_step),
        }
    }

    fn accepts(&self, batch: u64) -> bool {
        self.program.accepts(batch)
    }
}

/// The largest batch of `program` that fits on a card like `spec`, which has a memory, and what
/// it takes. It fits both where the card's thread keeps up with the program and where it is as far behind
/// as it can be ([`Pace`]): on a full card that can decide.
///
/// # Errors
///
/// The step itself failed.
pub fn largest_batch<P: Program>(
    program: &P,
    forecast: Option<&Forecast<P>>,
    spec: &CardSpec,
) -> Result<LargestBatch, Error> {
    let fit = largest_fit(program, forecast, spec)?;
    let endless = CardSpec {
        largest_binding: Bytes(u64::MAX / 8),
        ..spec.without_limit()
    };
    let roomy = program.simulate(fit.next, endless.clone())?;
    Ok(LargestBatch {
        batch: fit.batch,
        limit: fit.limit(),
        at_max: fit.at_max.map(|simulated| Estimate::of(&simulated, spec)),
        next: Next {
            batch: fit.next,
            estimate: Estimate::of(&roomy, &endless),
            refused: fit.refused,
        },
    })
}

/// The largest batch that fits on a card, and the next, which does not.
#[derive(Clone, Debug)]
pub struct LargestFit {
    /// Samples in it; 0 if not even one fits.
    pub batch: u64,
    /// The step with it, on the card; none if not even one sample fits, and if it was not run.
    pub at_max: Option<Simulated>,
    /// The first that does not fit: one sample more, where the step can be run with that.
    pub next: u64,
    /// What the card refused of it.
    pub refused: OutOfMemory,
}

impl LargestFit {
    /// What stands against a larger batch.
    pub fn limit(&self) -> Limit {
        match self.refused.refusal {
            Refusal::Full => Limit::DeviceMemory,
            Refusal::TooLarge { .. } => Limit::SingleAllocation,
        }
    }
}

/// The largest batch of `program` that fits on a card like `spec`, which has a memory, in any pace.
///
/// `forecast` proposes an answer in no time; that its batch fits and that the next does not is
/// then found by running both steps on such a card.
///
/// # Errors
///
/// The step itself failed.
pub fn largest_fit<P: Program>(
    program: &P,
    forecast: Option<&Forecast<P>>,
    spec: &CardSpec,
) -> Result<LargestFit, Error> {
    let any_pace = AnyPace::new(program);
    let proposed = forecast.map(|forecast| any_pace.proposed(forecast, spec));
    near(&any_pace, proposed.transpose()?.unwrap_or_default(), spec)
}

/// As [`largest_fit`], where `proposed` is the answer that something else proposes.
///
/// # Errors
///
/// As [`largest_fit`].
pub fn largest_fit_near(
    program: &impl Program,
    proposed: u64,
    spec: &CardSpec,
) -> Result<LargestFit, Error> {
    near(&AnyPace::new(program), proposed, spec)
}

/// The largest batch of `program` as it is, looked for from `proposed` on.
fn near(program: &impl Program, proposed: u64, spec: &CardSpec) -> Result<LargestFit, Error> {
    let mut at_max = None;
    let mut at_least = None;
    let fits = |batch: u64| {
        let simulated = program.simulate(batch, spec.clone())?;
        let fits = simulated.recording.failure.is_none();
        *(if fits { &mut at_max } else { &mut at_least }) = Some(simulated);
        Ok(fits)
    };
    // The proposal is nearly always the answer: look there first, and then outwards.
    let accepts = |batch| program.accepts(batch);
    let (most, least) = gallop(proposed, 1, MOST, accepts, fits)?;
    let refused = at_least.and_then(|simulated| simulated.outcome().err());
    Ok(LargestFit {
        batch: most,
        at_max,
        next: least,
        refused: refused.ok_or(Error::NoLimit { batch: most })?,
    })
}
