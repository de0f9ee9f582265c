//! Keeps the user's lock file, which a build with the shim changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;

use crate::interrupt;
use crate::user_error::UserError;

/// A package that is in a lock file only while a program is built with a simulated card.
const OURS: &str = "name = \"simulated-card\"";

/// The lines that are there instead if the program has no use for the shim.
const UNUSED: [&str; 2] = ["[[patch.unused]]", "name = \"cubecl-hip\""];

/// The lock file of a workspace that depends on fit-check's crates has this package. A build with the shim does not add it.
const LIBRARY: &str = "name = \"estimator\"";

/// A lock file and its original content. The file is [restored](Self::restore) at the latest when this value
/// is dropped or when a signal ends the process; if the process is killed before, the next process restores it.
#[derive(Debug)]
pub struct KeptLock(Arc<Mutex<Kept>>);

/// What a [`KeptLock`] remembers.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    /// None if there was no lock file.
    before: Option<Vec<u8>>,
    /// The copy that outlives this process.
    copy: PathBuf,
}

impl KeptLock {
    /// Remembers the lock file at `path`, with a copy in `folder`.
    ///
    /// # Errors
    ///
    /// The file cannot be read or copied, a killed process changed it and its copy is gone, or its workspace depends on
    /// the simulated card.
    pub fn new(path: &Path, folder: &Path) -> anyhow::Result<Self> {
        let copy = folder.join("Cargo.lock.before");
        let mut before = read(path)?;
        if let Some(lock) = before.as_deref().filter(|lock| is_ours(lock)) {
            // A killed process left the changed file. An empty copy: there had been no lock file.
            let copied = read(&copy)?.ok_or_else(|| lost(path, lock))?;
            before = Some(copied).filter(|bytes| !bytes.is_empty());
        }
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        std::fs::write(&copy, before.as_deref().unwrap_or_default())
            .with_context(|| copy.display().to_string())?;
        let kept = Arc::new(Mutex::new(Kept {
            path: path.into(),
            before,
            copy,
        }));
        let lock = Self(Arc::clone(&kept));
        // The copy stays: cargo may still write the file.
        interrupt::at_end(move || {
            let _ = locked(&kept).restore();
            None
        });
        Ok(lock)
    }

    /// Restores the file if it is as a build with a simulated card left it. Otherwise the user changed it meanwhile,
    /// for instance by `cargo update`.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub fn restore(&self) -> anyhow::Result<()> {
        locked(&self.0).restore()
    }
}

/// The content of `kept`, which one thread restores at a time.
fn locked(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn restore(&self) -> anyhow::Result<()> {
        if !read(&self.path)?.as_deref().is_some_and(is_ours) {
            return Ok(());
        }
        let outcome = match &self.before {
            Some(before) => std::fs::write(&self.path, before),
            None => std::fs::remove_file(&self.path),
        };
        outcome.with_context(|| {
            format!(
                "{} could not be restored; it was {}",
                self.path.display(),
                self.copy.display()
            )
        })
    }
}

impl Drop for KeptLock {
    fn drop(&mut self) {
        let kept = locked(&self.0);
        if kept.restore().is_ok() {
            let _ = std::fs::remove_file(&kept.copy);
        }
    }
}

/// Whether `lock` is the content of a lock file that a build with a simulated card wrote.
fn is_ours(lock: &[u8]) -> bool {
    let text = String::from_utf8_lossy(lock);
    let lines: Vec<&str> = text.lines().collect();
    lines.contains(&OURS) || lines.windows(2).any(|pair| pair == UNUSED)
}

/// The error for a file with the content `lock` of which there is no copy: a killed process changed it, or its workspace
/// depends on the simulated card.
fn lost(path: &Path, lock: &[u8]) -> UserError {
    let path = path.display();
    let text = String::from_utf8_lossy(lock);
    if text.lines().any(|line| line == LIBRARY) {
        return UserError::new(format!("the workspace of {path} depends on fit-check itself"))
            .hint(format!(
                "run `cargo fit-check` where the program has a workspace of its own, without fit-check's crates; if it has, \
                 `git checkout {path}`"
            ));
    }
    UserError::new(format!(
        "{path} is as a build with a simulated card left it, and the copy of yours is gone"
    ))
    .hint(format!(
        "`git checkout {path}` brings yours back; or remove it, and cargo writes a new one"
    ))
}

/// The content of a file; none if there is no file.
fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGED: &str = "[[package]]\nname = \"simulated-card\"\n";

    #[test]
    fn the_lock_file_is_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Cargo.lock");
        std::fs::write(&path, "mine").unwrap();
        let kept = KeptLock::new(&path, &folder.path().join("target")).unwrap();
        std::fs::write(&path, CHANGED).unwrap();
        drop(kept);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn where_there_was_none_there_is_none() {
        let unused = UNUSED.join("\n");
        for changed in [CHANGED, &unused] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("Cargo.lock");
            let kept = KeptLock::new(&path, &folder.path().join("target")).unwrap();
            std::fs::write(&path, changed).unwrap();
            kept.restore().unwrap();
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_the_user_changes_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Cargo.lock");
        std::fs::write(&path, "mine").unwrap();
        let kept = KeptLock::new(&path, &folder.path().join("target")).unwrap();
        std::fs::write(&path, CHANGED).unwrap();
        kept.restore().unwrap();
        std::fs::write(&path, "mine, updated").unwrap();
        kept.restore().unwrap();
        drop(kept);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine, updated");
    }

    #[test]
    fn a_changed_file_without_a_copy_is_an_error_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Cargo.lock");
        std::fs::write(&path, CHANGED).unwrap();
        let lost = KeptLock::new(&path, &folder.path().join("target")).unwrap_err();
        assert!(lost.to_string().contains("git checkout"), "{lost}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), CHANGED);
    }

    #[test]
    fn a_workspace_that_depends_on_fit_check_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Cargo.lock");
        let lock = format!("[[package]]\n{LIBRARY}\n\n{CHANGED}");
        std::fs::write(&path, &lock).unwrap();
        let refused = KeptLock::new(&path, &folder.path().join("target")).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("depends on fit-check itself"), "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), lock);
    }

    #[test]
    fn what_a_killed_process_left_is_put_back_by_the_next() {
        for mine in [Some("mine"), None] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("Cargo.lock");
            if let Some(mine) = mine {
                std::fs::write(&path, mine).unwrap();
            }
            let target = folder.path().join("target");
            std::mem::forget(KeptLock::new(&path, &target).unwrap());
            std::fs::write(&path, CHANGED).unwrap();
            drop(KeptLock::new(&path, &target).unwrap());
            assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), mine);
        }
    }
}
