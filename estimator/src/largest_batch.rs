//! The largest batch that fits on a card.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::OnceLock;

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

use crate::card::{CardSpec, any_service};
use crate::estimate::{Analysis, Estimate};
use crate::record::{Buffer, BufferId, Event, Failure, Layout, Recording, Refusal, TensorLayout};
use crate::replay::{Outcome, replay};
use crate::run::Simulated;
use crate::{Bytes, Error, OutOfMemory};
use simulated_card::LayoutRule;

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

/// The sizes of a step's buffers as a function of the batch, where the steps of two batches
/// match call by call.
#[derive(Debug)]
pub struct Scaling {
    recording: Recording,
    batch: u64,
    /// The card on which it was recorded.
    card: CardSpec,
    rule: LayoutRule,
    growths: Vec<Growth>,
    /// By [`BufferId`]: an index into `growths`.
    growth_of: Vec<usize>,
    /// The step with one sample, if that can be run; it is when it is asked for.
    one: OnceLock<Option<Recording>>,
}

/// The largest batch that recorded calls, made again, fit into.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Foretold {
    /// Samples in it; 0 if not even one fits.
    pub batch: u64,
    /// The first that does not fit.
    pub next: u64,
    /// What was refused of that, where it was replayed.
    failure: Option<Failure>,
}

/// How the size of a buffer follows from the batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// The dimensions of its tensors grow; the runtime's own rule makes bytes of them.
    Shapes {
        layout: Layout,
        /// Tensor by tensor, what each further sample adds to each dimension.
        slopes: Vec<Vec<i64>>,
    },
    /// Nothing is known of it but its size: bytes, and what each further sample adds.
    Bytes { bytes: Bytes, slope: i64 },
}

impl Growth {
    /// Of what is as large with every batch.
    fn none(bytes: Bytes) -> Self {
        Self::Bytes { bytes, slope: 0 }
    }

    /// Of buffer `a` of the recording `few`, which is `b` in `more`, of one sample more.
    fn between(few: &Recording, a: &Buffer, more: &Recording, b: &Buffer) -> Self {
        let bytes = Self::Bytes {
            bytes: a.bytes,
            slope: b.bytes.signed_difference(a.bytes),
        };
        let (Some(a), Some(b)) = (a.layout, b.layout) else {
            return bytes;
        };
        let (layout, grown) = (&few.layouts[a.0 as usize], &more.layouts[b.0 as usize]);
        match slopes(layout, grown) {
            Some(slopes) => Self::Shapes {
                layout: layout.clone(),
                slopes,
            },
            None => bytes,
        }
    }

    /// The size with `further` samples more.
    fn bytes(&self, further: i128, rule: &LayoutRule) -> Bytes {
        match self {
            Self::Shapes { layout, slopes } => {
                let mut layout = layout.clone();
                for (tensor, slopes) in layout.0.iter_mut().zip(slopes) {
                    for (dimension, slope) in tensor.shape.iter_mut().zip(slopes) {
                        let grown = *dimension as i128 + i128::from(*slope) * further;
                        *dimension = grown.max(0) as usize;
                    }
                }
                rule.bytes(&layout, any_service())
            }
            Self::Bytes { bytes, slope } => {
                let bytes = i128::from(bytes.0) + i128::from(*slope) * further;
                // As many of these as there are buffers can still be added up.
                Bytes(bytes.clamp(0, i128::from(u64::MAX >> 24)) as u64)
            }
        }
    }
}

/// What each dimension has more in `grown`, if that is of as many tensors of the same kind.
fn slopes(layout: &Layout, grown: &Layout) -> Option<Vec<Vec<i64>>> {
    let same = |a: &TensorLayout, b: &TensorLayout| {
        (a.shape.len(), a.element_bytes, a.pitched) == (b.shape.len(), b.element_bytes, b.pitched)
    };
    let tensors = || layout.0.iter().zip(&grown.0);
    let all_same = layout.0.len() == grown.0.len() && tensors().all(|(a, b)| same(a, b));
    all_same.then(|| {
        let slopes = tensors().map(|(a, b)| {
            let dimensions = a.shape.iter().zip(&b.shape);
            dimensions.map(|(a, b)| *b as i64 - *a as i64).collect()
        });
        slopes.collect()
    })
}

