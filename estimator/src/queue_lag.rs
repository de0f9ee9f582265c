//! Whether a step also fits on a device where the device's thread is behind the program.

use std::sync::{Arc, OnceLock};

use recording::{Analysis, Bytes, Failure, QueueLag, Recording};

use crate::OutOfMemory;
use crate::parallel::parallel_find_map;
use crate::replay::replay;
use crate::run_kind::RunKind;
use crate::simulated::Simulated;

/// The allocation that the device of `run` refuses of the step with one of `lags`; `run` is the run of the step without queue lag,
/// which completed. burn's tuner may choose otherwise in a run with that lag: where it tunes, this is no more than a sample.
pub(crate) fn refused_with_lag(run: &Simulated, lags: &[QueueLag]) -> Option<OutOfMemory> {
    // Without a lag the first steps fitted, and later ones may not.
    let lags = [QueueLag::None].iter().chain(lags);
    parallel_find_map(lags, |lag| {
        let recording = run.recording.with_queue_lag(*lag);
        let bytes = |buffer| recording.buffer(buffer).bytes;
        let failure = replay(&run.spec, &recording, bytes).failure?;
        let kind = RunKind::on(&run.spec).with_queue_lag(*lag);
        Some(out_of_memory(recording, failure, kind))
    })
}

/// Describes the allocation that a card refused in a replay of `recording`, which is as of a run of the kind `run`.
pub(crate) fn out_of_memory(
    mut recording: Recording,
    failure: Failure,
    run: RunKind,
) -> OutOfMemory {
    recording.failure = Some(failure);
    recording.cut_at_failure();
    OutOfMemory::of(&failure, &recording, &Analysis::of(&recording), run)
}

/// A recording without queue lag as it were with each of [`QueueLag::REQUIRED`], computed on first use.
#[derive(Debug, Default)]
pub(crate) struct Lagged([OnceLock<Recording>; QueueLag::REQUIRED.len()]);

impl Lagged {
    /// `recording` as it were with `queue_lag`.
    pub fn of<'a>(&'a self, recording: &'a Recording, queue_lag: QueueLag) -> &'a Recording {
        let mut required = QueueLag::REQUIRED.iter();
        match required.position(|lag| *lag == queue_lag) {
            Some(place) => self.0[place].get_or_init(|| recording.with_queue_lag(queue_lag)),
            None => recording,
        }
    }
}

/// `recording` with buffers of these sizes.
pub(crate) fn resized(recording: &Recording, sizes: Vec<Bytes>) -> Recording {
    let mut recording = recording.clone();
    for (buffer, bytes) in Arc::make_mut(&mut recording.buffers).iter_mut().zip(sizes) {
        buffer.bytes = bytes;
    }
    recording
}
