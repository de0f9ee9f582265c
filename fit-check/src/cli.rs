//! The command line, as it is typed. [`crate::resolve`] turns it into plain values; nothing after
//! that knows clap.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::input_options::TypedSizes;

/// Does this training job fit on this card? What is the largest batch that does? Where does
/// the memory go?
#[derive(Debug, Parser)]
#[command(name = "fit-check", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Memory of one training step, by category and layer
    Estimate(Estimate),
    /// Largest batch per card
    MaxBatch(MaxBatch),
    /// Largest batches of models x cards x precisions
    Table(Box<Table>),
    /// Run the step for real, on a device of this machine, and compare
    Verify(Box<Verify>),
    /// Run a CUDA program of yours on cards that do not exist: what it takes of their memory
    Run(Box<Run>),
    /// The process that `verify` trains in
    #[command(hide = true)]
    Measure,
    /// The zoo: variants, parameters, defaults, sources
    Models(Models),
    /// The catalogue of cards: marketed and usable memory, provenance
    Gpus(Box<Gpus>),
    /// Answers that are kept between calls: where, how many; or take them away
    Cache(Cache),
    /// The script with which a shell completes what is typed
    Completions(Completions),
    /// The manual page, in the format of man
    Man(Man),
}

/// `cache`.
#[derive(Debug, Args)]
pub struct Cache {
    /// Take all answers away
    #[arg(long)]
    pub clear: bool,
    /// Where what is to say of it goes.
    #[command(flatten)]
    pub output: Output,
}

/// `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// For which shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Of this command alone
    pub command: Option<String>,
}

