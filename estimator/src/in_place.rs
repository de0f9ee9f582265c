//! What changes where burn does not overwrite an operand: buffers, and the metadata of launches.

use std::collections::{HashMap, HashSet};

use crate::Bytes;
use crate::record::{BufferId, Event, Metadata, Recording};
use crate::upstream::LAYOUT_COPIES;

/// The metadata that the launches of a run have had by the end of each phase.
#[derive(Clone, Debug, Default)]
pub struct LaunchMetadata(Vec<HashSet<Metadata>>);

impl LaunchMetadata {
    /// The metadata in `recording`.
    pub fn of(recording: &Recording) -> Self {
        let phases = recording
            .events
            .split(|event| matches!(event, Event::Mark(_)));
        let mut had = HashSet::new();
        let phases = phases.take(recording.marks.len()).map(|events| {
            had.extend(events.iter().filter_map(|event| match event {
                Event::Launch(launch) => {
                    let metadata = recording.launch(*launch).metadata?;
                    Some(recording.metadata[metadata.0 as usize])
                }
                _ => None,
            }));
            had.clone()
        });
        Self(phases.collect())
    }

    /// Adds what another run of the same phases had.
    pub fn add(&mut self, other: Self) {
        let missing = other.0.len().saturating_sub(self.0.len());
        self.0.extend(vec![HashSet::new(); missing]);
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            mine.extend(other);
        }
    }

    /// For each phase: how many of these `usual` did not have by its end, and their bytes. CubeCL keeps the metadata
    /// of a launch, so a launch with other operands than usual, once, leaves its metadata behind.
    pub fn beyond(&self, usual: &Self) -> Vec<(u64, Bytes)> {
        let phases = self.0.iter().zip(&usual.0);
        phases
            .map(|(more, usual)| {
                let extra = more.difference(usual);
                extra.fold((0, Bytes::ZERO), |(count, bytes), metadata| {
                    (count + 1, bytes + Bytes(u64::from(metadata.words) * 8))
                })
            })
            .collect()
    }
}

/// How many bytes less and more than usual can be in use at the end of each phase, where each tensor has the buffer
/// that it has in the recording `usual`, or the one that it has in `other`, of the same step, in which burn overwrites
/// other operands.
///
/// A result has the layout of the operand that it overwrites (that of a convolution's result, with the channels last) or
/// else one of its own, and CUDA pads the rows of each to another size. So what is in use depends on each
/// such operand alone.
///
/// Tensors of which only one run knows the launch that wrote them count together, as in either run.
pub fn less_and_more(usual: &Recording, other: &Recording) -> Vec<(Bytes, Bytes)> {
    let phases = written_buffers(usual)
        .into_iter()
        .zip(written_buffers(other));
    phases
        .map(|(usual, mut other)| {
            let (mut less, mut more) = (Bytes::ZERO, Bytes::ZERO);
            let mut only_usual = Bytes::ZERO;
            let mut add = |usual: Bytes, other: Bytes| {
                less += usual.saturating_sub(other);
                more += other.saturating_sub(usual);
            };
            for (written, bytes) in usual {
                match other.remove(&written) {
                    Some(other) => add(bytes, other),
                    None => only_usual += bytes,
                }
            }
            add(only_usual, other.into_values().sum());
            (less, more)
        })
        .collect()
}

/// What wrote to a buffer, in terms that do not depend on which operands were overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Written {
    /// The phase.
    phase: usize,
    /// The launches in that phase, without copies to another layout: what is not in the layout of an operand may
    /// need one more.
    launches: usize,
    /// The copies to another layout since the last of these launches.
    copies: usize,
    /// The position of the buffer among those that the launch wrote.
    position: usize,
}

