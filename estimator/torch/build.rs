//! Lists the files of the recorder and the networks that were recorded, so that the program carries them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("recorder");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = vec![root.join("sitecustomize.py")];
    collect(&root.join("fit_check_recorder"), &mut files)?;
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file);
        let _ = writeln!(list, "({name:?}, include_str!({file:?})),");
    }
    list.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("recorder_files.rs"), list)?;
    fs::write(out.join("kept_files.rs"), kept()?)
}

/// The list of the networks that were recorded.
fn kept() -> io::Result<String> {
    let folder =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("data/zoo");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<io::Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "zst"));
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.file_stem().unwrap_or_default();
        let _ = writeln!(list, "({name:?}, include_bytes!({file:?}).as_slice()),");
    }
    list.push(']');
    Ok(list)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "py") {
            files.push(path);
        }
    }
    Ok(())
}
