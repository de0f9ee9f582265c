//! The user's program, as its manifest describes it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde::Deserialize;

use super::cli::Program;
use crate::trouble::{Trouble, either};

/// The burn that is simulated, and the CubeCL under it.
const SIMULATED: [(&str, &str); 2] = [("burn", "0.22.1"), ("cubecl", "0.11.3")];

/// A program, and where it is built.
#[derive(Debug)]
pub struct Project {
    /// The package's name.
    pub package: String,
    /// What is built.
    pub target: Target,
    /// The features of burn that it needs beside its own.
    pub features: Vec<String>,
    /// The lock file of its workspace, which need not be there yet.
    pub lock: PathBuf,
    /// Where it is built with a simulated card.
    pub target_folder: PathBuf,
}

/// A program of a package.
#[derive(Clone, Debug, Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    kind: Vec<String>,
}

impl Target {
    fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|known| known == kind)
    }

    /// The option with which cargo builds it alone.
    pub fn option(&self) -> &'static str {
        match self.is("example") {
            true => "--example",
            false => "--bin",
        }
    }
}

/// What `cargo metadata` says, as far as it matters.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    dependencies: Vec<Dependency>,
    default_run: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
}

/// cargo, as the cargo that started this program is called.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

impl Project {
    /// The program that `raw` means.
    ///
    /// # Errors
    ///
    /// There is none, or several; or it has no burn that is simulated.
    pub fn find(raw: &Program) -> anyhow::Result<Self> {
        let metadata = metadata(raw)?;
        let package = package(&metadata, raw)?;
        let target = target(package, raw)?;
        let lock = metadata.workspace_root.join("Cargo.lock");
        check_versions(&std::fs::read_to_string(&lock).unwrap_or_default())?;
        Ok(Self {
            features: burn_features(package, raw)?,
            package: package.name.clone(),
            target,
            lock,
            target_folder: metadata.target_directory.join("fit-check"),
        })
    }
}

fn metadata(raw: &Program) -> anyhow::Result<Metadata> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    if let Some(path) = &raw.manifest_path {
        command.arg("--manifest-path").arg(path);
    }
    let output = command.output().context("cargo cannot be started")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("error: ").to_string();
        return Err(Trouble::new(said)
            .hint("run it in the folder of your program, or add --manifest-path PATH")
            .into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The package that was named; or that of the folder; or the only one with a program.
fn package<'a>(metadata: &'a Metadata, raw: &Program) -> Result<&'a Package, Trouble> {
    let names = |packages: &[&Package]| -> Vec<String> {
        let names = packages.iter().map(|package| package.name.clone());
        names.collect()
    };
    let all: Vec<&Package> = metadata.packages.iter().collect();
    if let Some(name) = &raw.package {
        let found = all.iter().find(|package| package.name == *name);
        return found.copied().ok_or_else(|| {
            Trouble::new(format!("there is no package `{name}` in this workspace"))
                .hint(format!("there is {}", either(&names(&all))))
        });
    }
    let here = match &raw.manifest_path {
        Some(path) => std::path::absolute(path).ok(),
        None => nearest_manifest(),
    };
    let of_folder = |package: &&&Package| Some(&package.manifest_path) == here.as_ref();
    if let Some(package) = all.iter().find(of_folder) {
        return Ok(package);
    }
    let with_program = all.into_iter().filter(|p| target(p, raw).is_ok());
    match &with_program.collect::<Vec<_>>()[..] {
        [one] => Ok(one),
        [] => Err(
            Trouble::new("no package of this workspace has such a program")
                .hint("add --package NAME and --bin NAME, or --example NAME"),
        ),
        several => Err(
            Trouble::new("several packages of this workspace have a program")
                .hint(format!("add --package: {}", either(&names(several)))),
        ),
    }
}

fn nearest_manifest() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let manifests = here.ancestors().map(|folder| folder.join("Cargo.toml"));
    manifests.into_iter().find(|path: &PathBuf| path.is_file())
}

