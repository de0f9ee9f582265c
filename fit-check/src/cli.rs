//! The command line, as typed. [`crate::resolve`] turns it into plain values; nothing after that knows clap.
//!
//! The file is long because it has one structure for each command, and nothing else.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::child_process;
use crate::input_options::TypedSizes;
use crate::separator;
use crate::user_error::UserError;

/// Does this training job fit on this card? What is the largest batch that does? Where does
/// the memory go?
///
/// The figures are those of burn, whose training steps fit-check runs on simulated cards. PyTorch's differ: of
/// eleven steps that were measured it took 0.4 to 1.2 times as much.
#[derive(Debug, Parser)]
#[command(name = "fit-check", version, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The command line of a user, without the commands of this program's own processes: none of them is suggested.
pub fn command() -> clap::Command {
    let all = Cli::command();
    let shown = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    clap::Command::new("fit-check")
        .version(env!("CARGO_PKG_VERSION"))
        .about(all.get_about().cloned().unwrap_or_default())
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(shown.cloned())
}

/// Parses the arguments of this process. If clap refuses them, this prints why and ends the process.
///
/// # Errors
///
/// A program is there without the `--` before it.
pub fn parse() -> Result<Cli, UserError> {
    if child_process::is_own() {
        return Ok(Cli::parse());
    }
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            let words: Vec<_> = words.collect();
            return Err(separator::missing(&words, &error).unwrap_or_else(|| error.exit()));
        }
    };
    Ok(Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
}

/// A command and its options.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Memory of one training step, by category and layer
    Estimate(Estimate),
    /// Largest batch per card
    MaxBatch(MaxBatch),
    /// Longest sequence per card, for a batch
    MaxSeq(MaxSeq),
    /// Largest batches of models x cards x precisions
    Table(Box<Table>),
    /// Run the step, or your PyTorch program, on a device of this machine, and compare the estimate with it
    Verify(Box<Verify>),
    /// Run your PyTorch or burn program on cards that do not exist, and report the memory that it takes
    Run(Box<Run>),
    /// The process in which `verify` trains
    #[command(hide = true)]
    Measure,
    /// The process in which `table` fills a row
    #[command(hide = true)]
    Row,
    /// The zoo: variants, parameters, defaults, sources
    Models(Models),
    /// The catalogue of cards: marketed and usable memory, provenance
    Gpus(Box<Gpus>),
    /// Serve a page to ask from, for browsers on this machine
    Serve(crate::serve::Options),
    /// Show or delete the answers that are kept between calls
    Cache(Cache),
    /// Print the script with which a shell completes commands and options
    Completions(Completions),
    /// Print the manual page, in the format of man
    Man(Man),
}

/// The options of `cache`.
#[derive(Debug, Args)]
pub struct Cache {
    /// Delete everything that is kept
    #[arg(long)]
    pub clear: bool,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// The options of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// The options of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Print only the page of this command
    pub command: Option<String>,
}

