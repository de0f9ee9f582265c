//! The user's program, as its manifest describes it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use cargo_lock::{Lockfile, Version};
use cargo_metadata::{Metadata, MetadataCommand, Package, Target};

use super::crates::Crate;
use super::request::{BuildOptions, ProgramRequest, TargetRequest};
use crate::job_info::Burn;
use crate::user_error::{UserError, either};

/// The versions of burn and CubeCL that are simulated.
const SIMULATED: [(&str, &str); 2] = [("burn", Burn::VERSION), ("cubecl", env!("CUBECL_VERSION"))];

/// Where `.ci/release` puts the source of the shim, seen from the folder of the program.
const INSTALLED_SHIM: &str = "../share/fit-check/source/fit-check/shim";

/// A program, and the folder in which it is built.
#[derive(Debug)]
pub struct Project {
    /// The package's name.
    pub package: String,
    /// The target that cargo builds.
    pub target: Target,
    /// The features of burn that it needs besides its own.
    pub features: Vec<String>,
    /// The lock file of its workspace; it may not exist yet.
    pub lock: PathBuf,
    /// The folder for builds with a simulated card.
    pub target_folder: PathBuf,
}

/// The cargo that started this program, else the one in the path.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

impl Project {
    /// Finds the program that `request` names.
    ///
    /// # Errors
    ///
    /// There is no such program, there are several, or it uses another version of burn than the simulated
    /// one.
    pub fn find(request: &ProgramRequest) -> anyhow::Result<Self> {
        let metadata = metadata(&request.target)?;
        let package = package(&metadata, &request.target)?;
        let target = target(package, &request.target)?;
        let lock = metadata
            .workspace_root
            .join("Cargo.lock")
            .into_std_path_buf();
        if lock.is_file() {
            let locked = Lockfile::load(&lock).with_context(|| lock.display().to_string())?;
            check_versions(&locked_crates(locked))?;
        }
        Ok(Self {
            features: burn_features(package, &request.build)?,
            package: package.name.to_string(),
            target,
            lock,
            target_folder: metadata.target_directory.join("fit-check").into(),
        })
    }

    /// The option of cargo that selects the target.
    pub fn target_option(&self) -> &'static str {
        match self.target.is_example() {
            true => "--example",
            false => "--bin",
        }
    }
}

fn metadata(request: &TargetRequest) -> anyhow::Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.no_deps();
    if let Some(path) = &request.manifest_path {
        command.manifest_path(path);
    }
    command.exec().map_err(|error| match error {
        cargo_metadata::Error::CargoMetadata { stderr } => {
            UserError::new(stderr.trim().trim_start_matches("error: "))
                .hint("run it in the folder of your program, or add --manifest-path PATH")
                .into()
        }
        other => anyhow::Error::new(other).context("cargo cannot describe the program"),
    })
}

/// The named package, else the package of the folder, else the only package with a program.
fn package<'a>(metadata: &'a Metadata, request: &TargetRequest) -> Result<&'a Package, UserError> {
    let names = |packages: &[&Package]| -> Vec<String> {
        let names = packages.iter().map(|package| package.name.to_string());
        names.collect()
    };
    let all: Vec<&Package> = metadata.packages.iter().collect();
    if let Some(name) = &request.package {
        let found = all.iter().find(|package| *package.name == *name);
        return found.copied().ok_or_else(|| {
            UserError::new(format!("there is no package `{name}` in this workspace"))
                .hint(format!("there is {}", either(&names(&all))))
        });
    }
    let here = request.manifest_path.clone().or_else(nearest_manifest);
    // A file has many paths, and cargo may name it by another one than the user.
    let here = here.and_then(|path| path.canonicalize().ok());
    let of_folder = |package: &&&Package| {
        let manifest = package.manifest_path.as_std_path().canonicalize();
        here.is_some() && manifest.ok() == here
    };
    if let Some(package) = all.iter().find(of_folder) {
        return Ok(package);
    }
    let with_program = all.into_iter().filter(|p| target(p, request).is_ok());
    match &with_program.collect::<Vec<_>>()[..] {
        [one] => Ok(one),
        [] => Err(
            UserError::new("no package of this workspace has such a program")
                .hint("add --package NAME and --bin NAME, or --example NAME"),
        ),
        several => Err(
            UserError::new("several packages of this workspace have a program")
                .hint(format!("add --package: {}", either(&names(several)))),
        ),
    }
}

fn nearest_manifest() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let manifests = here.ancestors().map(|folder| folder.join("Cargo.toml"));
    manifests.into_iter().find(|path: &PathBuf| path.is_file())
}

fn target(package: &Package, request: &TargetRequest) -> Result<Target, UserError> {
    let (kind, name) = match &request.example {
        Some(name) => ("example", Some(name)),
        None => ("bin", request.bin.as_ref().or(package.default_run.as_ref())),
    };
    let is_program = |target: &&Target| match request.example {
        Some(_) => target.is_example(),
        None => target.is_bin(),
    };
    let all: Vec<&Target> = package.targets.iter().filter(is_program).collect();
    let found = match (name, &all[..]) {
        (Some(name), _) => all.iter().find(|target| target.name == *name).copied(),
        (None, [one]) => Some(*one),
        (None, _) => None,
    };
    let names: Vec<_> = all.iter().map(|target| target.name.as_str()).collect();
    found.cloned().ok_or_else(|| {
        let package = &package.name;
        match (name, &names[..]) {
            (_, []) => UserError::new(format!("package `{package}` has no program to run")).hint(
                "a program is a src/main.rs, a file in src/bin, or with --example an example",
            ),
            (Some(name), names) => {
                UserError::new(format!("package `{package}` has no {kind} `{name}`"))
                    .hint(format!("it has {}", either(names)))
            }
            (None, names) => UserError::new(format!("package `{package}` has several programs"))
                .hint(format!("add --bin: {}", either(names))),
        }
    })
}

