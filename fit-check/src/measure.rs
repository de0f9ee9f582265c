//! A training step on a real device.
//!
//! It runs in a process of its own, so that a driver that crashes, a full card or a step that
//! hangs ends as a value here: [`Setup`] starts the program again as `fit-check measure`,
//! hands it a `Task`, and collects what it says, line by line.

mod ballast;
mod child;
mod devices;
mod driver;
mod observer;
mod parent;
mod process;
mod sampler;

use std::collections::HashMap;
use std::hash::Hash;

use estimator::record::Pools;
use estimator::{Bytes, DeviceDescription, Tuning};
use model_zoo::Request;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use child::run as run_child;
pub use devices::{Backend, DeviceKind, DeviceName, DeviceReport, Found};
pub use parent::{MemoryHold, Setup, list};

/// What the other process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Task {
    /// Find all devices.
    List,
    /// Open a device and describe it.
    Probe(DeviceName),
    /// Train on a device.
    Train(DeviceName, Box<Training>),
    /// Hold memory of a device, so that just so much of it is free.
    Hold(DeviceName, Bytes),
}

/// A training job, and how it is measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Training {
    /// The model, as it was typed.
    pub model: String,
    /// How it is trained, and with how many samples.
    pub request: Request,
    /// Whether kernels are launched.
    pub mode: Mode,
    /// Whether the pools are asked all the time for the most that they hold within a phase;
    /// asking hands queued launches to the device earlier than they would be.
    pub sampled: bool,
    /// The most memory that the process may take of the host.
    pub limit: Option<Bytes>,
    /// Whether burn's tuner knows the kernels of the step when it begins: if so, the step is run before.
    pub tuning: Tuning,
}

/// How a step is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Mode {
    /// As it is: the device trains.
    Real,
    /// CubeCL's dry run: kernels are compiled and not launched, pages are reserved and not
    /// touched; the pools are those of the real runtime.
    DryRun,
}

/// What the other process says, one line each.
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
    /// It holds what it was to hold.
    Holding,
    /// It went wrong.
    Failed(String),
    /// It came to its end.
    Done,
}

/// A device that was opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// For people.
    pub report: DeviceReport,
    /// For a simulated card like it.
    pub description: DeviceDescription,
    /// Memory that no process held when it had been opened, where its driver says so.
    pub free: Option<Bytes>,
}

/// What was measured at the end of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Which phase ended.
    pub phase: estimator::Phase,
    /// Optimizer steps completed before it.
    pub step: usize,
    /// What burn's pools hold.
    pub pools: Pools,
    /// What the program says of its tensors.
    pub said: Roles,
    /// The most in use that was seen within the phase, if the pools were asked all the time.
    pub sampled: Option<Readings>,
    /// Host memory of the process.
    pub process: Option<Bytes>,
    /// Memory of the whole device in use, as its driver says.
    pub device: Option<Bytes>,
}

/// What the program says that a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It holds a parameter.
    Parameter,
    /// It holds a running statistic.
    Statistic,
    /// It holds the gradient of a parameter.
    Gradient,
    /// It holds a tensor of the batch.
    Input,
}

/// Bytes of the buffers whose purpose the program states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Roles {
    /// Of parameters.
    pub parameters: Bytes,
    /// Of running statistics.
    pub buffers: Bytes,
    /// Of gradients of parameters.
    pub gradients: Bytes,
    /// Of the batch.
    pub inputs: Bytes,
}

impl Roles {
    /// Of the buffers that `said` names, each counted once: a parameter stays one, whatever
    /// else the same buffer is called.
    pub fn of<B: Eq + Hash>(said: impl IntoIterator<Item = (B, Purpose, Bytes)>) -> Self {
        let mut named = HashMap::new();
        for (buffer, purpose, bytes) in said {
            let (known, _) = named.entry(buffer).or_insert((purpose, bytes));
            if *known != Purpose::Parameter {
                *known = purpose;
            }
        }
        let mut roles = Self::default();
        for (purpose, bytes) in named.into_values() {
            *match purpose {
                Purpose::Parameter => &mut roles.parameters,
                Purpose::Statistic => &mut roles.buffers,
                Purpose::Gradient => &mut roles.gradients,
                Purpose::Input => &mut roles.inputs,
            } += bytes;
        }
        roles
    }

    /// All of them together.
    pub fn total(&self) -> Bytes {
        self.parameters + self.buffers + self.gradients + self.inputs
    }
}

/// What was seen by asking all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Readings {
    /// The most bytes in use.
    pub most: Bytes,
    /// How often the pools answered.
    pub readings: u64,
}

/// How a measurement ended.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "what")]
pub enum Outcome {
    /// Every step ran.
    Trained,
    /// The device or the process had no memory left.
    OutOfMemory(String),
    /// The step failed in another way.
    Failed(String),
    /// The process was ended by a signal.
    Killed(i32),
    /// The process ended itself with this status.
    Exited(i32),
    /// It took longer than these seconds.
    TimedOut(u64),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trained => write!(f, "trained"),
            Self::OutOfMemory(what) => write!(f, "ran out of memory: {what}"),
            Self::Failed(what) => write!(f, "failed: {what}"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
            Self::Exited(status) => write!(f, "ended with status {status}"),
            Self::TimedOut(seconds) => write!(f, "took longer than {seconds} s"),
        }
    }
}

/// A measurement, as far as it came.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The device.
    pub device: Opened,
    /// Phase by phase.
    pub marks: Vec<Mark>,
    /// The most that the process had of the device at any time, where its driver counts it.
    pub peak_reserved: Option<Bytes>,
    /// How it ended.
    pub ending: Outcome,
}
