//! The library of the programs `fit-check` and `cargo fit-check`.

pub mod advice;
pub mod cache;
mod cache_key;
mod card;
pub mod cargo;
mod child_process;
pub mod cli;
pub mod commands;
pub mod comparison;
pub mod completion;
pub mod counting_driver;
mod device_memory;
mod exit_status;
pub mod gpu_search;
mod hints;
pub mod input_options;
mod interrupt;
pub mod job_info;
mod local_gpu;
pub mod measure;
pub mod model_source;
pub mod output;
pub mod plots;
pub mod preset;
pub mod program;
mod progress;
pub mod records;
pub mod report;
pub mod resolve;
mod sandbox;
pub mod schema;
mod separator;
pub mod serve;
mod several_gpus;
mod size_limit;
mod step;
pub mod table;
mod terminal_state;
pub mod torch_program;
pub mod user_error;
mod user_program;
pub mod values;

pub use step::{
    STEPS, SimulatedObserver, measured_job, simulate_step, training_device, training_job,
};