/// `estimate`.
#[derive(Debug, Args)]
pub struct Estimate {
    /// Which job.
    #[command(flatten)]
    pub job: Job,
    /// Samples in a batch [default: that of the published recipe]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<String>,
    /// Tokens in a batch instead: as many samples as have no more (of a translation, the longer
    /// side counts)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub tokens: Option<String>,
    /// Add a table of all layers
    #[arg(long)]
    pub layers: bool,
    /// Add what burn's tuner chose for the ten largest operations, and what is in use at the peak with
    /// the leanest and with the hungriest kernels that it chooses between
    #[arg(long)]
    pub kernels: bool,
    /// Where pictures of it go.
    #[command(flatten)]
    pub plots: PlotFiles,
    /// Say what would make it fit, each change simulated: always, never, auto (where it does not
    /// fit, how to ask for it)
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub advise: Advise,
    /// Whether the answer is kept.
    #[command(flatten)]
    pub caching: Caching,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// Where pictures of a step go.
#[derive(Debug, Args)]
pub struct PlotFiles {
    /// Write a page for a browser: memory over the step, layers, assumptions
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the chart alone: memory over the step, by category
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write trace events for Perfetto (ui.perfetto.dev): memory by category, phases and layers
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// `max-batch`.
#[derive(Debug, Args)]
pub struct MaxBatch {
    /// Which job.
    #[command(flatten)]
    pub job: Job,
    /// Say what would let more samples fit, each change simulated: always, never, auto (where not
    /// even one fits, how to ask for it)
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub advise: Advise,
    /// Whether the answer is kept.
    #[command(flatten)]
    pub caching: Caching,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// `table`.
#[derive(Debug, Args)]
pub struct Table {
    /// Models of the zoo, or paths as `estimate` takes them [default: the whole zoo]
    #[arg(value_name = "MODEL")]
    pub models: Vec<String>,
    /// The rows and columns of a published table: lambda-2020
    #[arg(long, value_name = "NAME", conflicts_with = "models")]
    pub preset: Option<String>,
    /// Number formats: fp32, fp16, bf16, mixed; repeatable [default: fp32; of a preset fp32 and
    /// mixed]
    #[arg(long, value_name = "FORMAT")]
    pub precision: Vec<String>,
    /// How the models are trained.
    #[command(flatten)]
    pub options: Options,
    /// What they are to fit on.
    #[command(flatten)]
    pub cards: Cards,
    /// Several cards in one: rtx-3090,l4,24GB, or `all` that the runtime drives [default: the
    /// least usable cards sold with 8, 12, 16, 24, 48 and 80 GB]
    #[arg(long, value_name = "CARDS")]
    pub gpus: Option<String>,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// `verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// A model of the zoo, for instance resnet-20 (`fit-check models` lists them)
    #[arg(required_unless_present = "list")]
    pub model: Option<String>,
    /// How it is trained.
    #[command(flatten)]
    pub step: Step,
    /// Samples in a batch [default: that of the published recipe]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<String>,
    /// The device to train on: wgpu, or wgpu:1 for the second; vulkan, cuda and metal are
    /// cargo features
    #[arg(long, default_value = "wgpu", value_name = "DEVICE")]
    pub device: String,
    /// With --device cuda and without an NVIDIA GPU: train on CUDA's own runtime with a driver that
    /// counts the memory of this card and runs nothing
    #[arg(long, value_name = "CARD")]
    pub gpu: Option<String>,
    /// The driver under --device cuda: nvidia; counting, which counts memory and runs nothing
    /// (without --gpu: that of a card with as much memory as is asked for) [default: nvidia where
    /// there is one and no --gpu]
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<String>,
    /// Whether burn's kernels are tuned while the step runs (cold), or were before, in a run of the same
    /// process (warm)
    #[arg(long, default_value = "cold", value_name = "STATE")]
    pub tuning: String,
    /// List the devices that were found
    #[arg(long)]
    pub list: bool,
    /// Launch no kernels and touch no memory: the pools of the real runtime in seconds, for
    /// models larger than the device too
    #[arg(long, conflicts_with = "max_batch")]
    pub dry_run: bool,
    /// Find the largest batch for --memory or --gpu, train it, and see that one more sample fails
    #[arg(long, conflicts_with = "batch")]
    pub max_batch: bool,
    /// The memory that is left to the job with --max-batch: 2GB is 2 * 10^9 bytes [default, with
    /// --gpu: what a process leaves of that card]
    #[arg(
        long,
        value_name = "SIZE",
        requires = "max_batch",
        allow_hyphen_values = true
    )]
    pub memory: Option<String>,
    /// How far above the measurement the estimate may be, in percent
    #[arg(
        long,
        default_value = "2",
        value_name = "PERCENT",
        allow_hyphen_values = true
    )]
    pub tolerance: String,
    /// Seconds after which a run on the device is given up
    #[arg(
        long,
        default_value = "600",
        value_name = "SECONDS",
        allow_hyphen_values = true
    )]
    pub timeout: String,
    /// Append the outcome to the records in this repository
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub record: Option<Option<PathBuf>>,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// A card (rtx-3090), or a class (24GB: the least usable card sold with it); repeatable: the
    /// program finds them as cuda:0, cuda:1, …
    #[arg(long, value_name = "CARD")]
    pub gpu: Vec<String>,
    /// A card with exactly this much memory for the program: 10GB is 10^10 bytes, 10GiB is 10 * 2^30
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Seconds after which the program is ended
    #[arg(
        long,
        default_value = "600",
        value_name = "SECONDS",
        allow_hyphen_values = true
    )]
    pub timeout: String,
    /// Write a page for a browser: the memory that the program has, over its calls of the driver
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Where the answer goes; the program's own output goes where it always does.
    #[command(flatten)]
    pub output: Output,
    /// The program, built with burn's feature `cuda`, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<std::ffi::OsString>,
}

