//! Which folders of a program's tree of files are overlays, so that it can write there.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders of the kernel, which hold no files of a user: a program has them as they are.
pub const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The mount points of this process.
///
/// # Errors
///
/// The system does not tell them.
pub fn mount_points() -> io::Result<BTreeSet<PathBuf>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// The mount points in the content of a `mountinfo` (proc(5)).
fn parse(mountinfo: &[u8]) -> BTreeSet<PathBuf> {
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

/// The overlays for the administrator, who may write everywhere: each mount has its own, the outer ones first.
pub fn of_administrator(mounts: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let is_kernel = |point: &&PathBuf| KERNEL.iter().any(|folder| point.starts_with(folder));
    let files = mounts.iter().filter(|point| !is_kernel(point));
    files.filter(|point| point.is_dir()).cloned().collect()
}

/// The overlays for a user with this id, who works in `here`: home, working folder and the folders for temporary files, the
/// outer ones first.
///
/// Of these each is as high as the user owns it. In a user namespace an overlay can copy only what belongs to the user, so a
/// folder of someone else's may be its root, and not below. It also shows nothing that is mounted below its root, which the
/// system refuses then (`clone_private_mount` in Linux, `fs/namespace.c`).
pub fn of_user(user: u32, here: &Path) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let temporary = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
    let wanted = home.into_iter().chain(temporary).chain([here.into()]);
    let folders = wanted.filter_map(|folder| folder.canonicalize().ok());
    let folders: BTreeSet<PathBuf> = folders.map(|folder| highest_own(user, &folder)).collect();
    folders.into_iter().collect()
}

/// The highest folder above `folder`, or itself, up to which all belong to `user`; never the root of all.
fn highest_own(user: u32, folder: &Path) -> PathBuf {
    let is_own = |above: &&Path| {
        above.parent().is_some() && fs::metadata(above).is_ok_and(|found| found.uid() == user)
    };
    let own = folder.ancestors().take_while(is_own);
    own.last().unwrap_or(folder).into()
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
        let points: Vec<_> = parse(text).into_iter().collect();
        assert_eq!(points, [Path::new("/mnt2"), Path::new("/mnt2/my data\\x")]);
    }

    #[test]
    fn an_administrators_overlays_are_the_mounts_without_the_kernels() {
        let mounts = ["/", "/dev/shm", "/proc", "/tmp", "/etc/hostname"];
        let mounts = mounts.into_iter().map(PathBuf::from).collect();
        // A file cannot be an overlay.
        assert_eq!(
            of_administrator(&mounts),
            [Path::new("/"), Path::new("/tmp")]
        );
    }

    #[test]
    fn a_users_overlays_are_as_high_as_what_the_user_owns() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().canonicalize().unwrap();
        let here = above.join("project");
        fs::create_dir(&here).unwrap();
        let user = fs::metadata(&here).unwrap().uid();
        let own = of_user(user, &here);
        assert!(
            own.iter().any(|overlay| above.starts_with(overlay)),
            "{own:?}"
        );
        assert!(!own.contains(&here) && !own.contains(&PathBuf::from("/")));
        // Of another user's folders the working folder is one, whatever is above it.
        let others = of_user(user + 1, &here);
        assert!(
            others.contains(&here) && !others.contains(&above),
            "{others:?}"
        );
    }
}
