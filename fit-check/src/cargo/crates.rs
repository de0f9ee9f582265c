//! The crates of a user's program with a simulated card, known before any of them is compiled.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use cargo_lock::Version;

use crate::interrupt;
use crate::user_error::UserError;

/// A crate of a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Version,
}

/// The crates that `tree`, a `cargo tree` without its options of output, shows: those that cargo would build.
///
/// # Errors
///
/// Cargo cannot find versions for all of them, or a feature that is asked for, or the user interrupted it.
pub fn crates(mut tree: Command) -> anyhow::Result<BTreeSet<Crate>> {
    tree.args(["--prefix", "none", "--format", "{p}"]);
    // What it waits for, and its errors, go to the user.
    let output = tree
        .stderr(Stdio::inherit())
        .output()
        .context("cargo cannot be started")?;
    if interrupt::requested() {
        return Err(UserError::new("interrupted").into());
    }
    if !output.status.success() {
        return Err(UserError::new("cargo cannot find all crates of the program")
            .hint("what cargo said is above; the program gets burn's feature `rocm` beside its own")
            .into());
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    Ok(lines.lines().filter_map(parse).collect())
}

/// `burn v0.22.1`, perhaps with more behind.
fn parse(line: &str) -> Option<Crate> {
    let mut words = line.split(' ');
    let name = words.next()?.to_string();
    let version = words.next()?.strip_prefix('v')?.parse().ok()?;
    Some(Crate { name, version })
}

/// How many of `crates` were never compiled in `folder`, the folder of a profile in a target folder.
pub fn to_compile(crates: &BTreeSet<Crate>, folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder.join(".fingerprint"));
    let names = entries.into_iter().flatten().flatten();
    // `burn-0123456789abcdef`
    let compiled: HashSet<String> = names
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.rsplit_once('-')?.0.to_string())
        })
        .collect();
    let new = crates
        .iter()
        .filter(|known| !compiled.contains(&known.name));
    new.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_tree_are_crates() {
        let of = |name: &str, version: &str| Crate {
            name: name.into(),
            version: version.parse().unwrap(),
        };
        for (line, parsed) in [
            ("burn v0.22.1", Some(of("burn", "0.22.1"))),
            (
                "serde_derive v1.0.228 (proc-macro) (*)",
                Some(of("serde_derive", "1.0.228")),
            ),
            (
                "trainer v0.1.0 (/work/my trainer)",
                Some(of("trainer", "0.1.0")),
            ),
            ("", None),
        ] {
            assert_eq!(parse(line), parsed, "{line}");
        }
    }

    #[test]
    fn a_crate_with_a_fingerprint_was_compiled() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".fingerprint/burn-0123456789abcdef")).unwrap();
        let crates = ["burn v0.22.1", "burn-core v0.22.1"]
            .into_iter()
            .filter_map(parse);
        let crates: BTreeSet<_> = crates.collect();
        assert_eq!(to_compile(&crates, folder.path()), 1);
        assert_eq!(to_compile(&crates, &folder.path().join("none")), 2);
    }
}