/// `models`.
#[derive(Debug, Args)]
pub struct Models {
    /// Show one in full
    pub model: Option<String>,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// `gpus`.
#[derive(Debug, Args)]
pub struct Gpus {
    /// Show one in full: a name, an alias, or a class such as 24GB
    pub card: Option<String>,
    /// Those on which a training step of this model fits, the least memory first
    #[arg(long, value_name = "MODEL", conflicts_with = "card")]
    pub fits: Option<String>,
    /// Samples in a batch, with --fits [default: that of the published recipe]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<String>,
    /// Tokens in a batch instead, with --fits
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub tokens: Option<String>,
    /// How it is trained.
    #[command(flatten)]
    pub step: Step,
    /// The runtime that burn drives the cards with: cuda, vulkan, wgpu
    #[arg(long, default_value = "cuda", value_name = "RUNTIME")]
    pub runtime: String,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// A training job and the cards that it is to fit on.
#[derive(Debug, Args)]
pub struct Job {
    /// A model of the zoo, for instance resnet-50 (`fit-check models` lists them), or a path: a
    /// safetensors file or its index, a config.json, or a folder with them
    pub model: String,
    /// How it is trained.
    #[command(flatten)]
    pub step: Step,
    /// What it is to fit on.
    #[command(flatten)]
    pub cards: Cards,
}

/// How a model is trained.
#[derive(Clone, Debug, Args)]
pub struct Step {
    /// Number formats: fp32, fp16, bf16, mixed (16-bit with fp32 master weights)
    #[arg(long, default_value = "fp32", value_name = "FORMAT")]
    pub precision: String,
    /// Everything else.
    #[command(flatten)]
    pub options: Options,
}

/// How a model is trained, but for its number formats.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// sgd, momentum, adam, adamw, … [default: that of the published recipe]
    #[arg(long, value_name = "NAME")]
    pub optimizer: Option<String>,
    /// Sizes of a sample.
    #[command(flatten)]
    pub sizes: TypedSizes,
    /// Batches whose gradients are added up before each optimizer step
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub accumulate: Option<String>,
    /// Compute activations again in the backward pass, where burn can
    #[arg(long)]
    pub checkpointing: bool,
    /// Do not train the parameters below this path (repeatable)
    #[arg(long, value_name = "PREFIX")]
    pub freeze: Vec<String>,
    /// Train low-rank adapters of this rank in place of the weights
    #[arg(long, value_name = "RANK", allow_hyphen_values = true)]
    pub lora: Option<String>,
    /// The projections with adapters, for instance q,v [default: those of PEFT]
    #[arg(long, value_name = "NAMES", requires = "lora")]
    pub lora_targets: Option<String>,
    /// The frozen weights beside adapters: dense (as --precision says), 8bit, 4bit
    #[arg(
        long,
        default_value = "dense",
        value_name = "FORMAT",
        requires = "lora"
    )]
    pub lora_base: String,
}

/// Cards, simulated.
#[derive(Debug, Args)]
pub struct Cards {
    /// The runtime that burn drives the card with: cuda, vulkan, wgpu
    #[arg(long, default_value = "cuda", value_name = "RUNTIME")]
    pub runtime: String,
    /// Whether burn's kernels were tuned before (warm), or are tuned while the step runs (cold)
    #[arg(long, default_value = "warm", value_name = "STATE")]
    pub tuning: String,
    /// A card (rtx-3090), or a class (24GB: the least usable card sold with it); repeatable
    #[arg(long, value_name = "CARD")]
    pub gpu: Vec<String>,
    /// Exactly this much memory for the job: 10GB is 10^10 bytes, 10GiB is 10 * 2^30
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<String>,
}

/// Where the answer goes, and how it looks.
#[derive(Clone, Debug, Args)]
pub struct Output {
    /// How the answer looks
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Write the answer to a file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// No progress and no notes (FIT_CHECK_NO_PROGRESS in the environment: no progress)
    #[arg(long, short)]
    pub quiet: bool,
}

/// Whether answers are kept between calls.
#[derive(Clone, Copy, Debug, Args)]
pub struct Caching {
    /// Simulate anew, and do not keep the answer
    #[arg(long)]
    pub no_cache: bool,
}

/// When to say what would make a job fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Advise {
    /// Where it does not, how to ask for it: each change takes about as long as the answer.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// Not at all.
    Never,
}

/// How an answer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A page for a terminal
    Table,
    /// For programs
    Json,
    /// For spreadsheets
    Csv,
    /// For issues and pages
    Markdown,
    /// For browsers; only of `table`
    Html,
}
