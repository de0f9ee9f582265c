//! Keeps the user's lock file, which a build with the shim changes.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// A package that is in a lock file only while a program is built with a simulated card.
const OURS: &str = "name = \"simulated-card\"";

/// A lock file and its original content. The file is [restored](Self::restore) at the latest when this value
/// is dropped; if the process is killed before, the next process restores it.
#[derive(Debug)]
pub struct KeptLock {
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
    /// The file cannot be read or copied.
    pub fn new(path: &Path, folder: &Path) -> anyhow::Result<Self> {
        let copy = folder.join("Cargo.lock.before");
        let is_ours = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(OURS);
        let mut before = read(path)?;
        if before.as_deref().is_some_and(is_ours) {
            // A killed process left the changed file. An empty copy: there had been no lock file.
            before = read(&copy)?.filter(|bytes| !bytes.is_empty());
        }
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        std::fs::write(&copy, before.as_deref().unwrap_or_default())
            .with_context(|| copy.display().to_string())?;
        Ok(Self {
            path: path.into(),
            before,
            copy,
        })
    }

    /// Restores the file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn restore(&self) -> anyhow::Result<()> {
        let now = read(&self.path)?;
        let outcome = match &self.before {
            _ if now == self.before => Ok(()),
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
        if self.restore().is_ok() {
            let _ = std::fs::remove_file(&self.copy);
        }
    }
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Cargo.lock");
        let kept = KeptLock::new(&path, &folder.path().join("target")).unwrap();
        std::fs::write(&path, CHANGED).unwrap();
        kept.restore().unwrap();
        assert!(!path.exists());
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
