//! The largest batch that fits on a card.

use serde::{Deserialize, Serialize};

use crate::card::CardSpec;
use crate::estimate::Estimate;
use crate::record::{BufferId, Event, Recording, Refusal};
use crate::replay::replay;
use crate::run::Simulated;
use crate::{Bytes, Error, OutOfMemory};

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
}

/// The sizes of a step's buffers as a function of the batch, where the steps of two batches
/// match call by call.
#[derive(Debug)]
pub struct Scaling {
    recording: Recording,
    batch: u64,
    /// By [`BufferId`]: bytes that each further sample adds.
    slopes: Vec<i64>,
}

impl Scaling {
    /// From the recordings of the same step with `batch` samples and with one more; none if
    /// they do not match.
    pub fn between(batch: u64, recording: Recording, more: &Recording) -> Option<Self> {
        let same = |a: &Event, b: &Event| match (a, b) {
            (Event::Launch(a), Event::Launch(b)) => {
                recording.writes(a) == more.writes(b) && recording.reads(a) == more.reads(b)
            }
            (Event::Stream(_), Event::Stream(_)) | (Event::Read(_), Event::Read(_)) => true,
            (a, b) => a == b,
        };
        let matching = recording.events.len() == more.events.len()
            && recording.buffers.len() == more.buffers.len()
            && recording
                .events
                .iter()
                .zip(&more.events)
                .all(|(a, b)| same(a, b));
        if !matching {
            return None;
        }
        let pairs = recording.buffers.iter().zip(&more.buffers);
        let slopes = pairs
            .map(|(a, b)| b.bytes.signed_difference(a.bytes))
            .collect();
        Some(Self {
            recording,
            batch,
            slopes,
        })
    }

    /// The size of `buffer` with `batch` samples.
    pub fn bytes(&self, buffer: BufferId, batch: u64) -> Bytes {
        let base = i128::from(self.recording.buffer(buffer).bytes.0);
        let slope = i128::from(self.slopes[buffer.0 as usize]);
        let bytes = base + slope * (i128::from(batch) - i128::from(self.batch));
        // As many of these as there are buffers can still be added up.
        Bytes(bytes.clamp(0, i128::from(u64::MAX >> 24)) as u64)
    }

    /// The most bytes in use at once with `batch` samples.
    fn peak(&self, batch: u64) -> u64 {
        let mut live = 0u64;
        let mut peak = 0;
        for event in &self.recording.events {
            match event {
                Event::Allocate(buffer) => live += self.bytes(*buffer, batch).0,
                Event::Free(buffer) => live -= self.bytes(*buffer, batch).0,
                _ => {}
            }
            peak = peak.max(live);
        }
        peak
    }

    /// The largest batch that completes on a card like `spec`, as far as the recordings tell.
    fn propose(&self, spec: &CardSpec) -> u64 {
        let available = spec.available().map_or(u64::MAX, |bytes| bytes.0);
        // No batch fits whose buffers alone do not; that is counted quickly.
        let bound = between(0, MOST, |batch| self.peak(batch) <= available);
        // The pools need a few per cent more, so look there before looking everywhere.
        let mut high = bound + 1;
        let mut reach = (bound / 32).max(1);
        while high > 1 {
            let low = high.saturating_sub(reach).max(1);
            if self.fits(low, spec) {
                return between(low, high, |batch| self.fits(batch, spec));
            }
            high = low;
            reach *= 2;
        }
        0
    }

    /// Whether the step with `batch` samples completes on a card like `spec`.
    pub fn fits(&self, batch: u64, spec: &CardSpec) -> bool {
        replay(spec, &self.recording, |buffer| self.bytes(buffer, batch)).completed()
    }
}

/// Beyond this many samples a step is not tried: the indices of its tensors would not fit
/// into the 32 bits with which most kernels count.
const MOST: u64 = 1 << 31;

/// The largest batch of `program` that fits on a card like `spec`, which has a memory.
///
/// `scaling` proposes an answer in no time; that its batch fits and that the next does not is
/// then found by running both steps on such a card.
///
/// # Errors
///
/// The step itself failed.
pub fn largest_batch(
    program: &impl Program,
    scaling: Option<&Scaling>,
    spec: &CardSpec,
) -> Result<LargestBatch, Error> {
    let fits = |batch: u64| -> Result<(bool, Simulated), Error> {
        let simulated = program.simulate(batch, spec.clone())?;
        Ok((simulated.recording.failure.is_none(), simulated))
    };
    let proposed = match scaling {
        Some(scaling) => scaling.propose(spec),
        None => 0,
    };
    // The proposal is nearly always the answer: look there first, and then outwards.
    let mut most = 0;
    let mut at_most = None;
    let mut least = MOST;
    let mut at_least = None;
    let mut reach = 1;
    let mut candidate = proposed.max(1);
    loop {
        let (fit, simulated) = fits(candidate)?;
        match fit {
            true => (most, at_most) = (candidate, Some(simulated)),
            false => (least, at_least) = (candidate, Some(simulated)),
        }
        if least - most == 1 || least <= 1 {
            break;
        }
        candidate = match (at_most.is_some(), at_least.is_some()) {
            (true, false) => most.saturating_add(reach).min(MOST - 1),
            (false, true) => least.saturating_sub(reach).max(1),
            _ => most + (least - most) / 2,
        };
        if candidate == most {
            break;
        }
        reach *= 2;
    }
    let no_limit = || Error::NoLimit { batch: most };
    let refused = at_least.ok_or_else(no_limit)?.outcome();
    let refused = refused.err().ok_or_else(no_limit)?;
    let endless = CardSpec {
        total: None,
        taken: Bytes::ZERO,
        largest_binding: Bytes(u64::MAX / 8),
        ..spec.clone()
    };
    let roomy = program.simulate(least, endless.clone())?;
    let limit = match refused.refusal {
        Refusal::Full => Limit::DeviceMemory,
        Refusal::TooLarge { .. } => Limit::SingleAllocation,
    };
    Ok(LargestBatch {
        batch: most,
        limit,
        at_max: at_most.map(|simulated| Estimate::of(&simulated, spec)),
        next: Next {
            batch: least,
            estimate: Estimate::of(&roomy, &endless),
            refused,
        },
    })
}

/// The largest number from `low` on and below `high` that `fits`, which all below do; `low`
/// is taken to fit.
fn between(low: u64, high: u64, fits: impl Fn(u64) -> bool) -> u64 {
    // First by doubling: most answers are small, and a large batch is not cheaper to refuse.
    let mut most = low;
    let mut least = (low + 1).min(high);
    while least < high && fits(least) {
        most = least;
        least = least.saturating_mul(2).min(high);
    }
    while least - most > 1 {
        let middle = most + (least - most) / 2;
        match fits(middle) {
            true => most = middle,
            false => least = middle,
        }
    }
    most
}
