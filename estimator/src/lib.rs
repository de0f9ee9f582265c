//! Does this training step fit on this GPU? This crate runs burn training steps on simulated GPUs and
//! computes where their memory goes.
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::LinearConfig;
//! use burn::optim::{GradientsParams, SgdConfig};
//! use burn::tensor::{FloatDType, Tensor};
//! use estimator::{Gpu, Phase, Runtime, fits};
//!
//! let gpu = Gpu::find("rtx-3090").unwrap().spec(Runtime::Cuda);
//! let verdict = fits(&gpu, FloatDType::F32, |run| {
//!     let device = run.device();
//!     let layer = LinearConfig::new(4096, 4096).init(&device);
//!     run.module("", &layer);
//!     let loss = layer.forward(Tensor::<2>::zeros([512, 4096], &device)).mean();
//!     run.end(Phase::Forward);
//!     let gradients = GradientsParams::from_grads(loss.backward(), &layer);
//!     run.end(Phase::Backward);
//!     drop(SgdConfig::new().init().step(0.1, layer, gradients));
//!     run.end(Phase::Optimizer);
//! });
//! assert!(verdict.unwrap().fits());
//! ```
//!
//! [`estimate`] says how much memory a step takes and what for, [`fits`] whether a device has that much,
//! [`max_batch`] how many samples fit on it, [`largest_fits`] the same for many jobs and devices, and
//! [`find_devices`] on which devices a step fits.
//!
//! The estimator runs a step unchanged on a [`SimulatedCard`]: burn's own backend decides every buffer, and
//! CubeCL's own allocator takes pages, reuses them and runs out of memory. The result is a
//! [`Recording`](recording::Recording), from which this crate computes everything else.
//!
//! # The process
//!
//! To burn, simulated cards are the devices of ROCm. The root manifest of the workspace must therefore replace that
//! runtime:
//!
//! ```toml
//! [patch.crates-io]
//! cubecl-hip = { path = "estimator/hip-shim" }
//! ```
//!
//! Estimates belong in a process of their own, since they change configuration that the whole process shares, and leave
//! it changed: that of burn (whether it fuses, for each thread that has not read it yet), that of CubeCL (its tuner and
//! its logs), and the folder of CubeCL's database, in place of which CubeCL uses memory. A `burn.toml`, a `cubecl.toml` and
//! their environment variables have no effect there. burn also keeps what it learned about each card until the process
//! ends.
//!
//! Invariant: this crate does not know the name of any model, and has no formula for what a layer needs.

mod card;
mod catalogue;
mod device;
mod device_groups;
mod device_search;
mod error;
mod estimate;
mod gpu;
mod gpu_names;
mod job;
mod largest_batch;
mod modules;
mod parallel;
mod queue_lag;
mod replay;
mod required;
mod run;
mod run_kind;
mod simulated;
mod step_runs;
mod tensor;
mod tuned_devices;
mod verdict;

pub use card::{
    CardSpec, DeviceSpec, InPlace, KernelGroup, Refusals, Runtime, SimulatedCard, Simulation,
    configure_burn, listen_on_devices,
};
pub use catalogue::Overhead;
pub use device::{DeviceDescription, pools_of};
pub use device_groups::{group_by_kernels, group_identical};
pub use device_search::{find_devices, search_devices};
pub use error::{Error, OutOfMemory, panic_message};
pub use estimate::{Estimate, Peak, estimate};
pub use gpu::{Gpu, Provenance};
pub use gpu_names::{Instance, Meaning, NamedGpu, UnknownGpu};
pub use job::{Program, TrainingJob};
pub use largest_batch::{
    BatchObserver, CellResult, FirstRejected, LargestBatch, LargestFit, Limit, Method, Proposer,
    Scaling, largest_batch, largest_fit, largest_fits, max_batch,
};
pub use modules::{Kind as TensorKind, ModuleTensor, SeeGradient, visit_gradients, visit_tensors};
pub use parallel::{every_core_works, on_this_thread, parallel_map};
pub use recording::{
    ActiveOp, Analysis, Breakdown, Bytes, Categories, Category, LayerMemory, Phase, PhaseMemory,
    QueueLag, SizeError, kernel_name,
};
pub use replay::{ReplayOutcome, replay};
pub use run::Run;
pub use run_kind::RunKind;
pub use simulated::{Continued, FirstRun, Parameters, Simulated};
pub use simulated_card::{
    Choice, KernelPreference, RunConfig, RunReport, RunReportError, Shaders, StopReason,
    TrialSizes, Tuning, choices_made, listen, tuner_requests, upstream,
};
pub use step_runs::StepRuns;
pub use tensor::{BufferHandle, TensorBuffer, buffer_of, check_written, handle_of};
pub use tuned_devices::{MAX_TUNING_RUNS, TunedDevices, simulate};
pub use verdict::{Verdict, fits};
