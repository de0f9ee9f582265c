//! Files that were named on the command line.

use std::fs;
use std::path::{Path, PathBuf};

use crate::trouble::Trouble;

/// A file that is to be written, and the option that names it.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// The option that named it.
    pub option: &'static str,
    /// What else can be done than to choose another one.
    pub otherwise: &'static str,
}

impl File<'_> {
    /// Whether it could be written, before any work is done for it.
    ///
    /// # Errors
    ///
    /// It could not.
    pub fn check(&self) -> Result<(), Trouble> {
        let path = self.path;
        if path.is_dir() {
            return Err(self.unwritable("it is a folder"));
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        match fs::metadata(folder) {
            Ok(folder) if folder.is_dir() => {}
            Ok(_) => return Err(self.unwritable("its parent is no folder")),
            Err(error) => return Err(self.unwritable(&error.to_string())),
        }
        // Probed beside the file, so that one that is there stays as it is.
        let probe = self.partial();
        match fs::write(&probe, "").and_then(|()| fs::remove_file(&probe)) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.unwritable(&error.to_string())),
        }
    }

    /// Writes it, in full or not at all.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn save(&self, text: &str) -> anyhow::Result<()> {
        let partial = self.partial();
        fs::write(&partial, text)
            .and_then(|()| fs::rename(&partial, self.path))
            .map_err(|error| {
                let _ = fs::remove_file(&partial);
                self.unwritable(&error.to_string()).into()
            })
    }

    fn unwritable(&self, why: &str) -> Trouble {
        let (option, otherwise) = (self.option, self.otherwise);
        Trouble::new(format!("cannot write {}: {why}", self.path.display()))
            .hint(format!("choose another {option}, or {otherwise}"))
    }

    fn partial(&self) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.partial", std::process::id()));
        self.path.with_file_name(name)
    }
}
