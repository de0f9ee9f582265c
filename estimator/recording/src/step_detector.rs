//! Finds the training steps of a program that does not report where they end.
//!
//! burn signals no end of a step. But each step launches the same kernels on buffers of the same sizes, so
//! the launches of a training loop repeat. A repetition is a step if
//!
//! 1. the repetition itself or the one before it made each buffer that it reads, or the one before it read
//!    that buffer too: a layer, in contrast, reads weights that the layer before it does not;
//! 2. nothing that was made early in a repetition is still in use a repetition later: over the layers and the
//!    time steps of a forward pass, activations accumulate;
//! 3. a weight was changed or replaced before the repetition began: an optimizer was at work.
//!
//! Batches whose gradients the program accumulates count as steps too, after the first update. If no two
//! steps are equal (batches of different sizes), the detector finds nothing.
//!
//! The file is long because half of it is tests: a detector is only as good as the loops on which it was tried.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;

use crate::bytes::Bytes;
use crate::recording::{AllocationMode, BufferId, Event, LaunchId, Recording};

/// How many consecutive launches identify a position within a step: where the same launches recur, the
/// detector suspects a repetition. Chosen.
const CONTEXT: usize = 16;

/// How many new buffers a step may read, in per cent of its launches: batches that the program put on the
/// card before the training began. Chosen.
const FOREIGN_PERCENT: usize = 5;

/// How many of the bytes made early in a step may outlive the next step, in per cent: losses that the program
/// keeps. Chosen.
const KEPT_PERCENT: u64 = 1;

/// Finds equal training steps in the recording of a program, which may still grow.
#[derive(Debug)]
pub struct StepDetector {
    wanted: usize,
    /// Number of events that [`look`](Self::look) has processed.
    seen: usize,
    launches: Vec<Seen>,
    /// By the hash of `CONTEXT` consecutive launches: where in `launches` they last ended.
    contexts: HashMap<u64, usize>,
    /// The suspected length of a step in launches, and how many of the last launches repeat at that distance.
    period: Option<usize>,
    repeated: usize,
    /// The number of launches at which a repetition that was no step is checked again.
    recheck_at: usize,
    hasher: BuildHasherDefault<DefaultHasher>,
    /// By [`BufferId`].
    buffers: Vec<BufferLifetime>,
    mode: Option<AllocationMode>,
    /// The number of launches before the first change or replacement of a weight.
    updated: Option<usize>,
    weights: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// A hash of what is the same in each step: the kernel and the sizes of its buffers.
    signature: u64,
    event: usize,
}

/// The lifetime of a buffer, counted in launches.
#[derive(Clone, Copy, Debug)]
struct BufferLifetime {
    born: usize,
    died: Option<usize>,
    weight: Weight,
}

/// Whether a buffer holds a weight since the weight's initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    No,
    /// The program allocated it as persistent, like weights and the intermediates of their initialization.
    Perhaps,
    /// Like `Perhaps`, and a launch outside the initialization of weights read it.
    Yes,
}

impl StepDetector {
    /// A detector that looks for `steps` equal steps in a row; for at least two, since only the second shows
    /// that the first was a step.
    pub fn new(steps: usize) -> Self {
        Self {
            wanted: steps.max(2),
            seen: 0,
            launches: Vec::new(),
            contexts: HashMap::new(),
            period: None,
            repeated: 0,
            recheck_at: 0,
            hasher: Default::default(),
            buffers: Vec::new(),
            mode: None,
            updated: None,
            weights: false,
        }
    }