/// The options of `estimate`.
#[derive(Debug, Args)]
pub struct Estimate {
    /// The job.
    #[command(flatten)]
    pub job: Job,
    /// Models beside the first, of which the command says that it takes one.
    #[arg(hide = true, value_name = "MODEL")]
    pub more: Vec<String>,
    /// Samples in a batch [default: the batch of the published recipe]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<String>,
    /// Tokens in a batch instead of samples: the batch has as many samples as N tokens allow (for
    /// translation, the longer side counts)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub tokens: Option<String>,
    /// Add what few people need: the memory that burn's pools reserve without a limit, the first run by itself,
    /// the kernel at the peak, the phases
    #[arg(long)]
    pub details: bool,
    /// Add a table of all layers
    #[arg(long)]
    pub layers: bool,
    /// Add the kernels that burn's tuner chose for the ten largest operations, and the memory in use at the
    /// peak with the kernels that need the least and the most memory
    #[arg(long)]
    pub kernels: bool,
    /// The files of plots.
    #[command(flatten)]
    pub plots: PlotFiles,
    /// Simulate changes that would make the job fit: always, never, auto (if it does not fit, say how to ask
    /// for them)
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub advise: Advise,
    /// Whether the answer is kept.
    #[command(flatten)]
    pub caching: Caching,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// The files into which a step is drawn.
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

/// The options of `max-batch`.
#[derive(Debug, Args)]
#[command(mut_args(not_with_command))]
pub struct MaxBatch {
    /// The job.
    #[command(flatten)]
    pub job: Job,
    /// Models beside the first, of which the command says that it takes one.
    #[arg(hide = true, value_name = "MODEL")]
    pub more: Vec<String>,
    /// Simulate changes that would let more samples fit: always, never, auto (if not even one sample fits,
    /// say how to ask for them)
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub advise: Advise,
    /// Keep what was recorded of a PyTorch program, or with --framework pytorch: `estimate FILE --batch N`,
    /// `max-batch FILE` and `gpus --fits FILE` answer from it for any card, without the program
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Whether the answer is kept.
    #[command(flatten)]
    pub caching: Caching,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
    /// How a program is run.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// A PyTorch program and its arguments in place of a model, with {batch} where the batch goes, and {seq} for --seq
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// The options of `max-seq`.
#[derive(Debug, Args)]
#[command(mut_args(not_a_length))]
pub struct MaxSeq {
    /// The job.
    #[command(flatten)]
    pub job: Job,
    /// Samples in a batch [default: the batch of the published recipe]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<String>,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// `arg` of `max-seq`, which is not the length that it looks for.
fn not_a_length(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "seq" | "src_seq" | "attention" | "python" => arg.hide(true).conflicts_with("model"),
        _ => arg,
    }
}

/// `arg` of a command that takes a program in place of a model: what describes the job is then in the program.
fn not_with_command(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "gpu" | "gpus" | "memory" | "seq" | "advise" | "svg" | "save" | "format" | "output"
        | "quiet" | "command" => arg,
        "allow_writes" | "timeout" => arg.requires("command"),
        // A default value, and not an option, since `estimate` shares it and needs one.
        "model" => arg
            .required(false)
            .required_unless_present("command")
            .default_value(""),
        _ => arg.conflicts_with("command"),
    }
}

/// The options of `table`.
#[derive(Debug, Args)]
#[command(mut_args(not_with_command))]
pub struct Table {
    /// Models of the zoo, or paths or names as for `estimate` [default: the whole zoo]
    #[arg(value_name = "MODEL")]
    pub models: Vec<String>,
    /// Where names on the Hub are looked for.
    #[command(flatten)]
    pub hub: HubAccess,
    /// Use the rows and columns of a published table: lambda-2020
    #[arg(long, value_name = "NAME", conflicts_with = "models")]
    pub preset: Option<String>,
    /// The framework that trains them: burn, pytorch, or burn,pytorch for networks that were recorded beforehand
    #[arg(long, default_value = "burn", value_name = "NAME")]
    pub framework: String,
    /// What only PyTorch has.
    #[command(flatten)]
    pub torch: TorchOptions,
    /// Number formats: fp32, fp16, bf16, mixed; several with commas, or repeated [default: fp32; with --preset fp32 and mixed]
    #[arg(long, value_name = "FORMAT")]
    pub precision: Vec<String>,
    /// How the models are trained.
    #[command(flatten)]
    pub options: Options,
    /// The cards on which they should fit.
    #[command(flatten)]
    pub cards: Cards,
    /// Several cards: rtx-3090,l4,24GB, or `all` that the runtime drives [default: for each of 8, 12, 16, 24,
    /// 48 and 80 GB, the card sold with it that has the least usable memory]
    #[arg(long, value_name = "CARDS")]
    pub gpus: Option<String>,
    /// Draw the largest batches over the sizes of --seq 512,1024 or --image 224,384: a line for each card
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Whether the answer is kept.
    #[command(flatten)]
    pub caching: Caching,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
    /// How a program is run.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// A PyTorch program and its arguments in place of models, with {batch} where the batch goes, and {seq} for the
    /// lengths of --seq 512,1024
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// The options of `verify`.
#[derive(Debug, Args)]
#[command(mut_args(only_what_verify_reads))]
pub struct Verify {
    /// A model of the zoo, for instance resnet-20 (`fit-check models` lists them)
    #[arg(required_unless_present_any = ["list", "command"])]
    pub model: Option<String>,
    /// Where a name on the Hub is looked for.
    #[command(flatten)]
    pub hub: HubAccess,
    /// How it is trained.
    #[command(flatten)]
    pub step: Step,
    /// Samples in a batch [default: the batch of the published recipe]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<String>,
    /// The device to train on: wgpu, or wgpu:1 for the second; vulkan, cuda and metal need cargo features
    #[arg(long, default_value = "wgpu", value_name = "DEVICE")]
    pub device: String,
    /// With --device cuda and without an NVIDIA GPU: train on CUDA's own runtime with the counting driver,
    /// which counts the memory of this card and runs nothing
    #[arg(long, value_name = "CARD")]
    pub gpu: Option<String>,
    /// Driver for --device cuda: nvidia, or counting, which counts memory and runs nothing [default: nvidia;
    /// counting if --gpu is given and there is no NVIDIA GPU]
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<String>,
    /// Whether burn tunes its kernels while the step runs (cold), or tuned them before, in a run of the same
    /// process (warm)
    #[arg(long, default_value = "cold", value_name = "STATE")]
    pub tuning: String,
    /// List the devices of this machine
    #[arg(long)]
    pub list: bool,
    /// Launch no kernels and touch no memory: this uses the pools of the real runtime and takes seconds, also
    /// for models larger than the device
    #[arg(long, conflicts_with = "max_batch")]
    pub dry_run: bool,
    /// Find the largest batch for --memory or --gpu, train it, and check that one more sample fails
    #[arg(long, conflicts_with = "batch")]
    pub max_batch: bool,
    /// The memory of the job with --max-batch: 2GB is 2 * 10^9 bytes [default with --gpu: the memory that a
    /// process leaves of that card]
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
        conflicts_with = "max_batch",
        allow_hyphen_values = true
    )]
    pub tolerance: String,
    /// Seconds after which a run on the device is stopped
    #[arg(
        long,
        default_value = "600",
        value_name = "SECONDS",
        allow_hyphen_values = true
    )]
    pub timeout: String,
    /// Append the outcome to FILE, which must exist [default: records.jsonl or largest_batches.jsonl in docs/data]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub record: Option<Option<PathBuf>>,
    /// Optimizer steps that a program makes [default: until two make the same allocations]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub steps: Option<String>,
    /// Let the program change your files. Otherwise all that it writes is gone when it ends
    #[arg(long)]
    pub allow_writes: bool,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
    /// A PyTorch program and its arguments in place of a model: it is recorded, and then trains on the NVIDIA GPU of this
    /// machine
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `arg` of `verify`, which conflicts with `--list` and with a program unless they depend on it. What a program needs conflicts
/// with a model too, since clap does not ask for a program beside an argument with which a program conflicts.
fn only_what_verify_reads(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "timeout" | "format" | "output" | "quiet" => arg,
        "list" => arg.conflicts_with("command"),
        "command" | "tolerance" => arg.conflicts_with("list"),
        "steps" | "allow_writes" => arg
            .requires("command")
            .conflicts_with_all(["list", "model"]),
        _ => arg.conflicts_with_all(["list", "command"]),
    }
}

