//! What `cargo fit-check` refuses before it builds anything.

use std::path::Path;
use std::process::{Command, Output};

/// `cargo fit-check` in the folder `at`, as cargo calls it.
fn cargo_fit_check(at: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cargo-fit-check"))
        .arg("fit-check")
        .args(args)
        .current_dir(at)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The errors where there is nothing to run. None of these commands builds anything.
#[test]
fn what_cannot_be_run_is_said_with_a_hint() {
    let empty = tempfile::tempdir().unwrap();
    let output = cargo_fit_check(empty.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(
        message.starts_with("error: could not find `Cargo.toml`"),
        "{message}"
    );
    assert!(
        message.contains("hint: run it in the folder of your program"),
        "{message}"
    );

    let without_burn = package("[dependencies]\n");
    let message = stderr(&cargo_fit_check(without_burn.path(), &[]));
    assert!(
        message.contains("error: package `trainer` does not depend on burn"),
        "{message}"
    );

    let output = cargo_fit_check(without_burn.path(), &["--bin", "other"]);
    let message = stderr(&output);
    assert!(
        message.contains("error: package `trainer` has no bin `other`"),
        "{message}"
    );
    assert!(message.contains("hint: it has trainer"), "{message}");

    // Without a lock file the manifest says it.
    let older = package("[dependencies]\nburn = \"0.21\"\n");
    let message = stderr(&cargo_fit_check(older.path(), &[]));
    assert!(
        message.contains("error: package `trainer` asks for burn ^0.21"),
        "{message}"
    );
    assert!(
        message.contains("hint: set the version of burn to 0.22.1 in Cargo.toml"),
        "{message}"
    );
    assert!(!older.path().join("target").exists());

    let lock = "version = 4\n\n[[package]]\nname = \"burn\"\nversion = \"0.21.0\"\n";
    std::fs::write(older.path().join("Cargo.lock"), lock).unwrap();
    let message = stderr(&cargo_fit_check(older.path(), &[]));
    assert!(
        message.contains("error: the program uses burn 0.21.0"),
        "{message}"
    );
    assert!(
        message.contains("hint: set the version of burn to 0.22.1 in Cargo.toml"),
        "{message}"
    );
}

/// A package with a program; `manifest` follows the name of the package.
fn package(manifest: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let head = "[package]\nname = \"trainer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    std::fs::write(
        folder.path().join("Cargo.toml"),
        format!("{head}\n{manifest}"),
    )
    .unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("src/main.rs"), "fn main() {}\n").unwrap();
    folder
}
