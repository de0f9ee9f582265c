//! How the buffers of a step grow with the batch.

use indexmap::IndexSet;
use recording::{Buffer, Bytes, Event, Layout, Recording, TensorLayout};
use serde::{Deserialize, Serialize};
use simulated_card::LayoutRule;

use super::agreement::{Agreement, own_buffers};
use super::gallop::{MAX_BATCH, between};
use crate::Error;
use crate::card::{DeviceSpec, any_service};
use crate::job::Program;

/// The sizes of a step's buffers as a function of the batch, where the steps of two batches
/// make the same calls.
#[derive(Debug, Serialize, Deserialize)]
pub struct Scaling {
    recording: Recording,
    batch: u64,
    agreement: Agreement,
    /// By how many samples the other recording was larger.
    stride: u64,
    /// The device of both recordings, by whose rule buffers are laid out.
    device: DeviceSpec,
    growths: Vec<Growth>,
    /// By [`BufferId`](recording::BufferId): an index into `growths`.
    growth_of: Vec<usize>,
}

/// How the size of a buffer follows from the batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Growth {
    /// The dimensions of its tensors grow; the runtime's own layout rule computes the bytes.
    Shapes {
        layout: Layout,
        /// What each stride of samples adds to each dimension, tensor by tensor.
        slopes: Vec<Vec<i64>>,
    },
    /// Only the size is known: bytes, and what each stride of samples adds.
    Bytes { bytes: Bytes, slope: i64 },
}

impl Growth {
    /// The growth of a buffer with the same size at every batch.
    fn none(bytes: Bytes) -> Self {
        Self::Bytes { bytes, slope: 0 }
    }

    /// The growth of buffer `a` of the recording `few`, which is buffer `b` of `more`, a recording with more
    /// samples.
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

    /// The size with `further` additional samples, if `slopes` are for `stride` of them.
    fn bytes(&self, further: i128, stride: u64, rule: &LayoutRule) -> Bytes {
        let grown = |from: i128, slope: i64| {
            let grown = from + (i128::from(slope) * further).div_euclid(stride.into());
            grown.max(0)
        };
        match self {
            Self::Shapes { layout, slopes } => {
                let mut layout = layout.clone();
                for (tensor, slopes) in layout.0.iter_mut().zip(slopes) {
                    for (dimension, slope) in tensor.shape.iter_mut().zip(slopes) {
                        *dimension = grown(*dimension as i128, *slope) as usize;
                    }
                }
                rule.bytes(&layout, any_service())
            }
            Self::Bytes { bytes, slope } => {
                // The sum over all buffers must not overflow.
                Bytes(grown(bytes.0.into(), *slope).min(i128::from(u64::MAX >> 24)) as u64)
            }
        }
    }
}

/// By how much each dimension is larger in `grown`; `None` if the tensors differ in number or kind.
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

/// Some kernels depend on the power of two that divides the number of samples. Two batches that are odd multiples
/// of this one make the same calls where neighbors do not: seen of DCGAN with 6680, 6696, 7336 and 7352 samples.
const POWER: u64 = 8;