/// The features of burn that the program needs: `rocm` is the simulated card, and with `std` the environment
/// can select it.
fn burn_features(package: &Package, build: &BuildOptions) -> Result<Vec<String>, UserError> {
    let burn = package
        .dependencies
        .iter()
        .find(|dependency| dependency.name == "burn");
    let Some(burn) = burn else {
        // A feature of the package itself may turn it on.
        return match build.features.is_empty() {
            false => Ok(Vec::new()),
            true => Err(UserError::new(format!(
                "package `{}` does not depend on burn",
                package.name
            ))
            .hint(
                "where another crate brings burn, add --features with one that turns on its `rocm`",
            )),
        };
    };
    if !burn.req.matches(&simulated(Burn::VERSION)) {
        let error = format!(
            "package `{}` asks for burn {}, and this fit-check simulates {}",
            package.name,
            burn.req,
            Burn::VERSION
        );
        return Err(UserError::new(error).hint(in_manifest("burn", Burn::VERSION)));
    }
    let burn = burn.rename.as_ref().unwrap_or(&burn.name);
    Ok(["rocm", "std"]
        .map(|feature| format!("{burn}/{feature}"))
        .into())
}

/// The crates of a lock file.
fn locked_crates(lock: Lockfile) -> BTreeSet<Crate> {
    let packages = lock.packages.into_iter();
    let crates = packages.map(|package| Crate {
        name: package.name.to_string(),
        version: package.version,
    });
    crates.collect()
}

fn simulated(version: &str) -> Version {
    Version::parse(version).expect("cargo wrote it")
}

/// The hint to set the version of a dependency.
fn in_manifest(name: &str, version: &str) -> String {
    format!("set the version of {name} to {version} in Cargo.toml")
}

/// Checks that the versions of `crates` are the simulated ones.
///
/// # Errors
///
/// Another version of burn or of CubeCL is among them, and not the simulated one.
pub fn check_versions(crates: &BTreeSet<Crate>) -> Result<(), UserError> {
    for (name, version) in SIMULATED {
        let simulated = simulated(version);
        let locked = crates.iter().filter(|known| known.name == name);
        let locked: Vec<_> = locked.map(|known| &known.version).collect();
        if !locked.is_empty() && !locked.contains(&&simulated) {
            // Before version 1, a requirement in a manifest allows no other minor version.
            let series = |version: &Version| (version.major, version.minor);
            let updates = locked
                .iter()
                .any(|version| series(version) == series(&simulated));
            return Err(UserError::new(format!(
                "the program uses {name} {}, and this fit-check simulates {simulated}",
                either(&locked)
            ))
            .hint(match updates {
                true => format!("cargo update {name} --precise {simulated}"),
                false => in_manifest(name, version),
            }));
        }
    }
    Ok(())
}

/// The crate that replaces burn's ROCm runtime: what was installed with this program, or what this program was built from.
///
/// # Errors
///
/// Neither exists.
pub fn shim() -> Result<PathBuf, UserError> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim");
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    let installed = program.map(|program| program.with_file_name("").join(INSTALLED_SHIM));
    let both = installed.into_iter().chain([built_from.clone()]);
    let mut found = both.filter_map(|shim| shim.canonicalize().ok());
    found
        .find(|shim| shim.join("Cargo.toml").is_file())
        .ok_or_else(|| {
            UserError::new(format!(
                "{}: the source of this fit-check is not there any more",
                built_from.display()
            ))
            .hint("a part of it is built with your program: install it again from where it stays")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_are_refused_with_what_to_type() {
        let lock = |version: &str| {
            let text = format!("[[package]]\nname = \"burn\"\nversion = \"{version}\"\n");
            locked_crates(text.parse().unwrap())
        };
        assert!(check_versions(&lock("0.22.1")).is_ok());
        for (version, hint) in [
            ("0.22.0", "cargo update burn --precise 0.22.1"),
            ("0.21.0", "set the version of burn to 0.22.1 in Cargo.toml"),
        ] {
            let refused = check_versions(&lock(version)).unwrap_err().to_string();
            assert!(refused.contains(&format!("burn {version}")), "{refused}");
            assert!(refused.contains(hint), "{refused}");
        }
    }

    #[test]
    fn a_package_is_found_by_every_path_of_its_manifest() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"first\", \"second\"]\n",
        );
        for name in ["first", "second"] {
            let package = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\n");
            write(&format!("{name}/Cargo.toml"), &package);
            write(&format!("{name}/src/main.rs"), "fn main() {}\n");
        }
        for path in ["second/Cargo.toml", "first/../second/Cargo.toml"] {
            let request = TargetRequest {
                manifest_path: Some(folder.path().join(path)),
                ..TargetRequest::default()
            };
            let metadata = metadata(&request).unwrap();
            let found = package(&metadata, &request).unwrap();
            assert_eq!(found.name.to_string(), "second", "{path}");
        }
    }
}
