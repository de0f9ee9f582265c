//! The trace at any batch, from two: the size of each block is affine in the batch. A program that does something else from some
//! batch on, or whose kernels keep partial results up to a limit, takes two more there.

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

impl Pair {
    /// The bytes of a block at `batch`. One that shrinks with the batch can be empty at a large one.
    fn bytes(&self, block: usize, batch: u64) -> u64 {
        let samples = (batch as i64).saturating_sub(self.batch as i64);
        let more = self.slopes[block].saturating_mul(samples);
        self.first.blocks[block].bytes.saturating_add_signed(more)
    }

    /// The trace at `batch`.
    fn at(&self, batch: u64) -> Trace {
        let mut trace = self.first.clone();
        for (index, block) in trace.blocks.iter_mut().enumerate() {
            block.bytes = self.bytes(index, batch);
        }
        trace
    }

    /// The same calls at `batch`, from which on some blocks grow otherwise; none if there is no such block.
    pub(crate) fn bent(&self, batch: u64, bends: Vec<Bend>) -> Option<Self> {
        let mut bent = Self {
            batch,
            first: self.at(batch),
            slopes: self.slopes.clone(),
        };
        for (block, bytes, slope) in bends {
            bent.first.blocks.get_mut(block)?.bytes = bytes;
            *bent.slopes.get_mut(block)? = slope;
        }
        Some(bent)
    }

    /// The blocks that grow otherwise from `other` on; none if its calls are others.
    pub(crate) fn bends(&self, other: &Self) -> Option<Vec<Bend>> {
        let grown = self.at(other.batch);
        let blocks = grown.blocks.len().min(other.first.blocks.len());
        let bends: Vec<Bend> = (0..blocks)
            .filter(|block| {
                grown.blocks[*block].bytes != other.first.blocks[*block].bytes
                    || self.slopes[*block] != other.slopes[*block]
            })
            .map(|block| {
                let bytes = other.first.blocks[block].bytes;
                (block, bytes, other.slopes[block])
            })
            .collect();
        let bent = self.bent(other.batch, bends.clone())?;
        (bent.first == other.first).then_some(bends)
    }
}

/// A block, its bytes at a batch, and what one more sample adds from there on.
pub(crate) type Bend = (usize, u64, i64);

/// The bytes of a block at `batch`, which is between those of two pairs with the same calls: if its size bends once, the smaller or the
/// larger of what both say; else what the nearer one says.
fn between(below: &Pair, above: &Pair, block: usize, batch: u64) -> u64 {
    let [low, high] = [below, above].map(|pair| pair.bytes(block, batch));
    let at = |batch| [below, above].map(|pair| pair.bytes(block, batch));
    let ([own_below, other_below], [other_above, own_above]) = (at(below.batch), at(above.batch));
    match (other_below >= own_below, other_above >= own_above) {
        (true, true) => low.min(high),
        (false, false) => low.max(high),
        _ if is_nearer(below, above, batch) => high,
        _ => low,
    }
}

/// Whether `batch` is fewer times as small as that of `above` than it is times as large as that of `below`.
fn is_nearer(below: &Pair, above: &Pair, batch: u64) -> bool {
    let square = u128::from(batch) * u128::from(batch);
    square > u128::from(below.batch) * u128::from(above.batch)
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

    /// The trace at `batch`, as the pair says whose batch is the fewest times as large or as small. Between two pairs that make the
    /// same calls, both say the size of a block: most that do not grow evenly grow up to a limit, or from one on.
    pub fn at(&self, batch: u64) -> Trace {
        let after = self.pairs.partition_point(|pair| pair.batch <= batch);
        let (until, from) = self.pairs.split_at(after);
        let below = until.last().or(from.first());
        let below = below.expect("there is at least one pair");
        let above = from.first().unwrap_or(below);
        let is_above_nearer = is_nearer(below, above, batch);
        let nearest = if is_above_nearer { above } else { below };
        let mut trace = nearest.at(batch);
        if below.first.events == above.first.events {
            for (index, block) in trace.blocks.iter_mut().enumerate() {
                block.bytes = between(below, above, index, batch);
            }
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