impl Scaling {
    /// From the recordings of the same step with `batch` samples and with one more, both on
    /// cards like `spec`; none if they do not match.
    pub fn between(
        batch: u64,
        recording: Recording,
        more: &Recording,
        spec: &CardSpec,
    ) -> Option<Self> {
        if !match_call_by_call(&recording, more) {
            return None;
        }
        let mut growths: IndexSet<Growth> = IndexSet::new();
        let mut grown = own_buffers(more);
        let mut growth = |buffer: &Buffer| match buffer.metadata {
            true => Growth::none(buffer.bytes),
            false => {
                let (_, grown) = grown
                    .next()
                    .expect("as many as in a recording that matches");
                Growth::between(&recording, buffer, more, grown)
            }
        };
        let buffers = recording.buffers.iter();
        let growth_of = buffers
            .map(|buffer| growths.insert_full(growth(buffer)).0)
            .collect();
        Some(Self {
            recording,
            batch,
            card: spec.clone(),
            rule: LayoutRule::new(spec),
            growths: growths.into_iter().collect(),
            growth_of,
            one: OnceLock::new(),
        })
    }

    /// Whether `recording`, of a step with `batch` samples that ran to its end, is what this
    /// says that it is: the same calls, and each buffer of the same size.
    pub fn foretells(&self, batch: u64, recording: &Recording) -> bool {
        let sizes = self.sizes(batch);
        let mut buffers = own_buffers(&self.recording).zip(own_buffers(recording));
        match_call_by_call(&self.recording, recording)
            && buffers
                .all(|((foretold, _), (_, buffer))| sizes[foretold.0 as usize] == buffer.bytes)
    }

    /// What each buffer takes with `batch` samples, by [`BufferId`].
    fn sizes(&self, batch: u64) -> Vec<Bytes> {
        let further = i128::from(batch) - i128::from(self.batch);
        let growths = self.growths.iter();
        let grown: Vec<_> = growths
            .map(|growth| growth.bytes(further, &self.rule))
            .collect();
        let growths = self.growth_of.iter();
        growths.map(|growth| grown[*growth]).collect()
    }

    /// The calls of the step with `batch` samples, and what each buffer takes, by [`BufferId`].
    fn step(&self, program: &impl Program, batch: u64) -> (&Recording, Vec<Bytes>) {
        let one = (batch == 1).then(|| self.one(program)).flatten();
        match one {
            Some(one) => (one, one.buffers.iter().map(|buffer| buffer.bytes).collect()),
            None => (&self.recording, self.sizes(batch)),
        }
    }

    /// The step with one sample, which `program` runs: what is wide in the batch may be left out
    /// of it, so that it is not what two samples foretell.
    fn one(&self, program: &impl Program) -> Option<&Recording> {
        let run = || {
            let run = program
                .accepts(1)
                .then(|| program.simulate(1, self.card.clone()));
            Some(run?.ok()?.recording)
        };
        self.one.get_or_init(run).as_ref()
    }

    /// The most bytes in use at once with `batch` samples.
    fn peak(&self, batch: u64) -> u64 {
        let sizes = self.sizes(batch);
        let mut live = 0u64;
        let mut peak = 0;
        for event in &self.recording.events {
            match event {
                Event::Allocate(buffer) => live += sizes[buffer.0 as usize].0,
                Event::Free(buffer) => live -= sizes[buffer.0 as usize].0,
                _ => {}
            }
            peak = peak.max(live);
        }
        peak
    }

    /// The largest batch whose buffers alone are no more than a card like `spec` has; that is
    /// counted quickly, and the pools need a few per cent more.
    fn bound(&self, spec: &CardSpec) -> u64 {
        let available = spec.available().map_or(u64::MAX, |bytes| bytes.0);
        between(0, MOST, |batch| self.peak(batch) <= available)
    }

