//! Whether a step also fits on a device where the device's thread is behind the program.

use std::sync::{Arc, OnceLock};

use crate::analysis::Analysis;
use crate::card::{DeviceSpec, QueueLag};
use crate::job::Program;
use crate::parallel::parallel_find_map;
use crate::record::{Failure, Recording};
use crate::replay::replay;
use crate::simulated::Simulated;
use crate::{Bytes, Error, OutOfMemory, Tuning};

/// The allocation that the device of `run` refuses of the step with `batch` samples with one of
/// [`QueueLag::REQUIRED`]; `run` is the run of the step without queue lag, which completed.
///
/// # Errors
///
/// The step itself failed.
pub(crate) fn refused_with_lag(
    program: &impl Program,
    batch: u64,
    run: &Simulated,
) -> Result<Option<OutOfMemory>, Error> {
    if run.spec.simulation.tuning == Tuning::Warm {
        return Ok(parallel_find_map(QueueLag::REQUIRED, |lag| {
            let (recording, failure) = replay_with_lag(&run.recording, &run.spec, *lag);
            failure.map(|failure| out_of_memory(recording, failure, *lag))
        }));
    }
    // burn's tuner may choose otherwise where the card is fuller at that moment.
    for lag in QueueLag::REQUIRED {
        let device = run.spec.clone().with_queue_lag(*lag);
        if let Err(refused) = program.simulate(batch, device)?.outcome() {
            return Ok(Some(refused));
        }
    }
    Ok(None)
}

/// Replays `recording`, which had no queue lag, with `queue_lag` on a device like `device`. Returns the recording that is
/// replayed, and the allocation that the device refused.
pub(crate) fn replay_with_lag(
    recording: &Recording,
    device: &DeviceSpec,
    queue_lag: QueueLag,
) -> (Recording, Option<Failure>) {
    let recording = recording.with_queue_lag(queue_lag);
    let outcome = replay(device, &recording, |buffer| recording.buffer(buffer).bytes);
    (recording, outcome.failure)
}

/// Describes the allocation that a card refused in a replay of `recording`, which is as of a run with `queue_lag`.
pub(crate) fn out_of_memory(
    mut recording: Recording,
    failure: Failure,
    queue_lag: QueueLag,
) -> OutOfMemory {
    recording.failure = Some(failure);
    recording.cut_at_failure();
    Analysis::of(&recording).out_of_memory(&recording, &failure, queue_lag)
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