impl Scaling {
    /// Learns how `program` grows with the batch from two batches near `batch`, on cards like `unlimited`; `None`
    /// if no two match: neighbors, or odd multiples of eight, since a kernel may depend on what divides the batch.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub(super) fn near(
        program: &impl Program,
        batch: u64,
        unlimited: &DeviceSpec,
    ) -> Result<Option<Self>, Error> {
        let neighbors = (batch, batch + 1);
        let multiples = (batch / POWER >= 8).then(|| {
            let odd = (batch / POWER - 1) | 1;
            (odd * POWER, (odd + 2) * POWER)
        });
        for (few, more) in [Some(neighbors), multiples].into_iter().flatten() {
            if program.accepts(few) && program.accepts(more) {
                let scaling = Self::of_both(program, few, more, unlimited)?;
                if scaling.is_some() {
                    return Ok(scaling);
                }
            }
        }
        Ok(None)
    }

    /// Learns how `program` grows from the batch `few` to the batch `more`, on cards like `unlimited`; `None` if
    /// the two do not match.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    fn of_both(
        program: &impl Program,
        few: u64,
        more: u64,
        unlimited: &DeviceSpec,
    ) -> Result<Option<Self>, Error> {
        let sketch = |batch| program.sketch(batch, unlimited.clone());
        let (recorded, grown) = (sketch(few)?, sketch(more)?);
        Ok(Self::between((few, recorded), (more, &grown), unlimited))
    }

    /// Learns from the recordings of the same step with two numbers of samples, the smaller first, both on cards
    /// like `spec`; `None` if they do not match, or if the card refused an allocation in one of them, so that it has not all calls.
    pub fn between(
        (batch, recording): (u64, Recording),
        (larger, more): (u64, &Recording),
        spec: &DeviceSpec,
    ) -> Option<Self> {
        if recording.failure.is_some() || more.failure.is_some() {
            return None;
        }
        let agreement = Agreement::between(&recording, more)?;
        let mut growths: IndexSet<Growth> = IndexSet::new();
        let mut grown = own_buffers(more);
        let mut growth = |buffer: &Buffer| match buffer.metadata {
            true => Some(Growth::none(buffer.bytes)),
            false => Some(Growth::between(&recording, buffer, more, grown.next()?.1)),
        };
        let buffers = recording.buffers.iter();
        let growth_of: Option<_> = buffers
            .map(|buffer| Some(growths.insert_full(growth(buffer)?).0))
            .collect();
        let growth_of = growth_of?;
        Some(Self {
            recording,
            batch,
            agreement,
            stride: larger - batch,
            device: spec.clone(),
            growths: growths.into_iter().collect(),
            growth_of,
        })
    }

    /// Whether `recording`, of a completed step with `batch` samples, is as predicted: the same calls in the same
    /// order, which the two recorded batches had too, and each buffer of the same size.
    pub fn matches(&self, batch: u64, recording: &Recording) -> bool {
        let sizes = self.sizes(batch);
        let mut buffers = own_buffers(&self.recording).zip(own_buffers(recording));
        self.agreement == Agreement::Exact
            && Agreement::between(&self.recording, recording) == Some(Agreement::Exact)
            && buffers
                .all(|((predicted, _), (_, buffer))| sizes[predicted.0 as usize] == buffer.bytes)
    }

    /// The size of each buffer with `batch` samples, by [`BufferId`](recording::BufferId).
    fn sizes(&self, batch: u64) -> Vec<Bytes> {
        let further = i128::from(batch) - i128::from(self.batch);
        let rule = LayoutRule::new(&self.device);
        let growths = self.growths.iter();
        let grown: Vec<_> = growths
            .map(|growth| growth.bytes(further, self.stride, &rule))
            .collect();
        let growths = self.growth_of.iter();
        growths.map(|growth| grown[*growth]).collect()
    }

    /// The smallest recorded batch.
    pub(super) fn recorded(&self) -> u64 {
        self.batch
    }

    /// The calls of the step, and the size of each buffer with `batch` samples, by [`BufferId`](recording::BufferId).
    pub(super) fn step(&self, batch: u64) -> (&Recording, Vec<Bytes>) {
        (&self.recording, self.sizes(batch))
    }

    /// By how many bytes more are in use at once with `batch` samples than with one less.
    pub(super) fn sample(&self, batch: u64) -> u64 {
        let before = self.peak(batch.saturating_sub(1));
        self.peak(batch).saturating_sub(before)
    }

    /// The most bytes in use at once with `batch` samples.
    pub(super) fn peak(&self, batch: u64) -> u64 {
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

    /// The largest batch whose buffers alone fit on a card like `spec`. It is quick to compute; the pools
    /// need a few per cent more.
    pub(super) fn bound(&self, spec: &DeviceSpec) -> u64 {
        let available = spec.available().map_or(u64::MAX, |bytes| bytes.0);
        between(0, MAX_BATCH, |batch| self.peak(batch) <= available)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;

    fn tensor(shape: &[usize]) -> TensorLayout {
        TensorLayout {
            shape: shape.to_vec(),
            element_bytes: 4,
            pitched: true,
        }
    }

    /// Rows of 1000 floats take 4000 bytes, which CUDA pads to 4096 (`cuMemAllocPitch`, 512-byte
    /// alignment): sizes follow from shapes, and not from a straight line through bytes.
    #[test]
    fn a_buffer_grows_as_its_shapes_do() {
        let rule = LayoutRule::new(&DeviceSpec::unlimited(Runtime::Cuda));
        let [two, three] = [2, 3].map(|batch| Layout(vec![tensor(&[batch, 8, 1000])]));
        let growth = Growth::Shapes {
            slopes: slopes(&two, &three).unwrap(),
            layout: two,
        };
        for further in [0, 1, 98] {
            let batch = 2 + further as u64;
            assert_eq!(growth.bytes(further, 1, &rule), Bytes(batch * 8 * 4096));
        }
    }

    #[test]
    fn other_tensors_do_not_grow_into_each_other() {
        let pair = Layout(vec![tensor(&[2, 4]), tensor(&[2])]);
        let one = Layout(vec![tensor(&[3, 4])]);
        assert_eq!(slopes(&pair, &one), None);
        let other_rank = Layout(vec![tensor(&[3]), tensor(&[2])]);
        assert_eq!(slopes(&pair, &other_rank), None);
    }

    #[test]
    fn what_is_only_known_in_bytes_grows_along_a_line() {
        let rule = LayoutRule::new(&DeviceSpec::unlimited(Runtime::Cuda));
        let growth = Growth::Bytes {
            bytes: Bytes(100),
            slope: -30,
        };
        assert_eq!(growth.bytes(2, 1, &rule), Bytes(40));
        assert_eq!(growth.bytes(9, 1, &rule), Bytes::ZERO);
        assert_eq!(growth.bytes(2, 3, &rule), Bytes(80));
    }
}
