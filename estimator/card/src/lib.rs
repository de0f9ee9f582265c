//! GPUs that do not exist, and the recording of what happens on them.
//!
//! A card is a CubeCL server with CubeCL's own memory management over a storage that owns no
//! memory. `estimator` puts such cards under burn in its own process, and `fit-check/slot` under
//! a program that knows nothing of it.
//!
//! Invariant: this is below burn. It knows CubeCL and no tensor, and so cannot tell a weight from
//! an activation.

mod account;
mod bytes;
mod cuda;
mod launch_time;
mod layout;
mod memory;
mod names;
mod peaks;
mod phase;
mod properties;
pub mod record;
mod recorder;
mod registry;
mod server;
mod shaders;
mod spec;
mod steps;
mod stopwatch;
mod storage;
mod thread;
mod tuning;
mod wgpu;

pub use account::{Account, AccountError, Assignment, Ending};
pub use bytes::{Bytes, SizeError};
pub use layout::LayoutRule;
pub use memory::{CardMemory, MetadataBuffer};
pub use phase::Phase;
pub use recorder::{Recorder, Suspects};
pub use registry::{insert, present, remove, serve};
pub use server::{Shared, memory};
pub use shaders::Shaders;
pub use spec::{CardSpec, Pace, Runtime};
pub use steps::StepCounter;
pub use storage::Ledger;
pub use thread::{on_the_thread_of, reads, reads_here};
pub use tuning::{Choice, Favour, Tuning, listen};