/// The options of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// A card (rtx-3090), or a class (24GB: of the cards sold with it, the one with the least usable memory);
    /// repeatable: the program finds them as cuda:0, cuda:1, …
    #[arg(long, value_name = "CARD")]
    pub gpu: Vec<String>,
    /// A card with exactly this much memory for the program: 10GB is 10^10 bytes, 10GiB is 10 * 2^30
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// The memory that a process takes on the card beside its allocator: context and libraries, as nvidia-smi shows
    /// them on a machine of yours [default: what the catalogue says of the card]
    #[arg(
        long,
        value_name = "SIZE",
        allow_hyphen_values = true,
        requires = "gpu"
    )]
    pub overhead: Option<String>,
    /// Optimizer steps after which a PyTorch program is ended; 0 if it makes none [default: until two make the same
    /// allocations]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub steps: Option<String>,
    /// Add a table of the modules of a PyTorch program
    #[arg(long)]
    pub layers: bool,
    /// Seconds after which the program is stopped
    #[arg(
        long,
        default_value = "600",
        value_name = "SECONDS",
        allow_hyphen_values = true
    )]
    pub timeout: String,
    /// Let the program change your files. Otherwise all that it writes is gone when it ends
    #[arg(long)]
    pub allow_writes: bool,
    /// For a PyTorch program, add what would make it fit, or the cards that are enough: always, never, auto (if it does
    /// not fit)
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub advise: Advise,
    /// The files of plots.
    #[command(flatten)]
    pub plots: PlotFiles,
    /// Where the answer goes; the program's own output goes where it always does.
    #[command(flatten)]
    pub output: Output,
    /// The program and its arguments: a PyTorch program as you start it (python train.py), or one with burn's feature
    /// `cuda`
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// The options of `models`.
#[derive(Debug, Args)]
pub struct Models {
    /// Show one model in full
    pub model: Option<String>,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// The options of `gpus`.
#[derive(Debug, Args)]
#[command(mut_args(only_with_fits))]
pub struct Gpus {
    /// Show one card in full: a name, an alias, or a class such as 24GB
    pub card: Option<String>,
    /// List the cards that --runtime drives, or PyTorch, on which a training step of this model fits, the least memory first
    #[arg(long, value_name = "MODEL", conflicts_with = "card")]
    pub fits: Option<String>,
    /// Where a name on the Hub is looked for.
    #[command(flatten)]
    pub hub: HubAccess,
    /// Samples in a batch, with --fits [default: the batch of the published recipe]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<String>,
    /// Tokens in a batch instead of samples, with --fits
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub tokens: Option<String>,
    /// How it is trained.
    #[command(flatten)]
    pub step: Step,
    /// The runtime with which burn drives the cards: cuda, vulkan, wgpu
    #[arg(long, default_value = "cuda", value_name = "RUNTIME")]
    pub runtime: String,
    /// GPUs of one kind that train it together, with --strategy ddp [default: 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub count: Option<String>,
    /// The framework that trains it, with --fits: burn, or pytorch
    #[arg(long, default_value = "burn", value_name = "NAME")]
    pub framework: String,
    /// What only PyTorch has.
    #[command(flatten)]
    pub torch: TorchOptions,
    /// Whether the answer is kept.
    #[command(flatten)]
    pub caching: Caching,
    /// Where the answer goes.
    #[command(flatten)]
    pub output: Output,
}

/// `arg` of `gpus`, which needs `--fits` unless the catalogue depends on it. It conflicts with `card` too, since clap
/// does not ask for `--fits` beside an argument with which `--fits` conflicts.
fn only_with_fits(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "card" | "fits" | "format" | "output" | "quiet" => arg,
        _ => arg.requires("fits").conflicts_with("card"),
    }
}

