//! The command line of `cargo fit-check`, as it is typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser};

use crate::cli::Output;

/// How cargo calls a program of this name.
#[derive(Debug, Parser)]
#[command(name = "cargo", bin_name = "cargo", max_term_width = 100)]
pub enum Cargo {
    /// Memory of your own burn program: its training steps, run on a simulated card
    #[command(name = "fit-check", version)]
    FitCheck(Box<Program>),
}

/// A program, the card that it is to run on, and when that is enough.
#[derive(Debug, Args)]
pub struct Program {
    /// The program to run [default: the only one, or the package's default-run]
    #[arg(long, value_name = "NAME", conflicts_with = "example")]
    pub bin: Option<String>,
    /// An example to run instead
    #[arg(long, value_name = "NAME")]
    pub example: Option<String>,
    /// The package that it is in
    #[arg(long, short, value_name = "NAME")]
    pub package: Option<String>,
    /// The package's Cargo.toml
    #[arg(long, value_name = "PATH")]
    pub manifest_path: Option<PathBuf>,
    /// Features to build it with, beside burn's rocm
    #[arg(long, short = 'F', value_name = "FEATURES")]
    pub features: Vec<String>,
    /// Without the package's default features
    #[arg(long)]
    pub no_default_features: bool,
    /// Build it optimized
    #[arg(long, short)]
    pub release: bool,
    /// Without the network
    #[arg(long)]
    pub offline: bool,
    /// The runtime that burn drives the card with: cuda, vulkan, wgpu
    #[arg(long, default_value = "cuda", value_name = "RUNTIME")]
    pub runtime: String,
    /// A card (rtx-3090), or a class (24GB: the least usable card sold with it); repeatable
    #[arg(long, value_name = "CARD")]
    pub gpu: Vec<String>,
    /// Exactly this much memory for the job: 10GB is 10^10 bytes, 10GiB is 10 * 2^30
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Stop after so many equal training steps in a row, at least two
    #[arg(
        long,
        default_value = "2",
        value_name = "K",
        allow_hyphen_values = true
    )]
    pub steps: String,
    /// Seconds that the program may run on the card where no steps are found
    #[arg(
        long,
        default_value = "60",
        value_name = "SECONDS",
        allow_hyphen_values = true
    )]
    pub timeout: String,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
    /// What the program itself is called with
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}