fn target(package: &Package, raw: &Program) -> Result<Target, Trouble> {
    let (kind, name) = match &raw.example {
        Some(name) => ("example", Some(name)),
        None => ("bin", raw.bin.as_ref().or(package.default_run.as_ref())),
    };
    let all: Vec<&Target> = package.targets.iter().filter(|t| t.is(kind)).collect();
    let found = match (name, &all[..]) {
        (Some(name), _) => all.iter().find(|target| target.name == *name).copied(),
        (None, [one]) => Some(*one),
        (None, _) => None,
    };
    let names: Vec<_> = all.iter().map(|target| target.name.as_str()).collect();
    found.cloned().ok_or_else(|| {
        let package = &package.name;
        match (name, &names[..]) {
            (_, []) => Trouble::new(format!("package `{package}` has no program to run")).hint(
                "a program is a src/main.rs, a file in src/bin, or with --example an example",
            ),
            (Some(name), names) => {
                Trouble::new(format!("package `{package}` has no {kind} `{name}`"))
                    .hint(format!("it has {}", either(names)))
            }
            (None, names) => Trouble::new(format!("package `{package}` has several programs"))
                .hint(format!("add --bin: {}", either(names))),
        }
    })
}

/// burn's feature that gives a program the simulated card, and the one with which it can be told
/// to use it.
fn burn_features(package: &Package, raw: &Program) -> Result<Vec<String>, Trouble> {
    let burn = package.dependencies.iter().find(|it| it.name == "burn");
    let Some(burn) = burn else {
        // A feature of its own may do it.
        return match raw.features.is_empty() {
            false => Ok(Vec::new()),
            true => Err(Trouble::new(format!(
                "package `{}` does not depend on burn",
                package.name
            ))
            .hint(
                "where another crate brings burn, add --features with one that turns on its `rocm`",
            )),
        };
    };
    let burn = burn.rename.as_ref().unwrap_or(&burn.name);
    Ok(["rocm", "std"]
        .map(|feature| format!("{burn}/{feature}"))
        .into())
}

/// Whether the versions in `lock` are those that are simulated.
fn check_versions(lock: &str) -> Result<(), Trouble> {
    for (name, simulated) in SIMULATED {
        let locked = versions(lock, name);
        if !locked.is_empty() && !locked.contains(&simulated) {
            return Err(Trouble::new(format!(
                "the program is locked to {name} {}, and this fit-check simulates {simulated}",
                either(&locked)
            ))
            .hint(format!("cargo update {name} --precise {simulated}")));
        }
    }
    Ok(())
}

/// The versions of the package `name` in the text of a lock file.
fn versions<'a>(lock: &'a str, name: &str) -> Vec<&'a str> {
    let this = format!("name = \"{name}\"");
    let lines = lock.lines().zip(lock.lines().skip(1));
    lines
        .filter(|(line, _)| *line == this)
        .filter_map(|(_, version)| version.strip_prefix("version = \"")?.strip_suffix('"'))
        .collect()
}

/// The crate that takes the place of burn's ROCm runtime.
///
/// # Errors
///
/// The source of this program is not there any more.
pub fn slot() -> Result<PathBuf, Trouble> {
    let slot = Path::new(env!("CARGO_MANIFEST_DIR")).join("slot");
    match slot.join("Cargo.toml").is_file() {
        true => Ok(slot),
        false => Err(Trouble::new(format!(
            "{}: the source of this fit-check is not there any more",
            slot.display()
        ))
        .hint("a part of it is built with your program: install it again from where it stays")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_are_refused_with_what_to_type() {
        let lock = |version: &str| {
            format!("[[package]]\nname = \"burn\"\nversion = \"{version}\"\nsource = \"x\"\n")
        };
        assert!(check_versions(&lock("0.22.1")).is_ok());
        assert!(check_versions("").is_ok());
        let refused = check_versions(&lock("0.21.0")).unwrap_err().to_string();
        assert!(refused.contains("burn 0.21.0"), "{refused}");
        assert!(refused.contains("cargo update burn --precise 0.22.1"));
    }
}
