//! Runs a program through CUDA's own runtime on cards that do not exist.

use std::path::Path;

use estimator::{Runtime, Tuning};
use torch_memory::stream::Recording;

use crate::cli;
use crate::counting_driver::{CardUsage, Ended, ProgramMemoryReport, ProgramOutput};
use crate::exit_status::{DOES_NOT_FIT, FITS, UNKNOWN};
use crate::job_info::{GpuName, SCHEMA};
use crate::local_gpu::AUTO;
use crate::output::file::File;
use crate::output::torch::WithModules;
use crate::resolve::{self, Card};
use crate::several_gpus::{count, counted};
use crate::torch_program::failure::{self, failure};
use crate::torch_program::fitting::driven_class;
use crate::torch_program::plot::{layer_names, plot};
use crate::torch_program::report::allocator_config;
use crate::torch_program::{Launch, Ran, TorchReport, placeholder};
use crate::user_error::UserError;
use crate::user_program::{GRACE, Sink};
use crate::values;
use crate::{interrupt, output};

/// Runs the command.
pub fn run(raw: &cli::Run) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    raw.plots.check(&raw.output)?;
    let timeout = values::seconds("--timeout", &raw.timeout)?;
    let cards = with_overhead(named_cards(&raw.gpu, raw.memory.as_deref())?, raw)?;
    let steps = steps(raw)?;
    interrupt::watch(GRACE)?;
    let launch = Launch {
        command: &raw.command,
        cards: &cards,
        real: None,
        steps,
        allow_writes: raw.allow_writes,
        timeout,
    };
    let ran = launch.run(ProgramOutput {
        stdout: program_stdout(&raw.output),
        stderr: Sink::Stderr,
    })?;
    interrupt::disarm();
    match ran.recordings.is_empty() {
        true => of_driver(raw, &cards, ran),
        false => of_torch(raw, &cards, ran),
    }
}

/// The answer about a program that uses PyTorch's CUDA.
fn of_torch(raw: &cli::Run, cards: &[Card], mut ran: Ran) -> anyhow::Result<u8> {
    let program = placeholder::shown(&raw.command);
    let failed = failure(&program, &ran.recordings, ran.ended, steps(raw)? == Some(0));
    // Of a program that fails in its first step there is nothing to tell but that.
    if ran.recordings.iter().all(|recording| recording.steps == 0)
        && let Some(failed) = failed
    {
        return Err(failed.into());
    }
    if failed.is_some() {
        // Nor of one of its processes.
        ran.recordings.retain(|recording| recording.steps > 0);
    }
    let report = TorchReport::new(program, &ran.recordings, cards, raw.advise)?;
    match raw.layers {
        true => output::write(&WithModules(&report), &raw.output)?,
        false => output::write(&report, &raw.output)?,
    }
    let unused = cards.len().saturating_sub(report.processes.len());
    if unused > 0 && !raw.output.quiet {
        anstream::eprintln!(
            "note: the program finds each --gpu as a device of its own, and uses {} of {}; `fit-check max-batch` compares cards",
            report.processes.len(),
            cards.len()
        );
    }
    // If a plot cannot be written, the answer is there.
    draw(raw, &report, &ran.recordings)?;
    match failed {
        Some(failed) => {
            anstream::eprintln!("{failed}");
            Ok(UNKNOWN)
        }
        None if report.fits() => Ok(FITS),
        None => Ok(DOES_NOT_FIT),
    }
}

/// Draws the process that needs the most memory.
fn draw(raw: &cli::Run, report: &TorchReport, recordings: &[Recording]) -> anyhow::Result<()> {
    let Some(process) = report.largest().filter(|_| raw.plots.any()) else {
        return Ok(());
    };
    let mut of_process = recordings.iter();
    let Some(recording) = of_process.find(|recording| recording.process.rank == process.rank)
    else {
        return Ok(());
    };
    let config = allocator_config(&recording.process)?;
    let names = layer_names(&recording.trace);
    raw.plots
        .write(&plot(report, process, &recording.trace, &config, &names))
}

/// The answer about a program that opens the CUDA driver itself.
fn of_driver(raw: &cli::Run, cards: &[Card], ran: Ran) -> anyhow::Result<u8> {
    let ended = ran.ended;
    let program = Path::new(&raw.command[0]);
    // PyTorch is not to see the counting driver.
    let is_python = ran.journal.is_none();
    let journal = ran.journal.unwrap_or_default();
    let used = cards.iter().enumerate().filter_map(|(index, card)| {
        let gpu = GpuName::new(card);
        let usage = journal.usage(index, gpu.overhead_bytes)?;
        Some(CardUsage::new(gpu, usage, ended))
    });
    let report = ProgramMemoryReport {
        schema: SCHEMA,
        program: Path::new(program).display().to_string(),
        ended,
        cards: used.collect(),
    };
    if report.cards.is_empty() {
        return Err(match is_python {
            true => failure::unused(&raw.command, ended),
            false => unused(&report),
        }
        .into());
    }
    output::write(&report, &raw.output)?;
    // If the page cannot be written, the answer is there.
    if let Some(path) = &raw.plots.html {
        let file = File {
            path,
            option: "--html",
            otherwise: "leave it out",
        };
        file.save(output::run::html(&report))?;
    }
    if raw.plots.svg.is_some() || raw.plots.trace.is_some() {
        anstream::eprintln!(
            "{}",
            UserError::new("--svg and --trace are for PyTorch programs")
                .hint("--html draws the memory of this one")
        );
    }
    match report.fits() {
        Some(false) => Ok(DOES_NOT_FIT),
        Some(true) => Ok(FITS),
        None => {
            // The figures above hold until the program stopped. They do not tell whether it fits.
            anstream::eprintln!("{}", stopped(&report));
            Ok(UNKNOWN)
        }
    }
}

