//! Files that the command line names.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::user_error::UserError;

/// A file to write, and the option that names it.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// The path of the file.
    pub path: &'a Path,
    /// The option that named it.
    pub option: &'static str,
    /// What the user can do instead of choosing another file.
    pub otherwise: &'static str,
}

/// How a file is written.
enum Target {
    /// A regular file, or one that does not exist yet: a new file takes its place.
    Replaced {
        path: PathBuf,
        existing: Option<Metadata>,
    },
    /// A terminal, a pipe, a device, or the target of `/dev/stdout`: it is opened and written to, after any text that was
    /// written through the same name before.
    Opened,
}

impl File<'_> {
    /// Checks that the file can be written, before any work is done for it.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn check(&self) -> Result<(), UserError> {
        let probe = || match self.target()? {
            // The probe is a new file beside the named one, so an existing file stays as it is.
            Target::Replaced { path, existing } => partial(&path, existing.as_ref()).map(drop),
            // A pipe is not opened before there is something to write: its reader would see an end.
            Target::Opened => Ok(()),
        };
        probe().map_err(|error| self.unwritable(&error))
    }

    /// Writes `content`: a regular file as [`replace`] does, with its previous permissions.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn save(&self, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let content = content.as_ref();
        let write = || match self.target()? {
            Target::Replaced { path, existing } => replace(&path, existing.as_ref(), content),
            Target::Opened => append(self.path, content),
        };
        match write() {
            // The reader has closed its pipe: it has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            outcome => Ok(outcome.map_err(|error| self.unwritable(&error))?),
        }
    }

    /// How the file is written. An error: the path is, or can only name, a folder.
    fn target(&self) -> io::Result<Target> {
        let path = behind_links(self.path)?;
        let existing = match fs::metadata(self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            metadata => Some(metadata?),
        };
        let folder = |what: &str| Err(io::Error::new(io::ErrorKind::IsADirectory, what));
        match &existing {
            Some(existing) if existing.is_dir() => folder("it is a folder"),
            None if names_folder(&path) => folder("it names a folder"),
            Some(existing) if is_of_the_system(&path) || !existing.is_file() => Ok(Target::Opened),
            _ => Ok(Target::Replaced { path, existing }),
        }
    }

    fn unwritable(&self, why: &io::Error) -> UserError {
        let (option, otherwise) = (self.option, self.otherwise);
        let why = plain(why);
        UserError::new(format!("cannot write {}: {why}", self.path.display()))
            .hint(format!("choose another {option}, or {otherwise}"))
    }
}

/// Checks that no two options name the same file.
///
/// # Errors
///
/// Two options do.
pub fn check_apart<'a>(
    named: impl IntoIterator<Item = (&'static str, &'a Path)>,
) -> Result<(), UserError> {
    let mut known: Vec<(&str, PathBuf)> = Vec::new();
    for (option, path) in named {
        let file = usual_path(path);
        if let Some((other, _)) = known.iter().find(|(_, known)| *known == file) {
            let path = path.display();
            return Err(
                UserError::new(format!("{other} and {option} both name {path}"))
                    .hint("give each a file of its own"),
            );
        }
        known.push((option, file));
    }
    Ok(())
}

/// The same path for every path of a file, whether the file exists or not.
fn usual_path(path: &Path) -> PathBuf {
    let path = behind_links(path).unwrap_or_else(|_| path.to_path_buf());
    match (fs::canonicalize(folder_of(&path)), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Writes a new regular file at `path`, with the permissions of the `existing` one, in full or not at all. If the system
/// lets no other file take the place of the existing one, its content is overwritten.
///
/// # Errors
///
/// It cannot be written. The existing file is then as it was, unless it was being overwritten.
pub fn replace(path: &Path, existing: Option<&Metadata>, content: &[u8]) -> io::Result<()> {
    let mut partial = partial(path, existing)?;
    partial.write_all(content)?;
    // Only this shows that the disk is full, on some systems.
    partial.as_file().sync_all()?;
    match partial.persist(path).map_err(io::Error::from) {
        Err(error) if existing.is_some() && stays_in_place(&error) => overwrite(path, content),
        outcome => outcome.map(drop),
    }
}

/// Whether `error` says that no other file can take the place of an existing one: a file that is mounted by itself into a
/// container, or that of another user in a folder such as `/tmp`.
fn stays_in_place(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        io::ErrorKind::ResourceBusy | io::ErrorKind::PermissionDenied
    )
}

fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    // Not `fs::write`: where Linux protects such files (`fs.protected_regular`), they cannot be opened as if to create them.
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Checks that text can be added to what is at `path`. A pipe or a device is not opened before there is something to
/// write: the reader of a pipe would see an end.
///
/// # Errors
///
/// Nothing is at `path`, or it cannot be written.
pub fn check_append(path: &Path) -> io::Result<()> {
    let existing = fs::metadata(path)?;
    match existing.is_file() || existing.is_dir() {
        true => append(path, b""),
        false => Ok(()),
    }
}

/// Adds `content` to the end of what is at `path`: to a regular file in full or not at all.
///
/// # Errors
///
/// Nothing is at `path`, or it cannot be written.
pub fn append(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut opened = OpenOptions::new().append(true).open(path)?;
    let before = opened.metadata()?;
    // One call, so that two programs that add lines to a file do not mix them.
    let written = opened.write_all(content).and_then(|()| opened.flush());
    if written.is_err() && before.is_file() {
        opened.set_len(before.len())?;
    }
    written
}

/// Whether `path` names a file that this process has open, such as `/dev/stdout`, or another file of the kernel: no new
/// file can take its place.
fn is_of_the_system(path: &Path) -> bool {
    const ROOTS: [&str; 5] = [
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
        "/dev/fd",
        "/proc",
    ];
    ROOTS.iter().any(|root| path.starts_with(root))
}

/// Whether `path` can only name a folder. Its components do not show a `/` or a `/.` at the end.
fn names_folder(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    let text = text.strip_suffix(b".").unwrap_or(text);
    let last = text.last().map(|last| char::from(*last));
    last.is_some_and(std::path::is_separator)
}

/// The path at the end of the links that begin at `path`, whether it exists or not. Links of the system, such as
/// `/dev/stdout`, are not followed.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    /// The number of links that Linux follows (`path_resolution(7)`).
    const MAX_LINKS: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        if is_of_the_system(&path) {
            return Ok(path);
        }
        match fs::read_link(&path) {
            Ok(next) => path = folder_of(&path).join(next),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links"))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A new file beside `path`, with the permissions of the existing file or else the usual ones.
fn partial(path: &Path, existing: Option<&Metadata>) -> io::Result<NamedTempFile> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    let mut builder = Builder::new();
    builder.prefix(&name).suffix(".partial");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let partial = builder.tempfile_in(folder_of(path))?;
    if let Some(existing) = existing {
        partial.as_file().set_permissions(existing.permissions())?;
    }
    Ok(partial)
}

/// `error` as the system describes it, without the name of the temporary file.
fn plain(error: &io::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(" at path ").unwrap_or(text.len()));
    text
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_file_and_that_of_another_user_stay_in_place() {
        // EPERM, EBUSY; ENOSPC.
        let stays = [1, 16, 28].map(|code| stays_in_place(&io::Error::from_raw_os_error(code)));
        assert_eq!(stays, [true, true, false]);
    }

    #[test]
    fn what_is_overwritten_has_no_rest_of_the_longer_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answer");
        assert!(overwrite(&path, b"new").is_err(), "it is not there");
        fs::write(&path, "before").unwrap();
        overwrite(&path, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
