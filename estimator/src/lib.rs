//! Runs burn training steps on GPUs that do not exist, and tells where their memory goes.
//!
//! A step is run once, as it is, on a [`SimulatedCard`]: burn's own backend decides every
//! buffer, and CubeCL's own allocator pages, reuses and runs out. What happened is a
//! [`Recording`](record::Recording); everything else here is read off it.
//!
//! Invariant: nothing here knows the name of a model, and no formula says what a layer
//! needs.

pub mod analysis;
mod card;
mod catalogue;
mod device;
mod error;
mod estimate;
mod largest_batch;
mod modules;
mod replay;
mod required;
mod run;
mod tensor;
mod workbench;

pub use analysis::{Breakdown, Categories, Category, PhaseMemory};
pub use card::{CardSpec, Pace, Runtime, SimulatedCard};
pub use catalogue::{Gpu, Overhead, Provenance, UnknownGpu};
pub use device::{DeviceDescription, pools_of};
pub use error::{Error, OutOfMemory};
pub use estimate::{Analysis, AtWork, Estimate, LayerMemory, Peak, kernel_name};
pub use largest_batch::{
    Forecast, Foretold, LargestBatch, LargestFit, Limit, Next, Program, Scaling, largest_batch,
    largest_fit, largest_fit_near,
};
pub use modules::{Kind as TensorKind, ModuleTensor, visit_tensors};
pub use replay::{Outcome, replay};
pub use run::{FirstRun, Parameters, Run, Simulated, Stopped, simulate};
pub use simulated_card::{
    Account, AccountError, Assignment, Bytes, Choice, Ending, Favour, Phase, Shaders, SizeError,
    Tuning, listen, record,
};
pub use tensor::{BufferHandle, TensorBuffer, buffer_of, check_written, handle_of};
pub use workbench::Workbench;