    /// Processes the events that `recording` gained since the last call. Once there are enough steps, returns
    /// the positions of each step's events.
    pub fn look(&mut self, recording: &Recording) -> Option<Vec<Range<usize>>> {
        while self.seen < recording.events.len() {
            let event = self.seen;
            self.seen += 1;
            match &recording.events[event] {
                Event::Mode(mode) => self.mode = Some(*mode),
                Event::Allocate(buffer) => self.allocated(*buffer),
                Event::Free(buffer) => self.freed(*buffer),
                Event::Launch(launch) => {
                    self.notice_weights(recording, *launch);
                    if let Some(steps) = self.launched(recording, *launch, event) {
                        return Some(steps);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn allocated(&mut self, buffer: BufferId) {
        let weight = match self.mode {
            Some(AllocationMode::Persistent) => Weight::Perhaps,
            _ => Weight::No,
        };
        let life = BufferLifetime {
            born: self.launches.len(),
            died: None,
            weight,
        };
        // Buffers are numbered in the order of birth.
        self.buffers.resize(buffer.0 as usize + 1, life);
    }

    fn freed(&mut self, buffer: BufferId) {
        let launches = self.launches.len();
        let life = &mut self.buffers[buffer.0 as usize];
        life.died = Some(launches);
        if life.weight == Weight::Yes {
            self.updated.get_or_insert(launches);
        }
    }

    /// Notes which weights `launch` reads, and whether it overwrites one: without fusion, burn's optimizers
    /// work in place.
    fn notice_weights(&mut self, recording: &Recording, launch: LaunchId) {
        if self.mode == Some(AllocationMode::Persistent) {
            return;
        }
        for buffer in recording.reads(launch) {
            let life = &mut self.buffers[buffer.0 as usize];
            if life.weight == Weight::Perhaps {
                life.weight = Weight::Yes;
                self.weights = true;
            }
        }
        let is_weight = |id: &BufferId| self.buffers[id.0 as usize].weight == Weight::Yes;
        if recording.writes(launch).iter().any(is_weight) {
            self.updated.get_or_insert(self.launches.len());
        }
    }

    fn launched(
        &mut self,
        recording: &Recording,
        launch: LaunchId,
        event: usize,
    ) -> Option<Vec<Range<usize>>> {
        let signature = self.signature(recording, launch);
        self.launches.push(Seen { signature, event });
        self.follow();
        let period = self.period?;
        let steps = self.wanted * period;
        let count = self.launches.len();
        if self.repeated < steps - period || count < self.recheck_at {
            return None;
        }
        if !self.are_steps(recording, period) {
            self.recheck_at = count + period.div_ceil(4);
            return None;
        }
        let first = count - steps;
        let at = |launch: usize| self.launches.get(launch).map_or(event + 1, |it| it.event);
        let steps = (0..self.wanted).map(|step| first + step * period);
        Some(steps.map(|from| at(from)..at(from + period)).collect())
    }

    fn signature(&self, recording: &Recording, launch: LaunchId) -> u64 {
        let sizes = |buffers: &[BufferId]| -> Vec<Bytes> {
            let buffers = buffers.iter();
            buffers.map(|id| recording.buffer(*id).bytes).collect()
        };
        let reads = sizes(recording.reads(launch));
        let writes = sizes(recording.writes(launch));
        let kernel = recording.launch(launch).kernel;
        self.hasher.hash_one((kernel, reads, writes))
    }

    /// Keeps the period if the last launch repeats too, and otherwise looks for another.
    fn follow(&mut self) {
        let last = self.launches.len() - 1;
        let context = self.context(last);
        let before = context.and_then(|context| self.contexts.insert(context, last));
        match self.period {
            Some(period) if self.repeats(last, period) => self.repeated += 1,
            _ => {
                self.period = before.map(|before| last - before);
                self.recheck_at = 0;
                self.repeated = self.period.map_or(0, |period| {
                    let enough = (self.wanted - 1) * period;
                    let back = (period..=last).rev().take(enough);
                    back.take_while(|at| self.repeats(*at, period)).count()
                });
            }
        }
    }

    fn repeats(&self, at: usize, period: usize) -> bool {
        self.launches[at].signature == self.launches[at - period].signature
    }

    fn context(&self, last: usize) -> Option<u64> {
        let from = (last + 1).checked_sub(CONTEXT)?;
        let signatures = self.launches[from..=last].iter().map(|seen| seen.signature);
        Some(self.hasher.hash_one(signatures.collect::<Vec<_>>()))
    }

    /// Whether the last repetitions of `period` launches, the latest of which has just ended, are steps.
    fn are_steps(&self, recording: &Recording, period: usize) -> bool {
        let end = self.launches.len();
        let begin = end - self.wanted * period;
        let updated = match self.weights {
            true => self.updated.is_some_and(|updated| updated <= begin),
            false => true,
        };
        updated
            && self.feeds_itself(recording, end - 2 * period, period)
            && self.tidies_up(recording, begin, period)
    }

    /// Condition 1: whether the repetition after the one that begins at launch `begin` reads hardly any new
    /// buffer.
    fn feeds_itself(&self, recording: &Recording, begin: usize, period: usize) -> bool {
        let reads = |launches: Range<usize>| {
            let launches = self.launches[launches].iter();
            launches.flat_map(|seen| match &recording.events[seen.event] {
                Event::Launch(launch) => recording.reads(*launch),
                _ => &[],
            })
        };
        let known: HashSet<BufferId> = reads(begin..begin + period).copied().collect();
        let foreign: HashSet<BufferId> = reads(begin + period..begin + 2 * period)
            .filter(|id| self.buffers[id.0 as usize].born < begin && !known.contains(id))
            .copied()
            .collect();
        foreign.len() * 100 <= period * FOREIGN_PERCENT
    }

    /// Condition 2: whether hardly anything from the first half of the repetition that begins at launch
    /// `begin` outlives the next one.
    fn tidies_up(&self, recording: &Recording, begin: usize, period: usize) -> bool {
        let early = begin..begin + period.div_ceil(2);
        let (mut made, mut kept) = (Bytes::ZERO, Bytes::ZERO);
        let first = self.buffers.partition_point(|life| life.born < early.start);
        for (life, buffer) in self.buffers[first..]
            .iter()
            .zip(&recording.buffers[first..])
        {
            if life.born >= early.end {
                break;
            }
            if buffer.metadata {
                continue;
            }
            made += buffer.bytes;
            if life.died.is_none_or(|died| died > begin + 2 * period) {
                kept += buffer.bytes;
            }
        }
        kept.0 * 100 <= made.0 * KEPT_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::KernelId;

    /// Layers of one size, so that launches repeat within a step too.
    const LAYERS: usize = 12;

    /// A made-up program, launch by launch.
    #[derive(Default)]
    struct Made {
        recording: Recording,
        /// Whether the optimizer works in place.
        in_place: bool,
        weights: Vec<BufferId>,
        moments: Vec<BufferId>,
    }

    impl Made {
        fn new(in_place: bool) -> Self {
            let mut made = Self {
                in_place,
                ..Self::default()
            };
            made.mode(AllocationMode::Persistent);
            for _ in 0..LAYERS {
                let weight = made.launch(0, &[], 1000);
                made.weights.push(weight);
            }
            made.mode(AllocationMode::Auto);
            made
        }

        fn mode(&mut self, mode: AllocationMode) {
            self.recording.events.push(Event::Mode(mode));
        }

        fn buffer(&mut self, bytes: u64) -> BufferId {
            let buffer = self.recording.add_buffer(Bytes(bytes), false);
            self.recording.events.push(Event::Allocate(buffer));
            buffer
        }

        fn launch(&mut self, kernel: u32, reads: &[BufferId], bytes: u64) -> BufferId {
            let output = self.buffer(bytes);
            self.recording
                .add_launch(KernelId(kernel), None, reads, &[output]);
            output
        }

        /// A launch that overwrites the first buffer that it reads.
        fn over(&mut self, kernel: u32, reads: &[BufferId]) {
            self.recording
                .add_launch(KernelId(kernel), None, reads, &reads[..1]);
        }

        fn free(&mut self, buffer: BufferId) {
            self.recording.events.push(Event::Free(buffer));
        }

        /// The forward pass, with three launches for each layer.
        fn forward(&mut self) -> Vec<BufferId> {
            let mut made = vec![self.launch(1, &[], 64)];
            for layer in 0..LAYERS {
                for kernel in 2..5 {
                    let last = made[made.len() - 1];
                    let output = self.launch(kernel, &[last, self.weights[layer]], 500);
                    made.push(output);
                }
            }
            made
        }

        fn backward(&mut self, made: Vec<BufferId>) -> Vec<BufferId> {
            let mut gradients = Vec::new();
            for layer in (0..LAYERS).rev() {
                let weight = self.weights[layer];
                let gradient = self.launch(5, &[made[3 * layer], weight], 1000);
                gradients.insert(0, gradient);
            }
            for buffer in made {
                self.free(buffer);
            }
            gradients
        }

        /// The update of an optimizer with one moment.
        fn update(&mut self, gradients: Vec<BufferId>) {
            for (layer, gradient) in gradients.into_iter().enumerate() {
                if self.in_place && self.moments.len() == LAYERS {
                    let (weight, moment) = (self.weights[layer], self.moments[layer]);
                    self.over(6, &[moment, gradient]);
                    let scaled = self.launch(7, &[moment], 1000);
                    self.over(8, &[weight, scaled]);
                    self.free(scaled);
                    self.free(gradient);
                    continue;
                }
                let known = self.moments.get(layer).copied();
                let mut reads = vec![gradient];
                reads.extend(known);
                let moment = self.launch(6, &reads, 1000);
                let scaled = self.launch(7, &[moment], 1000);
                let weight = self.launch(8, &[self.weights[layer], scaled], 1000);
                self.free(scaled);
                self.free(gradient);
                let old = std::mem::replace(&mut self.weights[layer], weight);
                self.free(old);
                match known {
                    Some(known) => {
                        self.free(known);
                        self.moments[layer] = moment;
                    }
                    None => self.moments.push(moment),
                }
            }
        }

        fn step(&mut self) {
            let made = self.forward();
            let gradients = self.backward(made);
            self.update(gradients);
        }

        fn found(&self, steps: usize) -> Option<Vec<Range<usize>>> {
            StepDetector::new(steps).look(&self.recording)
        }
    }

    fn launches_in(recording: &Recording, events: &Range<usize>) -> usize {
        let events = recording.events[events.clone()].iter();
        events.filter(|e| matches!(e, Event::Launch(_))).count()
    }

    #[test]
    fn steps_are_found_where_layers_repeat_too() {
        for in_place in [false, true] {
            let mut made = Made::new(in_place);
            for _ in 0..6 {
                made.step();
            }
            for wanted in 2..4 {
                let steps = made.found(wanted).expect("six steps are enough");
                assert_eq!(steps.len(), wanted);
                for step in &steps {
                    // 1 + 3 * 12 forward, 12 backward, 3 * 12 for the update.
                    assert_eq!(launches_in(&made.recording, step), 85);
                }
                assert!(steps.windows(2).all(|pair| pair[0].end == pair[1].start));
            }
        }
    }

    #[test]
    fn a_recording_that_grows_gives_the_same_steps() {
        let mut made = Made::new(false);
        for _ in 0..6 {
            made.step();
        }
        let whole = made.found(2);
        let mut detector = StepDetector::new(2);
        let mut grown = made.recording.clone();
        grown.events.clear();
        let mut found = None;
        for event in &made.recording.events {
            grown.events.push(*event);
            found = found.or_else(|| detector.look(&grown));
        }
        assert_eq!(found, whole);
    }

    #[test]
    fn an_evaluation_is_not_a_step() {
        let mut made = Made::new(false);
        for _ in 0..10 {
            for buffer in made.forward() {
                made.free(buffer);
            }
        }
        assert_eq!(made.found(2), None);
    }

    #[test]
    fn the_time_steps_of_a_forward_pass_are_no_steps() {
        let mut made = Made::new(false);
        made.step();
        let mut hidden = made.launch(1, &[], 64);
        for _ in 0..40 {
            for kernel in 0..20 {
                hidden = made.launch(20 + kernel, &[hidden, made.weights[0]], 100);
            }
        }
        assert_eq!(made.found(2), None);
    }

    #[test]
    fn what_an_optimizer_does_to_each_layer_is_no_step() {
        let mut made = Made::new(true);
        made.step();
        made.step();
        let before = made.recording.events.len();
        made.step();
        for step in made.found(2).into_iter().flatten() {
            assert!(launches_in(&made.recording, &step) == 85 && step.end > before);
        }
    }

    #[test]
    fn two_steps_are_not_yet_two_equal_ones() {
        let mut made = Made::new(false);
        made.step();
        // The first step has no moments to read.
        made.step();
        assert_eq!(made.found(2), None);
    }
}
