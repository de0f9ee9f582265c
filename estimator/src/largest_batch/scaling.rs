//! How the buffers of a step grow with the batch.

use indexmap::IndexSet;
use simulated_card::LayoutRule;

use super::search::{MAX_BATCH, between};
use crate::analysis::Timeline;
use crate::card::{DeviceSpec, any_service};
use crate::job::Program;
use crate::record::{Buffer, BufferId, Event, Layout, Recording, TensorLayout};
use crate::{Bytes, Error};

/// The sizes of a step's buffers as a function of the batch, where the steps of two batches
/// match call by call.
#[derive(Debug)]
pub struct Scaling {
    recording: Recording,
    batch: u64,
    /// By how many samples the other recording was larger.
    stride: u64,
    rule: LayoutRule,
    growths: Vec<Growth>,
    /// By [`BufferId`]: an index into `growths`.
    growth_of: Vec<usize>,
}

/// How the size of a buffer follows from the batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

/// The batch of the first recording. One sample is often special: a step may leave out buffers that grow with
/// the batch.
const FEW: u64 = 2;

/// Some kernels depend on the power of two that divides the number of samples. Two batches that are odd multiples
/// of this one make the same calls where neighbors do not: seen of DCGAN with 6680, 6696, 7336 and 7352 samples.
const POWER: u64 = 8;

impl Scaling {
    /// Learns how `program` grows with the batch on cards with the kernels of `card`; `None` if it does not
    /// grow evenly.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub fn of(program: &impl Program, card: &DeviceSpec) -> Result<Option<Self>, Error> {
        let Some((few, more)) = few(program, card)? else {
            return Ok(None);
        };
        let near = near_limit(&few, &more, card);
        let unlimited = card.without_limit();
        if let Some(scaling) = Self::between((FEW, few), (FEW + 1, &more), &unlimited) {
            return Ok(Some(scaling));
        }
        // With so few samples burn may choose other kernels than for a full card.
        match near > FEW + 1 {
            true => Self::near(program, near, &unlimited),
            false => Ok(None),
        }
    }

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
        let recording =
            |batch| Ok::<_, Error>(program.simulate(batch, unlimited.clone())?.recording);
        let grown = recording(more)?;
        Ok(Self::between(
            (few, recording(few)?),
            (more, &grown),
            unlimited,
        ))
    }

    /// Learns from the same batches on cards like `unlimited`, which may have another queue lag; `None` if they do
    /// not match there.
    ///
    /// # Errors
    ///
    /// The step itself failed.
    pub(super) fn learn_on(
        &self,
        program: &impl Program,
        unlimited: &DeviceSpec,
    ) -> Result<Option<Self>, Error> {
        Self::of_both(program, self.batch, self.batch + self.stride, unlimited)
    }

    /// Learns from the recordings of the same step with two numbers of samples, the smaller first, both on cards
    /// like `spec`; `None` if they do not match.
    pub fn between(
        (batch, recording): (u64, Recording),
        (larger, more): (u64, &Recording),
        spec: &DeviceSpec,
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
            stride: larger - batch,
            rule: LayoutRule::new(spec),
            growths: growths.into_iter().collect(),
            growth_of,
        })
    }

    /// Whether `recording`, of a completed step with `batch` samples, is as predicted: the same calls, and
    /// each buffer of the same size.
    pub fn matches(&self, batch: u64, recording: &Recording) -> bool {
        let sizes = self.sizes(batch);
        let mut buffers = own_buffers(&self.recording).zip(own_buffers(recording));
        match_call_by_call(&self.recording, recording)
            && buffers
                .all(|((predicted, _), (_, buffer))| sizes[predicted.0 as usize] == buffer.bytes)
    }

    /// The size of each buffer with `batch` samples, by [`BufferId`].
    fn sizes(&self, batch: u64) -> Vec<Bytes> {
        let further = i128::from(batch) - i128::from(self.batch);
        let growths = self.growths.iter();
        let grown: Vec<_> = growths
            .map(|growth| growth.bytes(further, self.stride, &self.rule))
            .collect();
        let growths = self.growth_of.iter();
        growths.map(|growth| grown[*growth]).collect()
    }

    /// The smallest recorded batch.
    pub(super) fn recorded(&self) -> u64 {
        self.batch
    }

    /// The calls of the step, and the size of each buffer with `batch` samples, by [`BufferId`].
    pub(super) fn step(&self, batch: u64) -> (&Recording, Vec<Bytes>) {
        (&self.recording, self.sizes(batch))
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

    /// The largest batch whose buffers alone fit on a card like `spec`. It is quick to compute; the pools
    /// need a few per cent more.
    pub(super) fn bound(&self, spec: &DeviceSpec) -> u64 {
        let available = spec.available().map_or(u64::MAX, |bytes| bytes.0);
        between(0, MAX_BATCH, |batch| self.peak(batch) <= available)
    }

    /// `batch` as a share of the largest batch whose buffers alone fit on a card like `spec`: the pools take
    /// the rest.
    pub fn share(&self, batch: u64, spec: &DeviceSpec) -> Option<f64> {
        let bound = self.bound(spec);
        (bound > 0).then(|| batch as f64 / bound as f64)
    }
}

