//! The metadata of launches that are made only where burn does not overwrite an operand.

use std::collections::HashSet;

use crate::Bytes;
use crate::record::{Event, Recording};

/// At the end of each phase: how many launches' metadata can be in use more than in `usual`, and their bytes, if
/// some of the launches were those of `never`, in which burn overwrites no operand
/// ([`InPlace`](crate::InPlace)). CubeCL keeps the metadata of a launch, so a launch with other operands than
/// usual, once, leaves its metadata behind.
pub fn more_metadata(usual: &Recording, never: &Recording) -> Vec<(u64, Bytes)> {
    let mut known = metadata(usual).into_iter();
    let (mut usual, mut more) = (HashSet::new(), HashSet::new());
    metadata(never)
        .into_iter()
        .map(|launched| {
            usual.extend(known.next().into_iter().flatten());
            more.extend(launched);
            let extra = more.difference(&usual);
            extra.fold((0, Bytes::ZERO), |(count, bytes), (_, words)| {
                (count + 1, bytes + Bytes(u64::from(*words) * 8))
            })
        })
        .collect()
}

/// For each phase: the content, as a hash, and the words of each launch's metadata.
fn metadata(recording: &Recording) -> Vec<Vec<(u64, u32)>> {
    let phases = recording
        .events
        .split(|event| matches!(event, Event::Mark(_)));
    let phases = phases.take(recording.marks.len());
    phases
        .map(|events| {
            let launches = events.iter().filter_map(|event| match event {
                Event::Launch(launch) => launch.metadata,
                _ => None,
            });
            launches
                .map(|metadata| (recording.metadata[metadata.id as usize], metadata.words))
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use cubecl_environment::stream::StreamId;

    use super::*;
    use simulated_card::Recorder;

    #[test]
    fn metadata_that_only_another_run_has_is_more() {
        let stream = StreamId { value: 0 };
        let recording = |phases: &[&[&[u64]]]| {
            let mut recorder = Recorder::default();
            for phase in phases {
                for words in *phase {
                    recorder.launch(stream, "kernel", words, &[], &[]);
                }
                let recording = &mut recorder.recording;
                recording.events.push(Event::Mark(recording.marks.len()));
                recording.marks.push(crate::record::Mark {
                    phase: crate::Phase::Forward,
                    step: 0,
                    roles: Vec::new(),
                    pools: Default::default(),
                    peak_reserved: Bytes::ZERO,
                });
            }
            recorder.recording
        };
        let usual = recording(&[&[&[1], &[2, 2]], &[&[3]]]);
        // `[3]` is more at the end of the first phase only; `[4, 4]` from the second on.
        let never = recording(&[&[&[1], &[3]], &[&[4, 4], &[4, 4]]]);
        let more = more_metadata(&usual, &never);
        assert_eq!(more, [(1, Bytes(8)), (1, Bytes(16))]);
        assert_eq!(more_metadata(&usual, &usual), [(0, Bytes::ZERO); 2]);
    }
}
