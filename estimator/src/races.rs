//! Whether a step ends otherwise in some runs than in most.
//!
//! Two races decide which page a buffer finds free on a real device: how far the device's thread is behind the
//! program ([`QueueLag`]), and whether burn overwrites an operand ([`InPlace`]). A step that misses the memory of
//! the device by little, or just fits it, can end otherwise if they do.

use crate::Error;
use crate::Tuning;
use crate::card::{DeviceSpec, InPlace, QueueLag};
use crate::job::Program;
use crate::queue_lag::replay_with_lag;

/// How many lags that vary are tried where each takes a replay, and where each takes a run. Both are chosen.
const REPLAYED_LAGS: u64 = 200;
const SIMULATED_LAGS: u64 = 8;

/// How many choices of a few operands that burn does not overwrite are tried. Chosen: of as many runs, 7 samples of
/// BERT-base (384 tokens) fit in 4, and StyleGAN's 8 samples on a GTX 1080 Ti ran out of memory in 1.
const CHOICES: u64 = 40;

/// Whether the step with `batch` samples, which does not fit on a device like `device`, can complete there in a run
/// in which the device's thread is behind the program, or in which burn does not overwrite some operands.
///
/// These are samples: that none of them completes does not prove that no run does.
///
/// # Errors
///
/// The step itself failed.
pub fn may_fit(program: &impl Program, batch: u64, device: &DeviceSpec) -> Result<bool, Error> {
    some_run(program, batch, device, true)
}

/// Whether the step with `batch` samples, which fits on a device like `device`, can run out of memory there in such
/// a run.
///
/// # Errors
///
/// As for [`may_fit`].
pub fn may_run_out(program: &impl Program, batch: u64, device: &DeviceSpec) -> Result<bool, Error> {
    some_run(program, batch, device, false)
}

/// Whether some run completes, or some run does not.
fn some_run(
    program: &impl Program,
    batch: u64,
    device: &DeviceSpec,
    completes: bool,
) -> Result<bool, Error> {
    let lagged: Vec<_> = match device.simulation.tuning {
        Tuning::Warm => {
            let run = program.simulate_unlimited(batch, device)?;
            let fits = |lag| replay_with_lag(&run.recording, device, lag).1.is_none();
            if lags(REPLAYED_LAGS).any(|lag| fits(lag) == completes) {
                return Ok(true);
            }
            Vec::new()
        }
        // burn's tuner may choose otherwise where the card is fuller at that moment.
        Tuning::Cold => lags(SIMULATED_LAGS)
            .map(|lag| device.clone().with_queue_lag(lag))
            .collect(),
    };
    let in_place = InPlace::SAMPLES
        .into_iter()
        .chain((0..CHOICES).map(InPlace::Most))
        .map(|in_place| device.clone().with_in_place(in_place));
    // A run that fails shows nothing: with other operands burn's tuner can find more to tune in run after run.
    Ok(lagged.into_iter().chain(in_place).any(|device| {
        let run = program.simulate(batch, device);
        run.is_ok_and(|run| run.outcome().is_ok() == completes)
    }))
}

/// The largest lag, and `most` that vary.
fn lags(most: u64) -> impl Iterator<Item = QueueLag> {
    [QueueLag::Full]
        .into_iter()
        .chain((1..=most).map(QueueLag::Varying))
}