/// The recordings of `program` with [`FEW`] samples and with one more, on a card like `card` with unlimited
/// memory; `None` if the program does not accept so few.
fn few(program: &impl Program, card: &DeviceSpec) -> Result<Option<(Recording, Recording)>, Error> {
    if !program.accepts(FEW) || !program.accepts(FEW + 1) {
        return Ok(None);
    }
    let recording =
        |batch| Ok::<_, Error>(program.simulate(batch, card.without_limit())?.recording);
    Ok(Some((recording(FEW)?, recording(FEW + 1)?)))
}

/// A batch somewhat below the largest on `card`, if each sample takes as many bytes as between `few` and `more`.
fn near_limit(few: &Recording, more: &Recording, card: &DeviceSpec) -> u64 {
    let [least, next] = [few, more].map(|recording| Timeline::of(recording).most());
    let sample = next.0.saturating_sub(least.0).max(1);
    let room = card.available().unwrap_or_default().saturating_sub(least);
    let most = (FEW + room.0 / sample).min(MAX_BATCH);
    most - most / 32
}

/// A batch somewhat below the largest of `program` on `card`, if each sample takes as many bytes as in a small
/// batch; 0 if the program does not accept such batches.
///
/// # Errors
///
/// The step itself failed.
pub(super) fn rough_batch(program: &impl Program, card: &DeviceSpec) -> Result<u64, Error> {
    let few = few(program, card)?;
    Ok(few.map_or(0, |(few, more)| near_limit(&few, &more, card)))
}

/// Whether two recordings have the same calls of the program, whatever the sizes. Buffers that a runtime
/// keeps for itself do not count, since it drops them on a full card and allocates them again.
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

/// The events of the program, without those of the runtime's own buffers.
fn calls(recording: &Recording) -> impl Iterator<Item = &Event> {
    recording.events.iter().filter(|event| match event {
        Event::Allocate(buffer) | Event::Free(buffer) => !recording.buffer(*buffer).metadata,
        _ => true,
    })
}

/// The buffers of the program, in the order of birth.
fn own_buffers(recording: &Recording) -> impl Iterator<Item = (BufferId, &Buffer)> {
    let buffers = recording.buffers.iter().enumerate();
    let buffers = buffers.map(|(id, buffer)| (BufferId(id as u32), buffer));
    buffers.filter(|(_, buffer)| !buffer.metadata)
}

/// By [`BufferId`]: the index among the program's buffers; `None` for a buffer of the runtime.
fn numbers(recording: &Recording) -> Vec<Option<usize>> {
    let mut numbers = vec![None; recording.buffers.len()];
    for (number, (buffer, _)) in own_buffers(recording).enumerate() {
        numbers[buffer.0 as usize] = Some(number);
    }
    numbers
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
