//! Holds the simulated card against CUDA's own runtime, in random jobs.
//!
//! ```console
//! $ cargo run --release -p fit-check-tests --features cuda --bin differential -- --seed 1 --cases 100
//! ```
//!
//! A case in which the two differ is made smaller as long as they still differ, and printed as one line that
//! repeats it. The exit status is 1 if there is one.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Context;
use clap::{Parser, Subcommand};
use fit_check_tests::differential::{
    Case, CaseOutcome, CaseRecord, MeasuredRun, NetworkSpec, Refused, Summary, agreeing, draw,
    refuse_each, small_jobs, switches,
};
use fit_check_tests::workers::share;
use model_zoo::{Rank, Strategy};
use serde::Serialize;

/// Random jobs on CUDA's own runtime with the counting driver, beside the simulated card.
#[derive(Parser)]
struct Arguments {
    /// The sequence of cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first case of the sequence
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many cases
    #[arg(long, default_value_t = 100)]
    cases: u64,
    /// Cases at the same time, or runs of a case whose requests are refused
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Run every case without fusion
    #[arg(long)]
    unfused: bool,
    /// Every case is a GPU of several: GPU 0, or another. CUDA's runtime needs a libnccl.so in LD_LIBRARY_PATH for that: that of
    /// tests/src/nccl_stub.c does nothing
    #[arg(long)]
    ranks: bool,
    /// Repeat one case, as printed
    #[arg(long, value_name = "JSON")]
    case: Option<String>,
    /// Refuse each request for memory, up to this many, of the case, or of a small job of each file of the zoo
    #[arg(long, value_name = "MOST", conflicts_with_all = ["summarize", "summary"])]
    refuse: Option<u64>,
    /// Refuse only this request, counted from one
    #[arg(long, value_name = "REQUEST", requires = "refuse")]
    only: Option<u64>,
    /// Append the outcome of each case to this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Append the summary of all cases to this file
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Run nothing: summarize the outcomes in this file, a record of one run, even of one that was stopped
    #[arg(long, value_name = "FILE", conflicts_with_all = ["case", "record"])]
    summarize: Option<PathBuf>,
    /// Add what was measured to the record
    #[arg(long, requires = "record")]
    figures: bool,
    /// How often a case or a run that differs is measured again
    #[arg(long, default_value_t = 2)]
    again: u32,
    /// Report a case as it was drawn
    #[arg(long)]
    no_shrink: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// The process that trains
    #[command(hide = true)]
    Measure,
}