/// The bytes of the buffers in use at the end of each phase to which a launch has written, by the last launch that did.
fn written_buffers(recording: &Recording) -> Vec<HashMap<Written, Bytes>> {
    let mut now = Written::default();
    let mut in_use: HashMap<BufferId, Written> = HashMap::new();
    let mut phases = Vec::new();
    for event in &recording.events {
        match event {
            Event::Launch(launch) => {
                match recording.kernel(*launch).contains(LAYOUT_COPIES) {
                    true => now.copies += 1,
                    false => (now.launches, now.copies) = (now.launches + 1, 0),
                }
                for (position, buffer) in recording.writes(*launch).iter().enumerate() {
                    in_use.insert(*buffer, Written { position, ..now });
                }
            }
            Event::Free(buffer) => drop(in_use.remove(buffer)),
            Event::Mark(_) => {
                let bytes = |buffer: &BufferId| recording.buffer(*buffer).bytes;
                let in_use = in_use.iter();
                phases.push(in_use.map(|(b, written)| (*written, bytes(b))).collect());
                now = Written {
                    phase: now.phase + 1,
                    ..Written::default()
                };
            }
            _ => {}
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use cubecl_environment::stream::StreamId;
    use simulated_card::Recorder;

    use super::*;
    use crate::Phase;
    use crate::record::{KernelId, Mark, Pools};

    fn metadata(phases: &[&[&[u64]]]) -> LaunchMetadata {
        let mut recorder = Recorder::default();
        for phase in phases {
            for words in *phase {
                recorder.launch(StreamId { value: 0 }, "kernel", words, &[], &[]);
            }
            recorder.recording.add_mark(Mark {
                phase: Phase::Forward,
                step: 0,
                roles: Vec::new(),
                pools: Pools::default(),
                peak_reserved: Bytes::ZERO,
            });
        }
        LaunchMetadata::of(&recorder.recording)
    }

    #[test]
    fn metadata_that_only_other_runs_have_is_more() {
        let usual = metadata(&[&[&[1], &[2, 2]], &[&[3]]]);
        // `[3]` is more at the end of the first phase only; `[4, 4]` from the second on.
        let mut others = metadata(&[&[&[1], &[3]], &[&[4, 4], &[4, 4]]]);
        assert_eq!(others.beyond(&usual), [(1, Bytes(8)), (1, Bytes(16))]);
        others.add(metadata(&[&[&[5]], &[&[4, 4]]]));
        assert_eq!(others.beyond(&usual), [(2, Bytes(16)), (2, Bytes(24))]);
        assert_eq!(usual.beyond(&usual), [(0, Bytes::ZERO); 2]);
    }

    /// A step in which the second launch overwrites a buffer of 10 bytes, or has one of its own of 20 bytes, which a
    /// copy to another layout follows; the result of the third launch has 5 bytes either way.
    fn step(overwrites: bool, phases: usize) -> Recording {
        let mut recording = Recording::default();
        recording
            .kernels
            .extend(["kernel".into(), LAYOUT_COPIES.into()]);
        for phase in 0..phases {
            let [operand, own, copy, last] =
                [10, 20, 10, 5].map(|bytes| recording.add_buffer(Bytes(bytes), false));
            let mut launch = |kernel, reads: &[_], writes: &[_]| {
                recording.add_launch(KernelId(kernel), None, reads, writes);
            };
            launch(0, &[], &[operand]);
            match overwrites {
                true => launch(0, &[operand], &[operand]),
                false => {
                    launch(0, &[operand], &[own]);
                    launch(1, &[own], &[copy]);
                }
            }
            launch(0, &[], &[last]);
            if !overwrites {
                recording.events.extend([operand, copy].map(Event::Free));
            }
            recording.events.push(Event::Mark(phase as u32));
        }
        recording
    }

    #[test]
    fn each_tensor_has_the_buffer_of_either_run() {
        let (usual, other) = (step(true, 2), step(false, 2));
        let more = [Bytes(10), Bytes(20)].map(|more| (Bytes::ZERO, more));
        let less = more.map(|(less, more)| (more, less));
        assert_eq!(less_and_more(&usual, &other), more);
        assert_eq!(less_and_more(&other, &usual), less);
        assert_eq!(
            less_and_more(&usual, &usual),
            [(Bytes::ZERO, Bytes::ZERO); 2]
        );
    }

    #[test]
    fn tensors_that_only_one_run_knows_count_together() {
        let mut other = step(false, 1);
        // Two launches at the begin of the phase give other numbers to all that follow.
        let before = other.add_buffer(Bytes(7), false);
        for _ in 0..2 {
            other.add_launch(KernelId(0), None, &[], &[before]);
        }
        other.events.push(Event::Free(before));
        other.events.rotate_right(3);
        assert_eq!(
            less_and_more(&step(true, 1), &other),
            [(Bytes::ZERO, Bytes(10))]
        );
    }
}
