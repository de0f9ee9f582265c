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
pub mod counting_driver;
mod exit_status;
pub mod gpu_search;
mod hints;
pub mod input_options;
mod interrupt;
pub mod job_info;
pub mod lower_bound;
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
pub mod schema;
mod size_limit;
mod step;
pub mod table;
pub mod user_error;
pub mod values;

pub use step::{STEPS, SimulatedObserver, simulate_step, training_device, training_job};
