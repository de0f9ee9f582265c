//! The metadata of launches that are made only where burn does not overwrite an operand.

use std::collections::HashSet;

use crate::Bytes;
use crate::record::{Event, Recording};

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
    use crate::record::{Mark, Pools};

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