/// How models on the Hugging Face Hub are found.
#[derive(Clone, Copy, Debug, Args)]
pub struct HubAccess {
    /// Look for models of the Hugging Face Hub in the local cache alone (as HF_HUB_OFFLINE=1)
    #[arg(long)]
    pub offline: bool,
}

/// A training job, and the cards on which it should fit.
#[derive(Debug, Args)]
pub struct Job {
    /// A model of the zoo, for instance resnet-50 (`fit-check models` lists them); or a path: a
    /// safetensors file or its index, a config.json, a folder with them, or what `max-batch --save` wrote; or
    /// a name on the Hugging Face Hub: Qwen/Qwen3-0.6B
    pub model: String,
    /// Where a name on the Hub is looked for.
    #[command(flatten)]
    pub hub: HubAccess,
    /// The framework that trains it: burn, or pytorch. What was recorded beforehand (`fit-check models`) answers without
    /// Python; other options, paths and names on the Hub take your own torch, transformers, torchvision or timm
    #[arg(long, default_value = "burn", value_name = "NAME")]
    pub framework: String,
    /// What only PyTorch has.
    #[command(flatten)]
    pub torch: TorchOptions,
    /// How it is trained.
    #[command(flatten)]
    pub step: Step,
    /// The cards on which it should fit.
    #[command(flatten)]
    pub cards: Cards,
}