    /// The largest batch among those that `program` accepts that completes on a card like `spec`,
    /// which has a memory, and the next, as far as the recordings tell: their calls are made again
    /// of such a card. That is as true as that these are the calls with so many samples; see
    /// [`foretells`](Self::foretells).
    ///
    /// The search takes fewer replays if it is told the [share](Self::share) of another card.
    pub fn foretold(
        &self,
        program: &impl Program,
        spec: &CardSpec,
        share: Option<f64>,
    ) -> Foretold {
        let accepts = |batch| program.accepts(batch);
        let bound = self.bound(spec);
        let (start, reach) = match share {
            Some(share) => ((bound as f64 * share).round() as u64, 1),
            None => (bound - bound / 32, bound / 32),
        };
        let failures: RefCell<HashMap<u64, Option<Failure>>> = RefCell::default();
        let fits = |batch| {
            let mut failures = failures.borrow_mut();
            let failure = failures.entry(batch);
            let failure = failure.or_insert_with(|| self.outcome(program, batch, spec).failure);
            failure.is_none()
        };
        let above = bound + 1;
        let near = |start, reach| {
            let fits = |batch| Ok::<_, Infallible>(fits(batch));
            let Ok(found) = gallop(start, reach, above, accepts, fits);
            found
        };
        let larger = |than| {
            let mut candidates = evenly(than + 1, above, LOOKS);
            candidates.find(|batch| accepts(*batch) && fits(*batch))
        };
        // From above: what is too large is refused early, and costs less than what fits.
        let (mut batch, mut next) = match larger(start) {
            Some(larger) => near(larger, apart(start + 1, above, LOOKS)),
            None => near(start, reach.max(1)),
        };
        // There can be several such places: with another batch the pools have pages of another
        // size.
        while let Some(larger) = larger(next) {
            (batch, next) = near(larger, 1);
        }
        Foretold {
            batch,
            next,
            failure: failures.borrow().get(&next).copied().flatten(),
        }
    }

    /// Whether so few samples are known from a recording: as many as were recorded or more, and one,
    /// which `program` runs for it.
    pub fn knows(&self, program: &impl Program, batch: u64) -> bool {
        batch >= self.batch || batch == 1 && self.one(program).is_some()
    }

    /// `batch` as a share of the largest whose buffers alone fit on a card like `spec`: the
    /// rest is lost to its pools.
    pub fn share(&self, batch: u64, spec: &CardSpec) -> Option<f64> {
        let bound = self.bound(spec);
        (bound > 0).then(|| batch as f64 / bound as f64)
    }

    /// What a card like `spec` refuses of the batch that is foretold not to fit.
    pub fn refused(
        &self,
        program: &impl Program,
        foretold: &Foretold,
        spec: &CardSpec,
    ) -> Option<OutOfMemory> {
        let replayed = || self.outcome(program, foretold.next, spec).failure;
        let failure = foretold.failure.or_else(replayed)?;
        let recording = self.until(program, foretold.next, failure);
        Some(Analysis::of(&recording).out_of_memory(&recording, &failure))
    }

    /// The recording of a step with `batch` samples that ends in the phase of `failure`.
    fn until(&self, program: &impl Program, batch: u64, failure: Failure) -> Recording {
        let (recording, sizes) = self.step(program, batch);
        let mut recording = recording.clone();
        for (buffer, bytes) in recording.buffers.iter_mut().zip(sizes) {
            buffer.bytes = bytes;
        }
        recording.failure = Some(failure);
        recording.cut_at_failure();
        recording
    }

    /// What the step with `batch` samples meets on a card like `spec`.
    fn outcome(&self, program: &impl Program, batch: u64, spec: &CardSpec) -> Outcome {
        let (recording, sizes) = self.step(program, batch);
        replay(spec, recording, |buffer| sizes[buffer.0 as usize])
    }
}

/// Whether two recordings are of the same calls of the program, whatever the sizes. What a
/// runtime keeps for itself is left out: it is given up where the card is full, and made again.
fn match_call_by_call(a: &Recording, b: &Recording) -> bool {
    let (number_a, number_b) = (numbers(a), numbers(b));
    let same_buffer = |x: &BufferId, y: &BufferId| number_a[x.0 as usize] == number_b[y.0 as usize];
    let same_buffers = |x: &[BufferId], y: &[BufferId]| {
        x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same_buffer(x, y))
    };
    let same = |x: &Event, y: &Event| match (x, y) {
        (Event::Launch(x), Event::Launch(y)) => {
            same_buffers(a.writes(x), b.writes(y)) && same_buffers(a.reads(x), b.reads(y))
        }
        (Event::Allocate(x), Event::Allocate(y)) | (Event::Free(x), Event::Free(y)) => {
            same_buffer(x, y)
        }
        (Event::Stream(_), Event::Stream(_)) | (Event::Read(_), Event::Read(_)) => true,
        (x, y) => x == y,
    };
    let mut others = calls(b);
    calls(a).all(|x| others.next().is_some_and(|y| same(x, y))) && others.next().is_none()
}

