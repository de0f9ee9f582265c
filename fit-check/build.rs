//! Compiles the CUDA driver that counts (`estimator/counting-driver`), which the program carries: it
//! depends on std alone, so that rustc is all that it takes. Reads the versions of burn and CubeCL off the
//! lock file.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    state_versions();
    fold_identical_functions();
    let crates = Path::new("../estimator");
    let driver = crates.join("counting-driver");
    let sources = [driver.join("src"), crates.join("card/src/launch_time.rs")];
    for source in &sources {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    // A CUDA driver is found by the name `libcuda.so.1` on Linux alone.
    let linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    println!("cargo::rustc-check-cfg=cfg(counting_driver)");
    if !linux {
        return;
    }
    println!("cargo::rustc-cfg=counting_driver");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to"));
    let compiled = Command::new(env::var_os("RUSTC").expect("cargo says which rustc"))
        .args(["--edition", "2024", "--crate-name", "counting_driver"])
        .args(["--crate-type", "cdylib", "--cap-lints", "allow"])
        // A panic must not pass through functions that C calls.
        .args([
            "-C",
            "opt-level=2",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
        ])
        .args([
            "--target",
            &env::var("TARGET").expect("cargo says for what"),
        ])
        .arg("-o")
        .arg(folder.join("libcuda.so.1"))
        .arg(driver.join("src/lib.rs"))
        .status()
        .expect("rustc starts");
    assert!(
        compiled.success(),
        "the counting CUDA driver does not compile"
    );
}

/// Has the linker keep one copy of functions that are compiled to the same instructions: burn's are generic over
/// the runtime, and mostly come out alike for each. Only rust-lld is known to do that; it is rustc's own linker on
/// this target.
fn fold_identical_functions() {
    if env::var("TARGET").is_ok_and(|target| target == "x86_64-unknown-linux-gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Makes the versions of burn and CubeCL that are simulated, those of the lock file, `BURN_VERSION` and
/// `CUBECL_VERSION`.
fn state_versions() {
    const LOCK: &str = "../Cargo.lock";
    println!("cargo::rerun-if-changed={LOCK}");
    let locked = cargo_lock::Lockfile::load(LOCK).expect("the lock file of the workspace");
    for (name, variable) in [("burn", "BURN_VERSION"), ("cubecl", "CUBECL_VERSION")] {
        let mut packages = locked.packages.iter();
        let package = packages.find(|package| package.name.as_str() == name);
        let version = &package.expect("a dependency").version;
        println!("cargo::rustc-env={variable}={version}");
    }
}
