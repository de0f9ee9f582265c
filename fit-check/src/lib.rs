//! The pieces of the program `fit-check`.

pub mod ask;
pub mod cli;
pub mod commands;
pub mod comparison;
pub mod lower_bound;
pub mod measure;
pub mod output;
pub mod own;
pub mod program;
mod progress;
pub mod records;
pub mod report;
mod step;
pub mod trouble;

pub use step::{STEPS, Watched, simulate_step, training_device};
