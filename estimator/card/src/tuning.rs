//! burn tries several kernels for an operation and keeps the fastest. Which one that is on a
//! card that does not exist is said here, and nowhere else.
//!
//! CubeCL's own tuner does the trying: it asks the card to run each candidate that the card's
//! properties allow, and how long that took. The answer is no clock's but that of a rule about each
//! launch: see [`crate::launch_time`]. How far the answer could be off is bounded by running the step
//! with the other choices too: see [`KernelPreference`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::launch_time::{self, Products};
use crate::{Bytes, current_device, upstream};

/// Whether the kernels of a step were tuned before it is run.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::VariantNames,
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Tuning {
    /// The fastest are known, and the card's memory is empty at the start.
    #[default]
    Warm,
    /// Nothing is known: candidates are tried as the step meets them.
    Cold,
}

/// Which candidate a card is fastest at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum KernelPreference {
    /// What the rule about launches says.
    #[default]
    Expected,
    /// Whichever takes the least memory.
    LeastMemory,
    /// Whichever takes the most.
    MostMemory,
}

/// What a card did between two moments, as far as it is timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// What its launches take, by the rule of [`launch_time`](crate::launch_time).
    pub time: Duration,
    /// Bytes that were allocated.
    pub allocated: Bytes,
    /// Of these, bytes that are in use at the end: the result.
    pub kept: Bytes,
}

/// What burn's tuner decided for one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Choice {
    /// The operation, as the tuner tells one from another.
    pub operation: String,
    /// The candidate that it keeps.
    pub chosen: String,
    /// Bytes of the result.
    pub result_bytes: Bytes,
    /// Bytes that the chosen candidate allocates beside its result.
    pub scratch_bytes: Bytes,
    /// The least that any candidate does.
    pub least_scratch_bytes: Bytes,
    /// The most that any candidate does.
    pub most_scratch_bytes: Bytes,
}

/// A candidate that was tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub work: Work,
    pub time: Duration,
    /// How many others were being tried meanwhile: to try a candidate may take a decision.
    pub within: usize,
}

impl Choice {
    /// From a line of the tuner's log, and the candidates that were tried for it.
    fn read(line: &str, trials: &[Trial]) -> Option<Self> {
        let (chosen, operation) = upstream::tuner_choice(line)?;
        let scratch = |trial: &Trial| trial.work.allocated - trial.work.kept;
        let winner = trials.iter().min_by_key(|trial| trial.time)?;
        Some(Self {
            operation: operation.to_string(),
            chosen: chosen.to_string(),
            result_bytes: winner.work.kept,
            scratch_bytes: scratch(winner),
            least_scratch_bytes: trials.iter().map(scratch).min()?,
            most_scratch_bytes: trials.iter().map(scratch).max()?,
        })
    }
}

/// Reads the decisions of burn's tuner from its log: the tuner tells them nobody else.
struct Listener;

impl log::Log for Listener {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.target() == upstream::TUNER_LOG
    }

    fn log(&self, record: &log::Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        current_device::with_current_card(|card| {
            let line = record.args().to_string();
            card.decided(|trials| Choice::read(&line, trials));
        });
    }

    fn flush(&self) {}
}

/// Keeps the tuner's decisions from now on (`estimator::Simulated::choices`). burn only logs them, so the
/// process gives up its `log` for it; a process that has a logger keeps that, and no choices are known.
pub fn listen() {
    if log::set_logger(&Listener).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// How `kernel`, named by its type, multiplies matrices. Among the kernels of `cubek-matmul` 0.3.1, with
/// which convolutions are made too, those with matrix units divide their work among planes.
pub(crate) fn products(kernel: &str) -> Products {
    let path = kernel.split('<').next().unwrap_or(kernel);
    let function = path.rsplit("::").next().unwrap_or(path);
    match launch_time::multiplies(function) {
        false => Products::None,
        true if kernel.contains(upstream::MATRIX_UNITS) => Products::MatrixUnits,
        true => Products::Scalar,
    }
}

impl KernelPreference {
    /// The time that a card needs for `work`.
    pub(crate) fn time(self, work: &Work) -> Duration {
        // Only the order matters: a KiB takes a microsecond, and what the launches take only decides
        // where the memory is the same.
        let by_memory = |bytes: u64| {
            Duration::from_micros(bytes / 1024)
                + Duration::from_nanos((work.time.as_secs() / LAUNCH_SECONDS).min(999))
        };
        match self {
            Self::Expected => work.time,
            Self::LeastMemory => by_memory(work.allocated.0),
            Self::MostMemory => by_memory((1 << 50) - work.allocated.0.min(1 << 50)),
        }
    }
}

/// Seconds of an ordinary launch, of which more than a few hundred make no difference to
/// [`KernelPreference::LeastMemory`] and [`KernelPreference::MostMemory`].
const LAUNCH_SECONDS: u64 = launch_time::LAUNCH.as_secs();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_multiply_as_their_types_say() {
        let units = "cubek_matmul::multi_level::components::batch::base::matmul_entry::MatmulEntry<\
                     cubek_matmul::PlanePartitioner>";
        let scalar = "cubek_matmul::components::batch::matmul_entry::MatmulEntry<UnitPartitioner>";
        let direct =
            "burn_cubecl::kernel::conv::direct::direct_conv2d_kernel::DirectConv2dKernel<f32>";
        let other = "cubek_matmul::relayout::Relayout<cubek_matmul::MatmulEntry>";
        assert_eq!(products(units), Products::MatrixUnits);
        assert_eq!(products(scalar), Products::Scalar);
        assert_eq!(products(direct), Products::Scalar);
        assert_eq!(products(other), Products::None);
    }
}
