//! A training step on a real device.
//!
//! The step runs in a child process, so that a driver that crashes, a full card or a step that hangs becomes
//! a value here. [`Setup`] starts the program again as `fit-check measure`, sends it a `Task`, and reads its
//! messages line by line.

mod ballast;
mod child;
mod devices;
mod driver;
mod observer;
mod panics;
mod parent;
mod process;
mod sampler;
mod setup;

use std::collections::HashMap;
use std::hash::Hash;

use estimator::{Breakdown, Bytes, Category, DeviceDescription, Tuning};
use model_zoo::Request;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counting_driver::JournalSpan;

pub use child::run as run_child;
pub use devices::{Backend, DeviceKind, DeviceName, DeviceReport, Found};
use recording::Pools;
pub use setup::{MemoryHold, Setup, list};

/// The task of the child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Task {
    /// Find all devices.
    List,
    /// Open a device and describe it.
    Probe(DeviceName),
    /// Train on a device.
    Train(DeviceName, Box<Training>),
    /// Hold memory of a device, so that only so much of it is free.
    Hold(DeviceName, Bytes),
}

/// A training job, and how it is measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Training {
    /// The text by which the process finds the model.
    pub model: String,
    /// How it is trained, and with how many samples.
    pub request: Request,
    /// Whether kernels are launched.
    pub mode: Mode,
    /// Whether the pools are sampled all the time, to find the most bytes in use within a phase. Sampling
    /// hands queued launches to the device earlier than usual.
    pub sampled: bool,
    /// The most host memory that the process may take.
    pub limit: Option<Bytes>,
    /// Whether burn's tuner knows the kernels of the step when it begins; if so, the step runs once before.
    pub tuning: Tuning,
    /// Whether burn fuses operations, where it is built with `fusion`.
    pub fused: bool,
}

/// How a step is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Mode {
    /// The device trains.
    Real,
    /// CubeCL's dry run: it compiles kernels without launching them, and reserves pages without touching
    /// them. The pools are those of the real runtime.
    DryRun,
}

/// A message of the child process, one line each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// All devices.
    Found(Vec<Found>),
    /// There is no such device.
    NoDevice,
    /// The device.
    Device(Box<Opened>),
    /// A phase ended.
    Mark(Box<Mark>),
    /// It holds the memory.
    Holding,
    /// The task failed.
    Failed(String),
    /// The task is complete.
    Done,
}

/// An opened device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// The description for people.
    pub report: DeviceReport,
    /// The properties of a simulated card like it.
    pub description: DeviceDescription,
    /// Memory that no process held after it was opened, if its driver reports it.
    pub free: Option<Bytes>,
}

/// The measurement at the end of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The phase that ended.
    pub phase: estimator::Phase,
    /// Optimizer steps completed before it.
    pub step: usize,
    /// The figures of burn's pools.
    pub pools: Pools,
    /// Bytes of the tensors that the program names, by category.
    pub said: Breakdown,
    /// The most bytes in use within the phase, if the pools were sampled.
    pub sampled: Option<Readings>,
    /// Host memory of the process.
    pub process: Option<Bytes>,
    /// Memory in use on the whole device, if its driver reports it.
    pub device: Option<Bytes>,
    /// What the counting driver's journal says of the phase, if the process is on that driver.
    pub journal: Option<JournalSpan>,
    /// How often burn's tuner was asked for a kernel that it did not know, since the step began. 0 for a cold step,
    /// whose process does not listen to the tuner.
    pub tuner_requests: u64,
}

/// Adds up by category the bytes of the buffers that the program names, each counted once. A buffer of a parameter
/// counts as parameter, whatever other names it has.
pub(crate) fn by_category<B: Eq + Hash>(
    named: impl IntoIterator<Item = (B, Category, Bytes)>,
) -> Breakdown {
    let mut buffers = HashMap::new();
    for (buffer, category, bytes) in named {
        let (known, _) = buffers.entry(buffer).or_insert((category, bytes));
        if *known != Category::Parameters {
            *known = category;
        }
    }
    let mut sums = Breakdown::default();
    for (category, bytes) in buffers.into_values() {
        sums[category] += bytes;
    }
    sums
}

/// The result of sampling the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Readings {
    /// The most bytes in use.
    pub most: Bytes,
    /// How often the pools answered.
    pub readings: u64,
}

/// How a measurement ended.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, strum::Display)]
#[serde(rename_all = "snake_case", tag = "how", content = "what")]
#[schemars(rename = "RunOutcome")]
pub enum Outcome {
    /// Every step ran.
    #[strum(to_string = "trained")]
    Trained,
    /// The device or the process had no memory left.
    #[strum(to_string = "ran out of memory: {0}")]
    OutOfMemory(String),
    /// The step failed in another way.
    #[strum(to_string = "failed: {0}")]
    Failed(String),
    /// A signal ended the process.
    #[strum(to_string = "was killed by signal {0}")]
    Killed(i32),
    /// The process ended itself with this status.
    #[strum(to_string = "ended with status {0}")]
    Exited(i32),
    /// The process took longer than these seconds.
    #[strum(to_string = "took longer than {0} s")]
    TimedOut(u64),
    /// The user interrupted it.
    #[strum(to_string = "was interrupted")]
    Interrupted,
}

impl Outcome {
    /// Whether the process was ended before it could show anything.
    pub fn is_cut_short(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Interrupted)
    }
}

/// A measurement, complete or not.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The device.
    pub device: Opened,
    /// The marks, phase by phase.
    pub marks: Vec<Mark>,
    /// The most bytes that the process held on the device at any time, if its driver counts them.
    pub peak_reserved: Option<Bytes>,
    /// The most bytes that the process held on the device within each phase, if its driver counts them.
    pub phase_peaks: Vec<Bytes>,
    /// How it ended.
    pub ending: Outcome,
}

impl Measurement {
    /// How often burn's tuner was asked in a warm step for a kernel that it did not know, up to the last mark; none
    /// if never.
    pub fn tuner_requests(&self) -> Option<u64> {
        let requests = self.marks.last()?.tuner_requests;
        (requests > 0).then_some(requests)
    }
}
