//! The pieces of the program `fit-check`.

pub mod ask;
pub mod cli;
pub mod commands;
pub mod comparison;
pub mod measure;
pub mod output;
mod progress;
pub mod records;
pub mod report;
mod step;
pub mod trouble;

pub use step::{STEPS, Watched, float_type, simulate_step, training_device};
