//! Runs burn training steps on GPUs that do not exist, and tells where their memory goes.
//!
//! A step is run once, as it is, on a [`SimulatedCard`]: burn's own backend decides every
//! buffer, and CubeCL's own allocator pages, reuses and runs out. What happened is a
//! [`Recording`](record::Recording); everything else here is read off it.
//!
//! Invariant: nothing here knows the name of a model, and no formula says what a layer
//! needs.

pub mod analysis;
mod bytes;
mod card;
mod catalogue;
mod device;
mod error;
mod estimate;
mod largest_batch;
mod modules;
mod phase;
pub mod record;
mod recorder;
mod replay;
mod required;
mod run;
mod tensor;

pub use analysis::{Breakdown, Categories, Category, PhaseMemory};
pub use bytes::{Bytes, SizeError};
pub use card::{CardSpec, Runtime, SimulatedCard};
pub use catalogue::{Gpu, Overhead, Provenance, UnknownGpu};
pub use device::{DeviceDescription, Shaders};
pub use error::{Error, OutOfMemory};
pub use estimate::{Analysis, AtWork, Estimate, LayerMemory, Peak};
pub use largest_batch::{LargestBatch, Limit, Next, Program, Scaling, largest_batch};
pub use modules::{Kind as TensorKind, ModuleTensor, visit_tensors};
pub use phase::Phase;
pub use replay::{Outcome, replay};
pub use run::{Parameters, Run, Simulated, Stopped, simulate};
pub use tensor::{TensorBuffer, buffer_of};
