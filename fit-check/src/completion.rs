//! What a shell offers for the command line: commands, options and, where they are known, values.

use std::ffi::OsStr;

use clap::{Arg, Command};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use estimator::{Gpu, Instance, Runtime, Tuning};
use model_zoo::{BaseFormat, OptimizerKind, Precision};
use strum::VariantNames;

use crate::cli;
use crate::local_gpu::AUTO;
use crate::measure::Backend;
use crate::preset::Preset;
use crate::user_error::UserError;

/// The variable with which the script of a shell asks this program for completions.
const VARIABLE: &str = "FIT_CHECK_COMPLETE";

/// Answers the script of a shell and ends the process, if it asked. Nothing may be printed before.
pub fn answer() {
    environment().complete();
}

fn environment() -> CompleteEnv<'static, fn() -> Command> {
    CompleteEnv::with_factory(command as fn() -> Command).var(VARIABLE)
}

/// The script with which the shell called `name` asks this program.
///
/// # Errors
///
/// There is none for such a shell.
pub fn script(name: &str) -> anyhow::Result<String> {
    let shells = Shells::builtins();
    let shell = shells
        .completer(name)
        .ok_or_else(|| UserError::new(format!("there is no script for {name}")))?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "fit_check", "fit-check", "fit-check", &mut script)?;
    Ok(String::from_utf8(script)?)
}

/// The command line, whose arguments know their values.
fn command() -> Command {
    cli::command().mut_subcommands(|command| command.mut_args(with_values))
}

/// `arg` with the values that the shell offers for it; without, it offers files, or the values that clap knows.
fn with_values(arg: Arg) -> Arg {
    let id = arg.get_id().as_str().to_owned();
    let known: &'static [&'static str] = match id.as_str() {
        "precision" => Precision::VARIANTS,
        "optimizer" => OptimizerKind::VARIANTS,
        "runtime" => Runtime::VARIANTS,
        "tuning" => Tuning::VARIANTS,
        "lora_base" => BaseFormat::VARIANTS,
        "preset" => Preset::VARIANTS,
        "strategy" => &["single", "learner", "ddp"],
        "device" => Backend::VARIANTS,
        "driver" => &["nvidia", "counting"],
        "model" | "models" | "fits" => return arg.add(ArgValueCompleter::new(models)),
        "gpu" | "card" => return arg.add(ArgValueCompleter::new(cards)),
        "gpus" => return arg.add(ArgValueCompleter::new(list_of_cards)),
        _ => return arg,
    };
    arg.add(ArgValueCandidates::new(|| {
        known
            .iter()
            .copied()
            .map(CompletionCandidate::new)
            .collect::<Vec<_>>()
    }))
}

/// The models of the zoo and the paths that begin with `typed`.
fn models(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = model_zoo::variants()
        .into_iter()
        .map(|variant| variant.name);
    let mut found = beginning(names, typed);
    found.extend(PathCompleter::any().complete(typed));
    found
}

/// The cards that begin with `typed`: of each one name, or all if something is typed.
fn cards(typed: &OsStr) -> Vec<CompletionCandidate> {
    let few = typed.is_empty();
    let aliases = Gpu::all().iter().flat_map(|gpu| {
        let count = if few { 1 } else { gpu.aliases.len() };
        gpu.aliases[..count.min(gpu.aliases.len())].iter()
    });
    let instances = Instance::all().iter().filter(|_| !few);
    let names = aliases
        .map(String::as_str)
        .chain(instances.map(|instance| instance.name.as_str()));
    let mut found = beginning(names.chain([AUTO]), typed);
    found.sort();
    found.dedup();
    found
}

/// The cards that begin with what is typed after the last comma.
fn list_of_cards(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let start = typed.rfind(',').map_or(0, |comma| comma + 1);
    let (before, last) = typed.split_at(start);
    let candidates = cards(OsStr::new(last)).into_iter();
    candidates.map(|card| card.add_prefix(before)).collect()
}

fn beginning<'a>(names: impl Iterator<Item = &'a str>, typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy().to_lowercase();
    names
        .filter(|name| name.to_lowercase().starts_with(&typed))
        .map(CompletionCandidate::new)
        .collect()
}