/// The events that are the program's.
fn calls(recording: &Recording) -> impl Iterator<Item = &Event> {
    recording.events.iter().filter(|event| match event {
        Event::Allocate(buffer) | Event::Free(buffer) => !recording.buffer(*buffer).metadata,
        _ => true,
    })
}

/// The buffers that are the program's, in the order of birth.
fn own_buffers(recording: &Recording) -> impl Iterator<Item = (BufferId, &Buffer)> {
    let buffers = recording.buffers.iter().enumerate();
    let buffers = buffers.map(|(id, buffer)| (BufferId(id as u32), buffer));
    buffers.filter(|(_, buffer)| !buffer.metadata)
}

/// By [`BufferId`]: the how manieth of the program's own it is; none of a runtime's.
fn numbers(recording: &Recording) -> Vec<Option<usize>> {
    let mut numbers = vec![None; recording.buffers.len()];
    for (number, (buffer, _)) in own_buffers(recording).enumerate() {
        numbers[buffer.0 as usize] = Some(number);
    }
    numbers
}

/// Beyond this many samples a step is not tried: the indices of its tensors would not fit
/// into the 32 bits with which most kernels count.
const MOST: u64 = 1 << 31;

/// The largest batch of `program` that fits on a card like `spec`, which has a memory, and what
/// it takes.
///
/// # Errors
///
/// The step itself failed.
pub fn largest_batch(
    program: &impl Program,
    scaling: Option<&Scaling>,
    spec: &CardSpec,
) -> Result<LargestBatch, Error> {
    let fit = largest_fit(program, scaling, spec)?;
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

/// The largest batch of `program` that fits on a card like `spec`, which has a memory.
///
/// `scaling` proposes an answer in no time; that its batch fits and that the next does not is
/// then found by running both steps on such a card.
///
/// # Errors
///
/// The step itself failed.
pub fn largest_fit(
    program: &impl Program,
    scaling: Option<&Scaling>,
    spec: &CardSpec,
) -> Result<LargestFit, Error> {
    let proposed = scaling.map_or(0, |scaling| scaling.foretold(program, spec, None).batch);
    largest_fit_near(program, proposed, spec)
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

/// A number that `fits`, or 0, and the next among those below `high` that `accepts`, which does
/// not fit; `high` itself is taken not to. Looked for from `start` on, outwards, first by `reach`.
fn gallop<E>(
    start: u64,
    mut reach: u64,
    high: u64,
    accepts: impl Fn(u64) -> bool,
    mut fits: impl FnMut(u64) -> Result<bool, E>,
) -> Result<(u64, u64), E> {
    let mut most = 0;
    let mut least = high;
    let mut wanted = start;
    while let Some(candidate) = nearest(wanted, most, least, &accepts) {
        match fits(candidate)? {
            true => most = candidate,
            false => least = candidate,
        }
        wanted = match (most > 0, least < high) {
            (true, false) => most.saturating_add(reach),
            (false, true) => least.saturating_sub(reach),
            _ => most + (least - most) / 2,
        };
        reach = reach.saturating_mul(2);
    }
    Ok((most, least))
}

/// The number between `low` and `high`, neither of which is meant, that is nearest to `wanted`
/// from below among those that `accepts`, or else from above.
fn nearest(wanted: u64, low: u64, high: u64, accepts: impl Fn(u64) -> bool) -> Option<u64> {
    if high - low < 2 {
        return None;
    }
    let wanted = wanted.clamp(low + 1, high - 1);
    let mut below = (low + 1..=wanted).rev();
    let mut above = wanted + 1..high;
    below
        .find(|batch| accepts(*batch))
        .or_else(|| above.find(|batch| accepts(*batch)))
}

/// At most so many larger batches are looked at, before a search and once one is found that fits
/// where the next does not: mostly that is all that there are.
const LOOKS: u64 = 8;

/// The numbers from `low` on and below `high`, the largest first; no more than `most` of them.
fn evenly(low: u64, high: u64, most: u64) -> impl Iterator<Item = u64> {
    (low..high).rev().step_by(apart(low, high, most) as usize)
}

/// How far apart no more than `most` numbers are, from `low` on and below `high`.
fn apart(low: u64, high: u64, most: u64) -> u64 {
    high.saturating_sub(low).div_ceil(most).max(1)
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
