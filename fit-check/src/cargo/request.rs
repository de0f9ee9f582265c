//! The request of `cargo fit-check`, as plain values.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use estimator::{DeviceSpec, Runtime, Tuning};
use strum::VariantNames;

use super::cli::CargoOptions;
use crate::resolve::{self, Card};
use crate::user_error::UserError;
use crate::values;

/// A user's program, how it is built, and the device that it runs on.
#[derive(Clone, Debug)]
pub struct ProgramRequest {
    /// The program.
    pub target: TargetRequest,
    /// How it is built.
    pub build: BuildOptions,
    /// The arguments of the program itself.
    pub args: Vec<OsString>,
    /// The device that it runs on: a card with unlimited memory.
    pub device: DeviceSpec,
    /// The cards on which it should fit.
    pub cards: Vec<Card>,
    /// How many equal training steps in a row are enough.
    pub steps: usize,
    /// How long the program may take to its first use of the card, and then run on it if no equal steps are found.
    pub timeout: Duration,
    /// Whether the program may change the user's files.
    pub allow_writes: bool,
    /// Whether to show only the answer.
    pub quiet: bool,
}

/// The names that select a program of a workspace.
#[derive(Clone, Debug, Default)]
pub struct TargetRequest {
    /// The package's Cargo.toml, if not that of the folder.
    pub manifest_path: Option<PathBuf>,
    /// The package, if one was named.
    pub package: Option<String>,
    /// The program, if one was named.
    pub bin: Option<String>,
    /// An example in place of a program, if one was named.
    pub example: Option<String>,
}

/// How a program is built.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Features besides burn's `rocm`.
    pub features: Vec<String>,
    /// Whether to leave the package's default features out.
    pub no_default_features: bool,
    /// Whether to build with optimizations.
    pub release: bool,
    /// Whether to build without the network.
    pub offline: bool,
}

impl ProgramRequest {
    /// Resolves the command line.
    ///
    /// # Errors
    ///
    /// A value is invalid; the error has a hint.
    pub fn new(raw: CargoOptions) -> Result<Self, UserError> {
        let runtime = values::choice("--runtime", &raw.runtime, Runtime::VARIANTS)?;
        // A program's first steps tune what they meet.
        let cards = resolve::cards(&raw.gpu, raw.memory.as_deref(), runtime, Tuning::Cold)?;
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
            allow_writes: raw.allow_writes,
            quiet: raw.output.quiet,
        })
    }
}