/// The options that only PyTorch has.
#[derive(Clone, Debug, Args)]
pub struct TorchOptions {
    /// The attention kernel with --framework pytorch: sdpa, eager, flash_attention_2 [default: as transformers chooses]
    #[arg(long, value_name = "NAME")]
    pub attention: Option<String>,
    /// The Python with torch and transformers, for --framework pytorch [default: that of the active environment, or
    /// `python` in PATH]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}

/// How a program in place of a model is run.
#[derive(Clone, Debug, Args)]
pub struct ProgramOptions {
    /// Let the program change your files. Otherwise all that it writes is gone when it ends
    #[arg(long)]
    pub allow_writes: bool,
    /// Seconds after which each run of the program is stopped [default: 600]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub timeout: Option<String>,
}

/// How a model is trained.
#[derive(Clone, Debug, Args)]
pub struct Step {
    /// Number formats: fp32, fp16, bf16, mixed (16-bit with fp32 master weights)
    #[arg(long, default_value = "fp32", value_name = "FORMAT")]
    pub precision: String,
    /// The other options of the training step.
    #[command(flatten)]
    pub options: Options,
}

/// How a model is trained, without its number formats.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Optimizer: sgd, momentum, adam, adamw, …; with --framework pytorch also adamw8bit, by bitsandbytes [default: the
    /// optimizer of the published recipe]
    #[arg(long, value_name = "NAME")]
    pub optimizer: Option<String>,
    /// Sizes of a sample.
    #[command(flatten)]
    pub sizes: TypedSizes,
    /// Batches whose gradients are accumulated before each optimizer step
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub accumulate: Option<String>,
    /// Recompute activations in the backward pass, where burn can
    #[arg(long)]
    pub checkpointing: bool,
    /// Do not train the parameters below this path (repeatable)
    #[arg(long, value_name = "PREFIX")]
    pub freeze: Vec<String>,
    /// Train low-rank adapters of this rank instead of the weights
    #[arg(long, value_name = "RANK", allow_hyphen_values = true)]
    pub lora: Option<String>,
    /// The projections that get adapters, for instance q,v [default: queries and values]
    #[arg(long, value_name = "NAMES", requires = "lora")]
    pub lora_targets: Option<String>,
    /// Format of the frozen weights beside adapters: dense (as --precision says), 8bit, 4bit; with --framework pytorch
    /// 4bit is nf4 by bitsandbytes
    #[arg(
        long,
        default_value = "dense",
        value_name = "FORMAT",
        requires = "lora"
    )]
    pub lora_base: String,
    /// The training loop of burn: single (your own, on one GPU), learner (that of burn-train, on one GPU), ddp (that of
    /// burn-train, with a batch on each GPU of --gpu 4x24GB) [default: single]
    #[arg(long, value_name = "NAME")]
    pub strategy: Option<String>,
    /// What NCCL takes of a GPU for one communicator, with --strategy ddp [default: what others measured]
    #[arg(
        long,
        value_name = "SIZE",
        requires = "strategy",
        allow_hyphen_values = true
    )]
    pub nccl: Option<String>,
}

