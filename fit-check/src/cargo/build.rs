//! Builds a user's program with a simulated card in place of burn's ROCm runtime.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;
use cargo_metadata::Message;

use super::crates::{Crate, crates, to_compile};
use super::lock::KeptLock;
use super::project::{Project, cargo, check_versions, shim};
use super::request::ProgramRequest;
use crate::child_process;
use crate::interrupt;
use crate::user_error::UserError;

/// Builds the program of `project` in a target folder of its own, and leaves the lock file as it was. Returns
/// the path of the program.
///
/// # Errors
///
/// The program cannot be built, or the user interrupted the build.
pub fn build(project: &Project, request: &ProgramRequest) -> anyhow::Result<PathBuf> {
    let mut command = cargo_build(project, request)?;
    let lock = KeptLock::new(&project.lock, &project.target_folder)?;
    let crates = crates(cargo_tree(project, request)?)?;
    check_versions(&crates)?;
    announce(project, request, &crates);
    let mut child = command.spawn().context("cargo cannot be started")?;
    let messages = child.stdout.take().map(BufReader::new);
    let mut executable = None;
    for message in messages.into_iter().flat_map(Message::parse_stream) {
        // Cargo read the lock file before it began to build, and does not write it again.
        lock.restore()?;
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.target.name == project.target.name
        {
            executable = artifact.executable.or(executable);
        }
    }
    let status = child.wait()?;
    lock.restore()?;
    if interrupt::requested() {
        return Err(UserError::new("interrupted").into());
    }
    match executable.filter(|_| status.success()) {
        Some(executable) => Ok(executable.into()),
        None => Err(UserError::new(format!(
            "`{}` could not be built with a simulated card",
            project.target.name
        ))
        .hint("what cargo said is above; it was built with burn's feature `rocm` beside its own")
        .into()),
    }
}

/// The command with which cargo builds the program of `project`; its messages go to stdout.
///
/// # Errors
///
/// The shim is missing.
fn cargo_build(project: &Project, request: &ProgramRequest) -> anyhow::Result<Command> {
    let mut command = cargo_for("build", project, request)?;
    command
        .args(["--message-format", "json-render-diagnostics"])
        .args([project.target_option(), &project.target.name])
        .arg("--target-dir")
        .arg(&project.target_folder)
        .stdout(Stdio::piped());
    if request.build.release {
        command.arg("--release");
    }
    Ok(command)
}

/// The command with which cargo shows the crates that [`cargo_build`] builds.
///
/// # Errors
///
/// The shim is missing.
fn cargo_tree(project: &Project, request: &ProgramRequest) -> anyhow::Result<Command> {
    let mut command = cargo_for("tree", project, request)?;
    // An example may use what tests use.
    let edges = match project.target.is_example() {
        true => "normal,build,dev",
        false => "normal,build",
    };
    command.args(["--edges", edges]);
    Ok(command)
}

/// The `subcommand` of cargo about the program of `project` with a simulated card.
///
/// # Errors
///
/// The shim is missing.
fn cargo_for(
    subcommand: &str,
    project: &Project,
    request: &ProgramRequest,
) -> anyhow::Result<Command> {
    let options = &request.build;
    let mut command = cargo();
    child_process::end_with_parent(&mut command);
    command
        .arg(subcommand)
        .args(["--package", &project.package])
        .arg("--config")
        // A string in JSON is a string in TOML too.
        .arg(format!(
            "patch.crates-io.cubecl-hip.path={}",
            serde_json::to_string(&shim()?)?
        ));
    if let Some(path) = &request.target.manifest_path {
        command.arg("--manifest-path").arg(path);
    }
    for feature in options.features.iter().chain(&project.features) {
        command.args(["--features", feature]);
    }
    let switches = [
        (options.no_default_features, "--no-default-features"),
        (options.offline, "--offline"),
        (request.quiet, "--quiet"),
    ];
    for (_, switch) in switches.iter().filter(|(on, _)| *on) {
        command.arg(switch);
    }
    Ok(command)
}

/// Says how much cargo is going to compile, before it takes minutes.
fn announce(project: &Project, request: &ProgramRequest, crates: &BTreeSet<Crate>) {
    let profile = if request.build.release {
        "release"
    } else {
        "debug"
    };
    let new = to_compile(crates, &project.target_folder.join(profile));
    if new > 0 && !request.quiet {
        anstream::eprintln!(
            "note: {new} of {} crates are to be compiled with a simulated card, into {}; the next time only what changes is",
            crates.len(),
            project.target_folder.display()
        );
    }
}
