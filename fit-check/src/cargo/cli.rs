//! The command line of `cargo fit-check`, as typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser};

use crate::cli::Output;

/// The command line with which cargo calls a program of this name.
#[derive(Debug, Parser)]
#[command(name = "cargo", bin_name = "cargo", max_term_width = 100)]
pub enum Cargo {
    /// Memory of your own burn program: its training steps, run on a simulated card
    #[command(name = "fit-check", version)]
    FitCheck(Box<CargoOptions>),
}

/// A program, the card that it runs on, and when to stop it.
#[derive(Debug, Args)]
pub struct CargoOptions {
    /// The program to run [default: the only one, or the package's default-run]
    #[arg(long, value_name = "NAME", conflicts_with = "example")]
    pub bin: Option<String>,
    /// An example to run instead
    #[arg(long, value_name = "NAME")]
    pub example: Option<String>,
    /// The package of the program
    #[arg(long, short, value_name = "NAME")]
    pub package: Option<String>,
    /// The package's Cargo.toml
    #[arg(long, value_name = "PATH")]
    pub manifest_path: Option<PathBuf>,
    /// Features to build it with, besides burn's rocm
    #[arg(long, short = 'F', value_name = "FEATURES")]
    pub features: Vec<String>,
    /// Build it without the package's default features
    #[arg(long)]
    pub no_default_features: bool,
    /// Build it with optimizations
    #[arg(long, short)]
    pub release: bool,
    /// Build it without the network
    #[arg(long)]
    pub offline: bool,
    /// The runtime with which burn drives the card: cuda, vulkan, wgpu
    #[arg(long, default_value = "cuda", value_name = "RUNTIME")]
    pub runtime: String,
    /// A card (rtx-3090), or a class (24GB: of the cards sold with it, the one with the least usable memory);
    /// repeatable
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
    /// Seconds that the program may take to its first use of the card, and then run on it if no equal steps are found
    #[arg(
        long,
        default_value = "60",
        value_name = "SECONDS",
        allow_hyphen_values = true
    )]
    pub timeout: String,
    /// Let the program change your files. Otherwise all that it writes is gone when it ends
    #[arg(long)]
    pub allow_writes: bool,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
    /// The arguments of the program itself
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}
