//! The pieces of the program `fit-check`.

pub mod advice;
mod again;
pub mod ask;
pub mod cache;
pub mod cargo;
pub mod cli;
pub mod commands;
pub mod comparison;
pub mod counting_driver;
pub mod fits;
mod interrupt;
mod kernels;
pub mod lower_bound;
pub mod measure;
pub mod output;
pub mod own;
mod parallel;
pub mod picture;
pub mod preset;
pub mod program;
mod progress;
pub mod records;
pub mod report;
mod step;
pub mod table;
pub mod trouble;

pub use step::{STEPS, Watched, simulate_step, simulate_step_on, training_device};
