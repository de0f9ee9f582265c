//! Whether a step that does not fit completes in some runs all the same.
//!
//! Two races decide which page a buffer finds free on a real device: how far the device's thread is behind the
//! program ([`QueueLag`]), and whether burn overwrites an operand ([`InPlace`]). A step that misses the memory of
//! the device by little can complete if they end otherwise than in most runs.

use crate::Error;
use crate::Tuning;
use crate::card::{DeviceSpec, InPlace, QueueLag};
use crate::in_place::with_fewer_overwritten;
use crate::job::Program;
use crate::queue_lag::replay_with_lag;
use crate::record::Recording;

/// How many lags that vary are tried where each takes a replay, and where each takes a run.
const REPLAYED_LAGS: u64 = 200;
const SIMULATED_LAGS: u64 = 8;

/// One operand in so many is not overwritten; each share is tried with so many choices of these operands. In a log of
/// CUDA's own runtime on a machine with little else to do it was one launch in 13,000.
const ONE_OPERAND_IN: [u64; 2] = [1000, 100];
const CHOICES: u64 = 100;

/// Whether the step with `batch` samples, which does not fit on a device like `device`, can complete there in a run
/// in which the device's thread is behind the program, or in which burn does not overwrite some operands.
///
/// These are samples: that none of them completes does not prove that no run does.
///
/// # Errors
///
/// The step itself failed.
pub fn may_fit(program: &impl Program, batch: u64, device: &DeviceSpec) -> Result<bool, Error> {
    match device.simulation.tuning {
        Tuning::Warm => {
            let run = program.simulate_unlimited(batch, device)?;
            Ok(may_complete(&run.recording, device))
        }
        // burn's tuner may choose otherwise where the card is fuller at that moment.
        Tuning::Cold => {
            let lagged = lags(SIMULATED_LAGS).map(|lag| device.clone().with_queue_lag(lag));
            let in_place = InPlace::SAMPLES.map(|in_place| device.clone().with_in_place(in_place));
            for device in lagged.chain(in_place) {
                if program.simulate(batch, device)?.outcome().is_ok() {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Whether `recording`, which had no queue lag, completes on a device like `device` if a race ends otherwise.
fn may_complete(recording: &Recording, device: &DeviceSpec) -> bool {
    let completes =
        |recording: &Recording, lag| replay_with_lag(recording, device, lag).1.is_none();
    let mut choices = ONE_OPERAND_IN
        .into_iter()
        .flat_map(|one_in| (0..CHOICES).map(move |seed| (one_in, seed)));
    lags(REPLAYED_LAGS).any(|lag| completes(recording, lag))
        || choices.any(|(one_in, seed)| {
            let mut random = fastrand::Rng::with_seed(seed);
            let other = with_fewer_overwritten(recording, || random.u64(..one_in) != 0);
            [QueueLag::None, QueueLag::Full]
                .into_iter()
                .any(|lag| completes(&other, lag))
        })
}

/// The largest lag, and `most` that vary.
fn lags(most: u64) -> impl Iterator<Item = QueueLag> {
    [QueueLag::Full]
        .into_iter()
        .chain((1..=most).map(QueueLag::Varying))
}