/// The number of optimizer steps after which the recorder ends the program, if one was typed.
fn steps(raw: &cli::Run) -> Result<Option<usize>, UserError> {
    match raw.steps.as_deref() {
        Some("0") => Ok(Some(0)),
        steps => values::optional_count("--steps", steps),
    }
}

/// `cards`, of each of which a process takes as much beside its allocator as was typed.
fn with_overhead(mut cards: Vec<Card>, raw: &cli::Run) -> Result<Vec<Card>, UserError> {
    if let Some(size) = &raw.overhead {
        let overhead = values::memory(size)?;
        for card in &mut cards {
            card.device.card.overhead = overhead;
        }
    }
    Ok(cards)
}

/// Where the program's stdout goes. Its text would be in the middle of an answer for another program.
fn program_stdout(output: &cli::Output) -> Sink {
    match output.output.is_none() && output.format != cli::Format::Table {
        true => Sink::Stderr,
        false => Sink::Stdout,
    }
}

/// The cards of NVIDIA that are called `names`, or one with `memory`.
///
/// # Errors
///
/// A card is unknown or not NVIDIA's, or a name is several cards.
pub(super) fn cards(names: &[String], memory: Option<&str>) -> Result<Vec<Card>, UserError> {
    for name in names.iter().filter(|name| *name != AUTO) {
        if counted(name).is_some() {
            return Err(UserError::new(format!("{name}: this answers for one GPU")).hint(
                "`fit-check run --gpu 4x24GB -- torchrun …` says whether a PyTorch program fits on several: try batches with it, there is no search; burn has --strategy ddp",
            ));
        }
        let gpu = resolve::gpu(name)?;
        if !gpu.is_driven_by(Runtime::Cuda) {
            return Err(UserError::new(format!("{} has no CUDA", gpu.name)).hint(
                "run is for NVIDIA's cards; `fit-check gpus` lists them, `cargo fit-check` runs a program on any card",
            ));
        }
    }
    let driven = names.iter().map(|name| match driven_class(name) {
        Some((gpu, _)) => gpu.alias(),
        None => name,
    });
    resolve::cards(
        &driven.collect::<Vec<_>>(),
        memory,
        Runtime::Cuda,
        Tuning::Cold,
    )
}

/// `names` with a name for each GPU: `2xl4` is `l4`, `l4`.
fn each(names: &[String]) -> Result<Vec<String>, UserError> {
    let mut all = Vec::new();
    for typed in names {
        let (times, name) = match counted(typed) {
            Some((text, name)) => (count(text)?, name),
            None => (1, typed.as_str()),
        };
        all.extend(std::iter::repeat_n(name.to_string(), times));
    }
    Ok(all)
}

/// As [`cards`], in the order of their indices; at least one.
fn named_cards(names: &[String], memory: Option<&str>) -> Result<Vec<Card>, UserError> {
    match cards(&each(names)?, memory)? {
        none if none.is_empty() => Err(UserError::new("run needs a card with a size").hint(
            "--gpu rtx-3090 names a card, --gpu 24GB a class of cards, --memory 20GiB a size alone",
        )),
        cards => Ok(cards),
    }
}

fn unused(report: &ProgramMemoryReport) -> UserError {
    let error = match report.ended {
        Ended::Exited(0) => "it used no CUDA device".to_string(),
        ended => format!("it {ended} and used no CUDA device"),
    };
    UserError::new(format!("{}: {error}", report.program)).hint(
        "a PyTorch program has to put its model on `cuda`, with a PyTorch that is installed for the Python which you start; a burn program is built with its feature `cuda`, and uses `Device::cuda(0)` or BURN_DEVICE=cuda (`cargo fit-check` needs neither)",
    )
}

fn stopped(report: &ProgramMemoryReport) -> UserError {
    if report.ended == Ended::Exited(0) && report.cards.iter().any(|usage| usage.given_up > 0) {
        return UserError::new("the card refused memory for which the program did not ask again").hint(
            "a program that goes on without what it asked for does not fit; burn and PyTorch ask once more",
        );
    }
    if report.ended == Ended::Exited(0) {
        return UserError::new("the card is too small for all processes of the program together").hint(
            "a signal ended one of them, and the memory of such a process counts until the end: if it had ended before others began, the program may fit",
        );
    }
    UserError::new(format!("the program {}", report.ended)).hint(match report.ended {
        Ended::TimedOut(_) => {
            "the figures are those until then; --timeout SECONDS gives it longer, and few training steps are enough"
        }
        Ended::Interrupted => "the figures are those until then",
        _ => {
            "the figures are those until then; every value that a program reads from such a card is zero, which may be what it fails at; if it was not allowed to write a file, --allow-writes lets it change yours"
        }
    })
}
