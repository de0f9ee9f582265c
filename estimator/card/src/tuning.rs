//! burn tries several kernels for an operation and keeps the fastest. Which one that is on a
//! card that does not exist is said here, and nowhere else.
//!
//! CubeCL's own tuner does the trying: it asks the card to run each candidate that the card's
//! properties allow, and how long that took. The answer is no clock's but this rule's:
//!
//! 1. A candidate that multiplies matrices without the card's matrix units is behind each one
//!    that uses them. Matrix products and convolutions are bound by arithmetic, and matrix units
//!    have several times the rate of the others on every card that has them.
//! 2. Among those, the one that moves fewer bytes is ahead: what its kernels read and write,
//!    over a memory of whatever bandwidth (on one card that only scales the times).
//! 3. Among those, the one with fewer launches; then the one that burn offers first.
//!
//! What is left out (how well a kernel uses its units, what a cache holds) decides on real cards
//! between candidates that mostly need the same memory. How far the answer could be off is
//! bounded by running the step with the other choices too: see [`Favour`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Bytes, thread};

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
pub enum Favour {
    /// What the rule of this module says.
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
    /// Bytes that kernels read and wrote.
    pub moved: Bytes,
    /// Kernels.
    pub launches: u32,
    /// Whether matrices were multiplied without matrix units.
    pub scalar_products: bool,
    /// Bytes that were allocated.
    pub allocated: Bytes,
    /// Of these, bytes that are in use at the end: the result.
    pub kept: Bytes,
}

/// What burn's tuner decided for one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// From what the tuner says, `Fastest result NAME-KEY. Top 3 times: …`, and what was tried for
    /// it.
    fn read(said: &str, trials: &[Trial]) -> Option<Self> {
        let said = said.strip_prefix("Fastest result ")?;
        let (said, _) = said.split_once(". Top 3 times")?;
        let (chosen, operation) = said.split_once('-')?;
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

/// Hears what burn's tuner says of its decisions, which it tells nobody else.
struct Listener;

impl log::Log for Listener {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.target() == "cubecl::autotune"
    }

    fn log(&self, record: &log::Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        thread::here(|card| {
            let said = record.args().to_string();
            card.decided(|trials| Choice::read(&said, trials));
        });
    }

    fn flush(&self) {}
}

/// From now on the tuner's decisions are kept (`estimator::Simulated::choices`): the process gives up its `log`, since that is the only way in which burn tells them. A process that
/// has a `log` of its own keeps that, and no choices are known.
pub fn listen() {
    if log::set_logger(&Listener).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// Kernels that convolve without multiplying matrices: `burn-cubecl` 0.22.1 and
/// `cubek-convolution` 0.3.1.
const DIRECT: [&str; 2] = ["DirectConv2dKernel", "ConvTranspose2dDirect"];

/// Whether `kernel` multiplies matrices or convolves, and not with matrix units: among the
/// kernels of `cubek-matmul` 0.3.1, with which convolutions are made too, those with matrix units
/// divide their work among planes.
pub(crate) fn is_scalar_product(kernel: &str) -> bool {
    let direct = DIRECT.iter().any(|name| kernel.contains(name));
    direct || kernel.starts_with("cubek_matmul") && !kernel.contains("PlanePartitioner")
}

/// What a launch takes beside what it moves: as good as nothing, so that it only decides where
/// everything else is the same.
const LAUNCH: Duration = Duration::from_nanos(1);

/// Longer than anything that only moves bytes takes.
const BEHIND: Duration = Duration::from_secs(1 << 20);

impl Favour {
    /// The time that a card needs for `work`.
    pub(crate) fn time(self, work: &Work) -> Duration {
        // A byte takes a picosecond, or any other time: only the order matters.
        let moving = Duration::from_nanos(work.moved.0 / 1000) + LAUNCH * work.launches;
        let by_memory = |bytes: u64| BEHIND + Duration::from_micros(bytes / 1024) + moving;
        match self {
            Self::Expected if work.scalar_products => BEHIND + moving,
            Self::Expected => moving,
            Self::LeastMemory => by_memory(work.allocated.0),
            Self::MostMemory => by_memory((1 << 50) - work.allocated.0.min(1 << 50)),
        }
    }
}