/// Simulated cards.
#[derive(Debug, Args)]
pub struct Cards {
    /// The runtime with which burn drives the card: cuda, vulkan, wgpu
    #[arg(long, default_value = "cuda", value_name = "RUNTIME")]
    pub runtime: String,
    /// For experts: ask only about the first run of a process, in which burn tunes its kernels (cold), or
    /// only about the runs after it (warm) [default: a job has to fit in both]
    #[arg(long, value_name = "STATE")]
    pub tuning: Option<String>,
    /// A card (rtx-3090), or a class (24GB: of the cards sold with it, the one with the least usable memory);
    /// repeatable. Several GPUs of a machine are 4xrtx-3090
    #[arg(long, value_name = "CARD")]
    pub gpu: Vec<String>,
    /// Exactly this much memory for the job: 10GB is 10^10 bytes, 10GiB is 10 * 2^30
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<String>,
}

/// Where the answer goes, and in which format.
#[derive(Clone, Debug, Args)]
pub struct Output {
    /// The format of the answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Write the answer to a file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show no progress and no notes (FIT_CHECK_NO_PROGRESS in the environment: no progress)
    #[arg(long, short)]
    pub quiet: bool,
}

/// Whether answers are kept between calls.
#[derive(Clone, Copy, Debug, Args)]
pub struct Caching {
    /// Simulate again, whatever is kept, and keep nothing
    #[arg(long)]
    pub no_cache: bool,
}

/// When to simulate changes that would make a job fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Advise {
    /// If the job does not fit, only say how to ask for them: each takes about as long as the answer.
    #[default]
    Auto,
    /// Always simulate them.
    Always,
    /// Never mention them.
    Never,
}

/// The format of an answer.
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
    /// For browsers; only from `table`
    Html,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(command: &str) -> bool {
        let words = ["fit-check"].into_iter().chain(command.split(' '));
        Cli::try_parse_from(words).is_ok()
    }

    #[test]
    fn no_command_of_this_programs_own_processes_is_suggested() {
        for typed in ["max-length", "measur", "rows"] {
            let refused = command().try_get_matches_from(["fit-check", typed]);
            let error = refused.unwrap_err().to_string();
            assert!(
                !error.contains("measure") && !error.contains("'row'"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_option_that_would_do_nothing_is_refused() {
        for option in [
            "--batch 8",
            "--tokens 512",
            "--precision fp16",
            "--precision fp32",
            "--optimizer adam",
            "--image 64",
            "--accumulate 2",
            "--checkpointing",
            "--freeze fc",
            "--lora 8",
            "--runtime vulkan",
        ] {
            assert!(!is_accepted(&format!("gpus {option}")), "{option}");
            assert!(!is_accepted(&format!("gpus l4 {option}")), "{option}");
            let with_fits = format!("gpus --fits resnet-50 {option}");
            assert!(is_accepted(&with_fits), "{option}");
        }
        for option in [
            "resnet-20",
            "--precision fp16",
            "--batch 8",
            "--device cuda",
            "--gpu l4",
            "--driver nvidia",
            "--tuning warm",
            "--dry-run",
            "--max-batch",
            "--tolerance 3",
            "--record",
        ] {
            assert!(!is_accepted(&format!("verify --list {option}")), "{option}");
        }
        for option in [
            "resnet-20",
            "--list",
            "--batch 8",
            "--device cuda",
            "--gpu l4",
            "--driver counting",
            "--tuning warm",
            "--dry-run",
            "--max-batch",
            "--record",
        ] {
            let with_program = format!("verify {option} -- python train.py");
            assert!(!is_accepted(&with_program), "{option}");
        }
        for option in ["--steps 3", "--allow-writes"] {
            let without_program = format!("verify resnet-20 {option}");
            assert!(!is_accepted(&without_program), "{option}");
            let with_program = format!("verify {option} --tolerance 3 -- python train.py");
            assert!(is_accepted(&with_program), "{option}");
        }
        let tolerance = "verify resnet-20 --max-batch --memory 1GiB --tolerance 3";
        assert!(!is_accepted(tolerance), "it is about one estimate");
        for command in [
            "gpus",
            "gpus l4 --format json --quiet",
            "verify --list --timeout 5 --format json",
            "verify resnet-20 --precision fp16",
        ] {
            assert!(is_accepted(command), "{command}");
        }
    }
}
