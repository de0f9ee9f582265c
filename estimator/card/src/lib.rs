//! Simulated GPUs, which record what happens on them.
//!
//! A card is a CubeCL server with CubeCL's own memory management over a storage that owns no memory.
//! `estimator` puts such cards under burn in its own process, and `fit-check/shim` under an unmodified
//! program of a user.
//!
//! Invariant: this crate is below burn. It knows CubeCL and no tensor, and so cannot tell a weight from an
//! activation.

mod card_spec;
mod card_state;
mod current_device;
mod device_spec;
mod in_place;
mod launch_time;
mod layout;
mod memory;
mod memory_without_pools;
mod profiler;
mod recorder;
mod registry;
mod run_report;
mod runtime;
mod runtime_names;
mod server;
mod shaders;
mod storage;
mod throughput_probes;
mod trial_sizes;
mod tuner_log;
mod tuning;
mod unwritten;
pub mod upstream;

pub use card_spec::CardSpec;
pub use card_state::CardState;
pub use current_device::{can_read_on_current, set_current_card};
pub use device_spec::{DeviceSpec, KernelGroup, Simulation};
pub use in_place::InPlace;
pub use layout::LayoutRule;
pub use memory::{CardMemory, MetadataBuffer, cubecl_mode};
pub use recorder::Recorder;
pub use registry::{insert, present, remove};
pub use run_report::{RunConfig, RunReport, RunReportError, StopReason};
pub use runtime::{Runtime, RuntimeRules};
pub use server::{memory, serve};
pub use shaders::Shaders;
pub use storage::{MemoryBudget, Refusals};
pub use trial_sizes::TrialSizes;
pub use tuner_log::{choices_made, listen, listens, tuner_requests};
pub use tuning::{Choice, KernelPreference, TunerCalls, Tuning};
