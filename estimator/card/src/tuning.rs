//! burn tries several kernels for an operation and keeps the fastest. This module alone decides which one
//! that is on a simulated card.
//!
//! CubeCL's own tuner tries them: it has the card run each candidate that the card's properties allow, and
//! asks how long that took. A rule about each launch provides the answer, not a clock: see
//! [`crate::launch_time`]. Running the step with the other choices too bounds the error of that rule: see
//! [`KernelPreference`].

use std::collections::HashMap;
use std::time::Duration;

use cubecl_server::id::KernelId;
use cubecl_server::kernel::CubeKernel;
use recording::Bytes;
use serde::{Deserialize, Serialize};

use crate::launch_time::{self, Products};
use crate::upstream;

/// Whether burn's tuner knows the fastest kernels of a step before the step runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Tuning {
    /// The tuner knows the fastest kernels, and the card's memory is empty at the start.
    #[default]
    Warm,
    /// The tuner knows nothing: it tries candidates as the step meets them.
    Cold,
}

/// What a card does with the calls of burn's tuner, which tries kernels while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunerCalls {
    /// It executes and records them like those of the program, as a real card does.
    OnCard,
    /// It executes them in a memory of their own and does not record them. What it records are the calls of the
    /// program, with the kernels that the tuner chose.
    Apart,
    /// The program runs only for the tuner, so the memory is without pools for all calls, and the recording says nothing
    /// about memory.
    Only,
}

/// Which of the tuner's candidates is the fastest on a simulated card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum KernelPreference {
    /// The candidate with the least time by the rule about launches.
    #[default]
    Expected,
    /// The candidate that allocates the least memory.
    LeastMemory,
    /// The candidate that allocates the most memory.
    MostMemory,
}

/// The work of a card in a window that the tuner timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// The time of its launches, by the rule of [`launch_time`](crate::launch_time).
    pub time: Duration,
    /// Bytes allocated in the window.
    pub allocated: Bytes,
    /// Of these, bytes still in use at the end: the result.
    pub kept: Bytes,
}

/// What burn's tuner decided for one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Choice {
    /// The operation, by the key under which the tuner knows it.
    pub operation: String,
    /// The candidate that the tuner keeps.
    pub chosen: String,
    /// Size of the result in bytes.
    pub result_bytes: Bytes,
    /// Bytes that the chosen candidate allocates besides its result (its workspace).
    pub scratch_bytes: Bytes,
    /// The least workspace of any candidate, in bytes.
    pub least_scratch_bytes: Bytes,
    /// The most workspace of any candidate, in bytes.
    pub most_scratch_bytes: Bytes,
}

/// A candidate that the tuner timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub work: Work,
    pub time: Duration,
    /// How many other windows were open meanwhile: timing a candidate may need a decision about another
    /// operation.
    pub within: usize,
}

impl Choice {
    /// Reads a decision from a line of the tuner's log and the candidates that were timed for it.
    pub(crate) fn read(line: &str, trials: &[Trial]) -> Option<Self> {
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

/// How kernels multiply matrices. To write out the arguments with which a kernel is compiled, for each launch that the tuner
/// times, took a tenth of `max-batch unet`, so that is done once for each kernel.
#[derive(Debug, Default)]
pub(crate) struct KernelProducts {
    /// Whether planes of a kernel multiply a matrix with a vector.
    vectors: HashMap<KernelId, bool>,
}

impl KernelProducts {
    pub fn of(&mut self, kernel: &dyn CubeKernel) -> Products {
        products(kernel.name(), || {
            let known = self.vectors.entry(kernel.id());
            *known.or_insert_with_key(|id| has_plane_vectors(&id.stable_format()))
        })
    }
}

fn has_plane_vectors(arguments: &str) -> bool {
    arguments.contains(upstream::PLANE_VECTORS)
}

/// How the kernel `name` multiplies matrices; `vectors` says whether its planes multiply a matrix with a vector.
fn products(name: &str, vectors: impl FnOnce() -> bool) -> Products {
    let path = name.split('<').next().unwrap_or(name);
    let function = path.rsplit("::").next().unwrap_or(path);
    if !launch_time::multiplies(function) {
        return Products::None;
    }
    match name.contains(upstream::PLANES) && !vectors() {
        true => Products::MatrixUnits,
        false => Products::Scalar,
    }
}

impl KernelPreference {
    /// The time that a card with this preference reports for `work`.
    pub(crate) fn time(self, work: &Work) -> Duration {
        // Only the order matters: a KiB counts as a microsecond, and the launches decide only between
        // candidates with equal memory.
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

/// Seconds of an ordinary launch. [`KernelPreference::LeastMemory`] and [`KernelPreference::MostMemory`]
/// count no more than 999 of them.
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
        let compiled_with = |tile: &str| format!("Blueprint {{ tile_matmul: {tile} }}");
        let products = |kernel, tile| products(kernel, || has_plane_vectors(&compiled_with(tile)));
        assert_eq!(products(units, "Cmma"), Products::MatrixUnits);
        assert_eq!(products(units, "PlaneVec"), Products::Scalar);
        assert_eq!(products(scalar, "Register"), Products::Scalar);
        assert_eq!(products(direct, ""), Products::Scalar);
        assert_eq!(products(other, ""), Products::None);
    }
}
