//! Which folders a program sees as they are, and which below an overlay.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One step of building the tree of files that a program sees, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An overlay over this folder, below which nothing is mounted.
    Overlay(PathBuf),
    /// This folder as it is, with all that is mounted below it.
    Real(PathBuf),
    /// A folder of this mode, for the steps below it.
    Folder(PathBuf, u32),
    /// This file, which cannot be changed.
    File(PathBuf),
    /// A symbolic link, and where it leads.
    Link(PathBuf, PathBuf),
}

impl Step {
    /// What it puts into the tree.
    pub fn path(&self) -> &Path {
        match self {
            Self::Overlay(path)
            | Self::Real(path)
            | Self::Folder(path, _)
            | Self::File(path)
            | Self::Link(path, _) => path,
        }
    }
}

/// Folders of the kernel, which hold no files of a user.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The steps to a tree in which only `real` can be changed.
///
/// An overlay shows nothing that is mounted below its folder, and an ordinary user may not put one over a folder with such
/// mounts (`clone_private_mount` in Linux, `fs/namespace.c`). So a folder with mounts below is taken apart.
///
/// # Errors
///
/// The mounts of this process cannot be read.
pub fn steps(real: &[&Path]) -> io::Result<Vec<Step>> {
    let mounts = mount_points(&fs::read("/proc/self/mountinfo")?);
    let mut steps = Vec::new();
    add(Path::new("/"), &mounts, &mut steps);
    for folder in real {
        steps.push(Step::Real(folder.canonicalize()?));
    }
    Ok(steps)
}

/// The mount points in the content of a `mountinfo` (proc(5)).
fn mount_points(mountinfo: &[u8]) -> BTreeSet<PathBuf> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(|point| unescaped(point).into()).collect()
}

/// `text` without the escapes of `mountinfo`: `\040` is a space.
fn unescaped(text: &[u8]) -> OsString {
    let mut plain = Vec::new();
    let mut rest = text;
    while let [first, others @ ..] = rest {
        let code = rest
            .get(1..4)
            .and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 8).ok());
        match code.filter(|_| *first == b'\\') {
            Some(byte) => {
                plain.push(byte);
                rest = &rest[4..];
            }
            None => {
                plain.push(*first);
                rest = others;
            }
        }
    }
    OsString::from_vec(plain)
}

/// Adds the steps for `folder`.
fn add(folder: &Path, mounts: &BTreeSet<PathBuf>, steps: &mut Vec<Step>) {
    if KERNEL.iter().any(|kernel| folder == Path::new(kernel)) {
        steps.push(Step::Real(folder.into()));
        return;
    }
    let has_mounts = mounts
        .iter()
        .any(|point| point != folder && point.starts_with(folder));
    let entries = match has_mounts {
        true => fs::read_dir(folder),
        false => {
            steps.push(Step::Overlay(folder.into()));
            return;
        }
    };
    // What the user cannot list is taken as a whole.
    let (Ok(entries), Ok(metadata)) = (entries, fs::metadata(folder)) else {
        steps.push(Step::Real(folder.into()));
        return;
    };
    steps.push(Step::Folder(
        folder.into(),
        metadata.permissions().mode() & 0o7777,
    ));
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => add(&path, mounts, steps),
            Ok(kind) if kind.is_symlink() => {
                if let Ok(target) = fs::read_link(&path) {
                    steps.push(Step::Link(path, target));
                }
            }
            Ok(_) => steps.push(Step::File(path)),
            // It is gone meanwhile.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        // As in proc(5), and a folder with a space and a backslash.
        let text =
            b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
                     37 36 0:5 / /mnt2/my\\040data\\134x rw - tmpfs tmpfs rw\n";
        let points: Vec<_> = mount_points(text).into_iter().collect();
        assert_eq!(points, [Path::new("/mnt2"), Path::new("/mnt2/my data\\x")]);
    }

    #[test]
    fn only_a_folder_with_mounts_below_it_is_taken_apart() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for below in ["data/disk", "data/other", "home"] {
            fs::create_dir_all(root.join(below)).unwrap();
        }
        fs::write(root.join("data/file"), "").unwrap();
        std::os::unix::fs::symlink("home", root.join("link")).unwrap();
        let mounts = BTreeSet::from([root.join("data/disk")]);
        let mut steps = Vec::new();
        add(root, &mounts, &mut steps);
        let has = |step: Step| assert!(steps.contains(&step), "{step:?} in {steps:?}");
        has(Step::Overlay(root.join("data/disk")));
        has(Step::Overlay(root.join("data/other")));
        has(Step::File(root.join("data/file")));
        has(Step::Overlay(root.join("home")));
        has(Step::Link(root.join("link"), "home".into()));
        assert_eq!(steps.len(), 7);
    }
}
