//! What `cargo fit-check` is to build and to run, as plain values.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use estimator::{DeviceSpec, Tuning};

use super::cli::Program;
use crate::cli::Cards;
use crate::resolve::{self, Card};
use crate::user_error::UserError;
use crate::values;

/// A program of a user, how it is built, and on what it runs.
#[derive(Clone, Debug)]
pub struct ProgramRequest {
    /// Which program.
    pub target: TargetRequest,
    /// How it is built.
    pub build: BuildOptions,
    /// What the program itself is called with.
    pub args: Vec<OsString>,
    /// On what it runs: a card with as much memory as it asks for.
    pub device: DeviceSpec,
    /// The cards that it is to fit on.
    pub cards: Vec<Card>,
    /// So many equal training steps in a row are enough.
    pub steps: usize,
    /// How long the program may run on the card where no steps are found.
    pub timeout: Duration,
    /// Whether only the answer is shown.
    pub quiet: bool,
}

/// Which program of a workspace.
#[derive(Clone, Debug, Default)]
pub struct TargetRequest {
    /// The package's Cargo.toml, if not that of the folder.
    pub manifest_path: Option<PathBuf>,
    /// The package, if one was named.
    pub package: Option<String>,
    /// The program, if one was named.
    pub bin: Option<String>,
    /// An example in its place.
    pub example: Option<String>,
}

/// How a program is built.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Features beside burn's `rocm`.
    pub features: Vec<String>,
    /// Without the package's default features.
    pub no_default_features: bool,
    /// Optimized.
    pub release: bool,
    /// Without the network.
    pub offline: bool,
}

impl ProgramRequest {
    /// From the command line.
    ///
    /// # Errors
    ///
    /// A value that cannot be, with what would help.
    pub fn new(raw: Program) -> Result<Self, UserError> {
        let cards = Cards {
            runtime: raw.runtime,
            // A program's first steps tune what they meet.
            tuning: Tuning::Cold.to_string(),
            gpu: raw.gpu,
            memory: raw.memory,
        };
        let runtime = resolve::runtime(&cards)?;
        let cards = resolve::cards(&cards, &cards.gpu, runtime)?;
        let device = match cards.first() {
            Some(card) => card.device.without_limit(),
            None => DeviceSpec::unlimited(runtime).with_tuning(Tuning::Cold),
        };
        Ok(Self {
            target: TargetRequest {
                manifest_path: raw.manifest_path,
                package: raw.package,
                bin: raw.bin,
                example: raw.example,
            },
            build: BuildOptions {
                features: raw.features,
                no_default_features: raw.no_default_features,
                release: raw.release,
                offline: raw.offline,
            },
            args: raw.args,
            device,
            cards,
            steps: values::count("--steps", &raw.steps)?,
            timeout: values::seconds("--timeout", &raw.timeout)?,
            quiet: raw.output.quiet,
        })
    }
}
