//! What changes where burn does not overwrite an operand: buffers, and the metadata of launches.

use std::collections::{HashMap, HashSet};

use crate::Bytes;
use crate::record::{Batch, BufferId, Event, Recording};

/// `recording` as it were if burn overwrote fewer operands: `is_overwritten` is asked for each that a launch overwrites.
/// If it is not, the launch writes to a buffer of its own, as large as the operand, and the operand is free after it.
///
/// This is close to a run on a card with another [`InPlace`](crate::InPlace), and not the same: burn can choose to
/// overwrite another operand instead. The launch keeps its metadata, and what the pools report at the marks stays
/// that of the run.
pub fn with_fewer_overwritten(
    recording: &Recording,
    mut is_overwritten: impl FnMut() -> bool,
) -> Recording {
    let mut other = recording.clone();
    other.events.clear();
    other.batches.clear();
    let mut batches = recording.batches.iter().peekable();
    // By operand that was not overwritten: the buffer that now holds the result.
    let mut moved = HashMap::new();
    // A kernel may declare that it also reads a buffer that it is the first to write.
    let mut written_before: HashSet<BufferId> = HashSet::new();
    for (position, event) in recording.events.iter().enumerate() {
        while let Some(batch) = batches.next_if(|batch| batch.position <= position) {
            other.batches.push(Batch {
                position: other.events.len(),
                ..*batch
            });
        }
        let now = |moved: &HashMap<BufferId, BufferId>, buffer: &BufferId| {
            moved.get(buffer).copied().unwrap_or(*buffer)
        };
        match event {
            Event::Launch(launch) => {
                let (reads, writes) = (recording.reads(launch), recording.writes(launch));
                let read: Vec<_> = reads.iter().map(|buffer| now(&moved, buffer)).collect();
                let mut freed = Vec::new();
                for buffer in writes {
                    if written_before.contains(buffer)
                        && reads.contains(buffer)
                        && !is_overwritten()
                    {
                        freed.push(Event::Free(now(&moved, buffer)));
                        let result = other.add_buffer(recording.buffer(*buffer).bytes, false);
                        other.events.push(Event::Allocate(result));
                        moved.insert(*buffer, result);
                    }
                }
                let written: Vec<_> = writes.iter().map(|buffer| now(&moved, buffer)).collect();
                other.add_launch(launch.kernel, launch.metadata, &read, &written);
                other.events.append(&mut freed);
                written_before.extend(writes);
            }
            Event::Free(buffer) => other.events.push(Event::Free(now(&moved, buffer))),
            _ => other.events.push(event.clone()),
        }
    }
    other
}

/// The metadata that the launches of a run have had by the end of each phase: its content, as a hash, and its words.
#[derive(Clone, Debug, Default)]
pub struct LaunchMetadata(Vec<HashSet<(u64, u32)>>);

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
                    let metadata = launch.metadata?;
                    Some((recording.metadata[metadata.id as usize], metadata.words))
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
                extra.fold((0, Bytes::ZERO), |(count, bytes), (_, words)| {
                    (count + 1, bytes + Bytes(u64::from(*words) * 8))
                })
            })
            .collect()
    }
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
            let recording = &mut recorder.recording;
            recording.events.push(Event::Mark(recording.marks.len()));
            recording.marks.push(Mark {
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
    fn a_launch_that_overwrites_no_operand_has_a_buffer_of_its_own() {
        let mut recording = Recording::default();
        recording.kernels.push("kernel".into());
        let [operand, result] = [10, 20].map(|bytes| recording.add_buffer(Bytes(bytes), false));
        let own = BufferId(2);
        let calls = |recording: &mut Recording, overwritten: bool| {
            let launch = |recording: &mut Recording, reads: &[_], writes: &[_]| {
                recording.add_launch(KernelId(0), None, reads, writes);
            };
            recording.events.push(Event::Allocate(operand));
            // This kernel declares that it reads what it fills.
            launch(recording, &[operand], &[operand]);
            recording.events.push(Event::Allocate(result));
            match overwritten {
                true => launch(recording, &[operand], &[operand]),
                false => {
                    recording.events.push(Event::Allocate(own));
                    launch(recording, &[operand], &[own]);
                    recording.events.push(Event::Free(operand));
                }
            }
            let operand = if overwritten { operand } else { own };
            launch(recording, &[operand], &[result]);
            recording.events.push(Event::Free(operand));
        };
        let mut expected = recording.clone();
        calls(&mut recording, true);
        assert_eq!(expected.add_buffer(Bytes(10), false), own);
        calls(&mut expected, false);
        let operands = |recording: &Recording| {
            let launches = recording.events.iter().filter_map(|event| match event {
                Event::Launch(launch) => {
                    let writes = recording.writes(launch).to_vec();
                    Some((recording.reads(launch).to_vec(), writes))
                }
                _ => None,
            });
            launches.collect::<Vec<_>>()
        };
        let memory = |recording: &Recording| {
            let events = recording.events.iter();
            let events = events.filter(|event| !matches!(event, Event::Launch(_)));
            events.cloned().collect::<Vec<_>>()
        };

        let same = with_fewer_overwritten(&recording, || true);
        assert_eq!(same.buffers, recording.buffers);
        assert_eq!(memory(&same), memory(&recording));
        assert_eq!(operands(&same), operands(&recording));

        let other = with_fewer_overwritten(&recording, || false);
        assert_eq!(other.buffers, expected.buffers);
        assert_eq!(memory(&other), memory(&expected));
        assert_eq!(operands(&other), operands(&expected));
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
}
