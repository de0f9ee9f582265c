//! Builds a user's program with a simulated card in the place of burn's ROCm runtime.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context;
use serde::Deserialize;

use super::cli::Program;
use super::lock::KeptLock;
use super::project::{Project, cargo, slot};
use crate::trouble::Trouble;

/// What cargo says of something that it built.
#[derive(Debug, Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Built>,
}

#[derive(Debug, Deserialize)]
struct Built {
    name: String,
}

/// Builds the program of `project`, beside the user's own builds and with the lock file as it was;
/// where it is then.
///
/// # Errors
///
/// It cannot be built.
pub fn build(project: &Project, raw: &Program) -> anyhow::Result<PathBuf> {
    let slot = slot()?;
    let lock = KeptLock::new(&project.lock, &project.target_folder)?;
    let mut command = cargo();
    command
        .args(["build", "--message-format", "json-render-diagnostics"])
        .args(["--package", &project.package])
        .args([project.target.option(), &project.target.name])
        .arg("--config")
        // A path as a string of TOML: those of JSON are.
        .arg(format!(
            "patch.crates-io.cubecl-hip.path={}",
            serde_json::to_string(&slot)?
        ))
        .arg("--target-dir")
        .arg(&project.target_folder);
    if let Some(path) = &raw.manifest_path {
        command.arg("--manifest-path").arg(path);
    }
    for feature in raw.features.iter().chain(&project.features) {
        command.args(["--features", feature]);
    }
    let switches = [
        (raw.no_default_features, "--no-default-features"),
        (raw.release, "--release"),
        (raw.offline, "--offline"),
        (raw.output.quiet, "--quiet"),
    ];
    for (_, switch) in switches.iter().filter(|(on, _)| *on) {
        command.arg(switch);
    }
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo cannot be started")?;
    let said = child.stdout.take();
    let mut executable = None;
    for line in said
        .into_iter()
        .flat_map(|said| BufReader::new(said).lines())
    {
        // Once it builds it has read the lock file, and does not write it again.
        lock.restore()?;
        if let Ok(Message {
            executable: Some(path),
            target: Some(built),
        }) = serde_json::from_str(&line?)
            && built.name == project.target.name
        {
            executable = Some(path);
        }
    }
    let status = child.wait()?;
    lock.restore()?;
    match executable.filter(|_| status.success()) {
        Some(executable) => Ok(executable),
        None => Err(Trouble::new(format!(
            "`{}` could not be built with a simulated card",
            project.target.name
        ))
        .hint("what cargo said is above; it was built with burn's feature `rocm` beside its own")
        .into()),
    }
}