fn main() -> ExitCode {
    fit_check::program::main(|| run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(Command::Measure) = arguments.command {
        fit_check::measure::run_child(NetworkSpec::find)?;
        return Ok(ExitCode::SUCCESS);
    }
    let case = arguments.case.as_deref();
    let case: Option<Case> = case.map(serde_json::from_str).transpose()?;
    let agree = match (case, arguments.refuse) {
        (None, None) => {
            let summary = match &arguments.summarize {
                Some(record) => summarize(record)?,
                None => run_drawn(arguments)?,
            };
            print(&summary);
            if let Some(file) = &arguments.summary {
                append(file, &summary)?;
            }
            summary.differ.is_empty()
        }
        (None, Some(most)) => {
            let jobs = small_jobs();
            let first = arguments.first.min(jobs.len() as u64) as usize;
            let jobs = jobs.into_iter().skip(first);
            refuse(jobs.take(arguments.cases as usize), most, arguments)?
        }
        (Some(case), None) => {
            let Some((_, outcome)) = run_case(&case)? else {
                anyhow::bail!("the network does not accept the request");
            };
            println!("{outcome:#?}");
            outcome.agrees()
        }
        (Some(case), Some(most)) => refuse([case], most, arguments)?,
    };
    Ok(ExitCode::from(u8::from(!agree)))
}

/// Runs the cases that are drawn.
fn run_drawn(arguments: &Arguments) -> anyhow::Result<Summary> {
    let end = arguments.first + arguments.cases;
    let summary = Mutex::new(Summary {
        date: fit_check::records::today(),
        burn: switches(),
        seed: arguments.seed,
        numbers: (arguments.first, end),
        ..Summary::default()
    });
    share(arguments.jobs, arguments.first..end, |number| {
        run_one(arguments, number, &summary)
    })?;
    Ok(summary.into_inner()?)
}

/// The outcomes in `record`, which one run wrote.
fn summarize(record: &Path) -> anyhow::Result<Summary> {
    let text = std::fs::read_to_string(record)?;
    let lines = text.lines().map(serde_json::from_str);
    let lines: Vec<CaseRecord> = lines.collect::<Result<_, _>>()?;
    let Some(first) = lines.first() else {
        anyhow::bail!("{} has no outcomes", record.display());
    };
    if let Some(other) = lines
        .iter()
        .find(|line| (&line.burn, line.seed) != (&first.burn, first.seed))
    {
        anyhow::bail!("case {} is of another run", other.number);
    }
    let numbers = lines.iter().map(|line| line.number);
    let mut summary = Summary {
        date: fit_check::records::today(),
        burn: first.burn.clone(),
        seed: first.seed,
        numbers: (
            numbers.clone().min().unwrap_or(0),
            numbers.max().map_or(0, |last| last + 1),
        ),
        ..Summary::default()
    };
    for line in &lines {
        summary.add(line.number, &line.case, &line.outcome, line.again);
    }
    Ok(summary)
}

fn run_one(arguments: &Arguments, number: u64, summary: &Mutex<Summary>) -> anyhow::Result<()> {
    let mut tree = draw(arguments.seed, number);
    let drawn = |mut case: Case| {
        case.fused &= !arguments.unfused;
        if arguments.ranks {
            case.request.strategy = Strategy::Ddp([Rank::First, Rank::Other][number as usize % 2]);
        }
        case
    };
    let mut case = drawn(tree.current());
    let Some(first) = run_case(&case)? else {
        summary.lock().expect("no worker panics with it").skipped += 1;
        return Ok(());
    };
    let ((mut measured, mut outcome), again) = agreeing(
        first,
        arguments.again,
        |(_, outcome)| outcome.agrees(),
        || run_case(&case)?.context("the network does not accept the request"),
    )?;
    if !outcome.agrees() && !arguments.no_shrink {
        // Each attempt takes as long as the case, so they are few.
        for _ in 0..SHRINKS {
            if !tree.simplify() {
                break;
            }
            let smaller = drawn(tree.current());
            match run_case(&smaller)? {
                Some((run, other)) if !other.agrees() => {
                    (case, measured, outcome) = (smaller, run, other);
                }
                _ if !tree.complicate() => break,
                _ => {}
            }
        }
    }
    let line = CaseRecord {
        burn: switches(),
        seed: arguments.seed,
        number,
        case,
        again,
        outcome,
        measured: arguments.figures.then_some(measured),
    };
    let mut summary = summary.lock().expect("no worker panics with it");
    summary.add(number, &line.case, &line.outcome, again);
    if let Some(file) = &arguments.record {
        append(file, &line)?;
    }
    if !line.outcome.agrees() {
        println!("case {number} differs: {:?}", line.outcome);
        println!("  --case '{}'", serde_json::to_string(&line.case)?);
    }
    Ok(())
}

/// Appends `line` to `file`, as JSON.
fn append(file: &Path, line: &impl Serialize) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    Ok(writeln!(file, "{}", serde_json::to_string(line)?)?)
}

/// Runs both sides of `case`; none if the network does not accept the request.
fn run_case(case: &Case) -> anyhow::Result<Option<(MeasuredRun, CaseOutcome)>> {
    let Some(measured) = case.measure()? else {
        return Ok(None);
    };
    let outcome = case.compare(&measured)?;
    Ok(Some((measured, outcome)))
}

/// How many smaller cases are tried of one that differs.
const SHRINKS: usize = 24;

/// Refuses each request for memory of `cases`, up to `most` of each case; returns whether both sides agree about
/// all of them.
fn refuse(
    cases: impl IntoIterator<Item = Case>,
    most: u64,
    arguments: &Arguments,
) -> anyhow::Result<bool> {
    let mut agree = true;
    for mut case in cases {
        case.fused &= !arguments.unfused;
        let which = Refused {
            most,
            only: arguments.only,
            again: arguments.again,
            workers: arguments.jobs,
        };
        let record = refuse_each(&case, which)?;
        println!("{}", case.network.text());
        for (how, counts) in [("once", record.once), ("for good", record.for_good)] {
            println!(
                "  {} of {} requests refused {how}: {} trained, {} out of memory, {} agree in everything ({} when measured again)",
                counts.runs,
                record.requests,
                counts.trained,
                counts.out_of_memory,
                counts.agree,
                counts.again
            );
        }
        for refusal in &record.differ {
            println!("  {:?}: {:?}", refusal.refusals, refusal.outcome);
            let case = serde_json::to_string(&case)?;
            let first = refusal.refusals.first;
            println!("    --case '{case}' --refuse {most} --only {first}");
        }
        agree &= record.agrees();
        if let Some(file) = &arguments.record {
            append(file, &record)?;
        }
    }
    Ok(agree)
}

fn print(summary: &Summary) {
    println!(
        "{} cases: {} agree, {} with another run than the usual one; {} false fits, {} false refusals; {} requests were not accepted",
        summary.cases,
        summary.agree,
        summary.other_run,
        summary.false_fits,
        summary.false_refusals,
        summary.skipped
    );
    for (quantity, tally) in &summary.quantities {
        println!(
            "{quantity}: {} of {} equal, {} under, {:+.4} % to {:+.4} %",
            tally.equal,
            tally.phases,
            tally.under,
            100.0 * tally.lowest,
            100.0 * tally.highest
        );
    }
}
