//! Runs a program through CUDA's own runtime on cards that do not exist.

use std::path::Path;
use std::process::Command;

use estimator::{Runtime, Tuning};

use crate::cli;
use crate::counting_driver::{
    self, CardUsage, Conditions, CountingDriver, Ended, ProgramMemoryReport,
};
use crate::exit_status::{DOES_NOT_FIT, FITS, UNKNOWN};
use crate::job_info::{GpuName, SCHEMA};
use crate::local_gpu::AUTO;
use crate::output::file::{self, File};
use crate::resolve::{self, Card};
use crate::user_error::UserError;
use crate::user_program::{GRACE, Sink};
use crate::values;
use crate::{interrupt, output};

/// Runs the command.
pub fn run(raw: &cli::Run) -> anyhow::Result<u8> {
    output::check(&raw.output)?;
    let html = raw.html.as_deref().map(|path| File {
        path,
        option: "--html",
        otherwise: "leave it out",
    });
    html.as_ref().map_or(Ok(()), File::check)?;
    let answer = raw.output.output.as_deref().map(|path| ("--output", path));
    let page = raw.html.as_deref().map(|path| ("--html", path));
    file::check_apart(answer.into_iter().chain(page))?;
    let timeout = values::seconds("--timeout", &raw.timeout)?;
    let cards = cards(raw)?;
    let (program, arguments) = raw
        .command
        .split_first()
        .ok_or_else(|| UserError::new("run needs a program"))?;
    let specs: Vec<_> = cards.iter().map(|card| card.device.clone()).collect();
    interrupt::watch(GRACE)?;
    let driver = CountingDriver::new(&specs, Conditions::default())?;
    let mut command = Command::new(program);
    command.args(arguments);
    let ended = counting_driver::run(
        &driver,
        command,
        raw.allow_writes,
        program_stdout(&raw.output),
        timeout,
    )?;
    interrupt::disarm();
    let journal = driver.journal()?;
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
        return Err(unused(&report).into());
    }
    output::write(&report, &raw.output)?;
    // If the page cannot be written, the answer is there.
    if let Some(file) = html {
        file.save(&output::run::html(&report))?;
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

/// Where the program's stdout goes. Its text would be in the middle of an answer for another program.
fn program_stdout(output: &cli::Output) -> Sink {
    match output.output.is_none() && output.format != cli::Format::Table {
        true => Sink::Stderr,
        false => Sink::Stdout,
    }
}

/// The named cards, in the order of their indices.
fn cards(raw: &cli::Run) -> Result<Vec<Card>, UserError> {
    for name in raw.gpu.iter().filter(|name| *name != AUTO) {
        let gpu = resolve::gpu(name)?;
        if !gpu.is_driven_by(Runtime::Cuda) {
            return Err(UserError::new(format!("{} has no CUDA", gpu.name)).hint(
                "run is for NVIDIA's cards; `fit-check gpus` lists them, `cargo fit-check` runs a program on any card",
            ));
        }
    }
    let memory = raw.memory.as_deref();
    let cards = resolve::cards(&raw.gpu, memory, Runtime::Cuda, Tuning::Cold)?;
    match cards.is_empty() {
        true => Err(UserError::new("run needs a card with a size").hint(
            "--gpu rtx-3090 names a card, --gpu 24GB a class of cards, --memory 20GiB a size alone",
        )),
        false => Ok(cards),
    }
}

fn unused(report: &ProgramMemoryReport) -> UserError {
    let error = match report.ended {
        Ended::Exited(0) => "it used no CUDA device".to_string(),
        ended => format!("it {ended} and used no CUDA device"),
    };
    UserError::new(format!("{}: {error}", report.program)).hint(
        "build the program with burn's feature `cuda` and have it use `Device::cuda(0)`, or set BURN_DEVICE=cuda; `cargo fit-check` needs neither",
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
