//! Compiles the CUDA driver that counts (`estimator/counting-driver`), which the program carries: it
//! depends on std alone, so that rustc is all that it takes. Reads the versions of burn and CubeCL off the
//! lock file.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    state_versions();
    shrink_program();
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
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo says which rustc"));
    if let Some(linker) = chosen_linker() {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    let compiled = rustc
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
/// the runtime, and mostly come out alike for each. Has it also pack the relocations (24 bytes for each pointer in
/// the program's data otherwise, 7 MB in all) where the C library reads packed ones: glibc does from 2.36 on. Only
/// rust-lld is known to do both; it is rustc's own linker on this target.
fn shrink_program() {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    if env::var("TARGET").is_ok_and(|target| target != TARGET) || chosen_linker().is_some() {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    if env::var("HOST").is_ok_and(|host| host == TARGET) && glibc().is_some_and(|v| v >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The linker that was chosen in place of rustc's own, as by `.ci/release`, which links for an older glibc.
fn chosen_linker() -> Option<String> {
    env::var("RUSTC_LINKER").ok()
}

/// The version of this machine's C library, if it is glibc.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let version = String::from_utf8(output.ok()?.stdout).ok()?;
    let (major, minor) = version.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
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
