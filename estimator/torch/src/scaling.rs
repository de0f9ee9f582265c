//! The trace at any batch, from two: the size of each block is affine in the batch. A program that does something else from some
//! batch on takes two more there.

use crate::trace::{BlockId, Event, Trace};

/// Pairs of traces of one program at two batches, which make the same calls.
#[derive(Clone, Debug)]
pub struct Scaling {
    /// By the batch; at least one.
    pairs: Vec<Pair>,
}

/// Two traces that make the same calls.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The batch of the first one.
    pub batch: u64,
    /// The first one.
    pub first: Trace,
    /// The bytes that one more sample adds to each block, by [`BlockId`].
    pub slopes: Vec<i64>,
}

/// Where two traces differ otherwise than by the batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Both traces are of one batch.
    #[error("both recordings are of batch {0}")]
    SameBatch(u64),
    /// They make other calls.
    #[error(
        "with batch {batch} the program does something else than with batch {first}, first {what}"
    )]
    OtherCalls {
        /// The batch of the first trace.
        first: u64,
        /// The batch of the other one.
        batch: u64,
        /// The first difference.
        what: String,
    },
    /// The size of a block does not grow by the same bytes for each sample.
    #[error("the memory of {operator} does not grow evenly with the batch")]
    NotAffine {
        /// The operator that allocates it.
        operator: String,
    },
}

impl Scaling {
    /// Compares a trace at `batch` with one at `other_batch`.
    ///
    /// # Errors
    ///
    /// They differ otherwise than by sizes that grow with the batch.
    pub fn new(
        batch: u64,
        first: Trace,
        other_batch: u64,
        other: &Trace,
    ) -> Result<Self, Mismatch> {
        if batch == other_batch {
            return Err(Mismatch::SameBatch(batch));
        }
        if let Some(what) = difference(&first, other) {
            return Err(Mismatch::OtherCalls {
                first: batch,
                batch: other_batch,
                what,
            });
        }
        let samples = other_batch as i64 - batch as i64;
        let slopes =
            first
                .blocks
                .iter()
                .zip(&other.blocks)
                .enumerate()
                .map(|(index, (one, other))| {
                    let more = other.bytes as i64 - one.bytes as i64;
                    match more % samples {
                        0 => Ok(more / samples),
                        _ => Err(Mismatch::NotAffine {
                            operator: operator(&first, BlockId(index as u32)),
                        }),
                    }
                });
        let slopes = slopes.collect::<Result<_, _>>()?;
        Ok(Self {
            pairs: vec![Pair {
                batch,
                first,
                slopes,
            }],
        })
    }

    /// From pairs; none if there is none, or if one has not as many slopes as blocks.
    pub fn known(mut pairs: Vec<Pair>) -> Option<Self> {
        let complete = |pair: &Pair| pair.slopes.len() == pair.first.blocks.len();
        pairs.sort_by_key(|pair| pair.batch);
        (!pairs.is_empty() && pairs.iter().all(complete)).then_some(Self { pairs })
    }

    /// The pairs, by the batch.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Adds what `other` knows of other batches.
    pub fn add(&mut self, other: Self) {
        self.pairs.extend(other.pairs);
        self.pairs.sort_by_key(|pair| pair.batch);
        self.pairs.dedup_by_key(|pair| pair.batch);
    }

    /// Whether more samples take more memory at all.
    pub fn grows(&self) -> bool {
        let mut slopes = self.pairs.iter().flat_map(|pair| &pair.slopes);
        slopes.any(|slope| *slope > 0)
    }

    /// The trace at `batch`, as the pair says whose batch is the fewest times as large or as small.
    pub fn at(&self, batch: u64) -> Trace {
        let times = |pair: &&Pair| {
            let (one, other) = (pair.batch.max(1) as f64, batch.max(1) as f64);
            (one / other).max(other / one)
        };
        let nearest = self
            .pairs
            .iter()
            .min_by(|a, b| times(a).total_cmp(&times(b)));
        let pair = nearest.expect("there is at least one");
        let mut trace = pair.first.clone();
        let samples = batch as i64 - pair.batch as i64;
        for (block, slope) in trace.blocks.iter_mut().zip(&pair.slopes) {
            // A block that shrinks with the batch can be empty at a large one.
            let more = slope.saturating_mul(samples);
            block.bytes = block.bytes.saturating_add_signed(more);
        }
        trace
    }

    /// Where `trace`, recorded at `batch`, differs from what the two traces predict; none if it does not.
    pub fn differs(&self, batch: u64, trace: &Trace) -> Option<String> {
        let predicted = self.at(batch);
        difference(&predicted, trace).or_else(|| {
            let mut sizes = predicted.blocks.iter().zip(&trace.blocks).enumerate();
            let (index, (predicted, recorded)) =
                sizes.find(|(_, (one, other))| one.bytes != other.bytes)?;
            Some(format!(
                "in {}, which takes {} bytes in place of {}",
                operator(trace, BlockId(index as u32)),
                recorded.bytes,
                predicted.bytes
            ))
        })
    }
}

fn operator(trace: &Trace, block: BlockId) -> String {
    let operator = trace.operator(block).unwrap_or("a call without a name");
    match trace.module_path(block) {
        Some(module) if !module.is_empty() => format!("{operator} of {module}"),
        _ => operator.into(),
    }
}

/// The first call in which the traces differ, but for sizes.
fn difference(one: &Trace, other: &Trace) -> Option<String> {
    let calls = one.events.iter().zip(other.events.iter());
    let differs = calls.enumerate().find(|(_, (a, b))| match (a, b) {
        (Event::Allocate(a), Event::Allocate(b)) => {
            a != b
                || one.operator(*a) != other.operator(*b)
                || one.block(*a).kind != other.block(*b).kind
        }
        _ => a != b,
    });
    let position = match differs {
        Some((position, _)) => position,
        None if one.events.len() == other.events.len() => return None,
        None => one.events.len().min(other.events.len()),
    };
    Some(format!(
        "{} in place of {}",
        describe(other, position),
        describe(one, position)
    ))
}

fn describe(trace: &Trace, position: usize) -> String {
    match trace.events.get(position) {
        Some(Event::Allocate(block)) => operator(trace, *block),
        Some(Event::Free(_)) => "a release".into(),
        Some(Event::EmptyCache) => "torch.cuda.empty_cache()".into(),
        Some(Event::ResetPeaks) => "torch.cuda.reset_peak_memory_stats()".into(),
        Some(Event::Phase(phase)) => format!("the {} phase", trace.phases[*phase as usize].phase),
        None => "the end".into(),
    }
}
