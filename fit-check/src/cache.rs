//! Answers that are kept between calls, so that the same question again needs no simulation.
//!
//! The key of an answer is [`Question`]: what it depends on must be in it.
//!
//! An entry is a file in the cache folder of the system. Its name is a hash of the key. It holds the
//! key too, and which build made it: another build of fit-check simulates again. A damaged or foreign
//! file counts as no entry. A folder that cannot be written to costs the entries and nothing else.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use etcetera::BaseStrategy;
use model_zoo::Model;
use serde::{Deserialize, Serialize};

pub use crate::cache_key::{Question, StepKey};
use crate::cli;
use crate::output::{Rendered, file};

/// The most bytes that all entries take; those that were asked for least recently are deleted first.
const MAX_BYTES: u64 = 64 << 20;

/// The environment variable that names another folder; if it is empty, nothing is kept.
pub const FOLDER: &str = "FIT_CHECK_CACHE_DIR";

/// The most bytes of one entry. Chosen, so that one entry leaves room for others.
const MAX_ENTRY: u64 = 16 << 20;

/// The extension of an entry.
const EXTENSION: &str = "answer";

/// An answer in every format, and its exit status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The answer.
    pub rendered: Rendered,
    /// The exit status.
    pub status: u8,
}

/// An entry as it is stored.
#[derive(Serialize, Deserialize)]
struct Entry {
    key: String,
    value: Answer,
}

/// A folder of entries.
#[derive(Clone, Debug)]
pub struct Cache {
    /// None if nothing should be kept, or if the system names no folder for it.
    folder: Option<PathBuf>,
}

/// The size of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Contents {
    /// The number of entries.
    pub entries: u64,
    /// The bytes of all entries.
    pub bytes: u64,
}

impl Cache {
    /// The cache of this user.
    pub fn of_user() -> Self {
        let usual = || {
            let strategy = etcetera::choose_base_strategy().ok()?;
            Some(strategy.cache_dir().join("fit-check"))
        };
        let folder = match std::env::var_os(FOLDER) {
            Some(_) if Self::is_turned_off() => None,
            Some(named) => Some(named.into()),
            None => usual(),
        };
        Self { folder }
    }

    /// Whether the user wants nothing kept: [`FOLDER`] is empty.
    pub fn is_turned_off() -> bool {
        std::env::var_os(FOLDER).is_some_and(|named| named.is_empty())
    }

    /// The cache of this user, for what is known about `model`. Nothing is kept if `raw` says so, nor for a model
    /// outside the zoo: its files or its code can change.
    pub fn about(model: &impl Model, raw: &cli::Caching) -> Self {
        Self::about_all([model], raw)
    }

    /// The cache of this user for an answer about several models.
    pub fn about_all<'a, M: Model + 'a>(
        models: impl IntoIterator<Item = &'a M>,
        raw: &cli::Caching,
    ) -> Self {
        let published = models.into_iter().all(|model| model.published().is_some());
        match published && !raw.no_cache {
            true => Self::of_user(),
            false => Self::none(),
        }
    }

    /// A cache that keeps nothing.
    pub fn none() -> Self {
        Self { folder: None }
    }

    /// The folder of the cache.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Writes what is kept under `key`, or else has `simulate` write the answer, and keeps it. Returns the exit status.
    ///
    /// # Errors
    ///
    /// Those of `simulate`, and that what is kept cannot be written.
    pub fn answer(
        &self,
        key: &impl Serialize,
        output: &cli::Output,
        simulate: impl FnOnce() -> anyhow::Result<Answer>,
    ) -> anyhow::Result<u8> {
        if let Some(status) = self.write_kept(key, output)? {
            return Ok(status);
        }
        let answer = simulate()?;
        let status = answer.status;
        self.keep(key, answer);
        Ok(status)
    }

    /// Writes what is kept under `key`, and returns its exit status; none if nothing is kept.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write_kept(
        &self,
        key: &impl Serialize,
        output: &cli::Output,
    ) -> anyhow::Result<Option<u8>> {
        let Some(known) = self.find(key) else {
            return Ok(None);
        };
        known.rendered.write(output)?;
        Ok(Some(known.status))
    }

    /// What is kept under `key`, if anything is. An entry that another user could have written counts as none.
    pub fn find(&self, key: &impl Serialize) -> Option<Answer> {
        let (key, path) = self.entry(key)?;
        let file = open_own(&path)?;
        let mut text = String::new();
        (&file).take(MAX_ENTRY).read_to_string(&mut text).ok()?;
        let entry: Entry = serde_json::from_str(&text).ok()?;
        if entry.key != key {
            return None;
        }
        // The oldest entries are deleted first, so this one counts as new again.
        if let Ok(file) = fs::File::options().append(true).open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(entry.value)
    }

    /// Keeps `value` under `key`, if possible.
    pub fn keep(&self, key: &impl Serialize, value: Answer) {
        let Some((key, path)) = self.entry(key) else {
            return;
        };
        let written = || -> std::io::Result<()> {
            let entry = serde_json::to_string(&Entry { key, value })?;
            if entry.len() as u64 >= MAX_ENTRY {
                return Ok(());
            }
            let folder = self.folder.as_deref().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            file::replace(&path, None, entry.as_bytes())?;
            self.shrink(MAX_BYTES)
        };
        // The user gets the answer all the same.
        let _ = written();
    }

    /// The number and the bytes of the entries.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn contents(&self) -> std::io::Result<Contents> {
        let files = self.files()?;
        Ok(Contents {
            entries: files.len() as u64,
            bytes: files.iter().map(|file| file.bytes).sum(),
        })
    }

    /// Deletes all entries, and returns what it deleted.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or a file cannot be deleted.
    pub fn clear(&self) -> std::io::Result<Contents> {
        let contents = self.contents()?;
        self.shrink(0)?;
        Ok(contents)
    }

    /// Deletes the oldest entries until the others take at most `most` bytes.
    fn shrink(&self, most: u64) -> std::io::Result<()> {
        let mut files = self.files()?;
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        files.sort_by_key(|file| file.asked);
        for file in files {
            if bytes <= most {
                break;
            }
            match fs::remove_file(&file.path) {
                // Another process may have deleted it.
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => bytes -= file.bytes,
            }
        }
        Ok(())
    }

    fn files(&self) -> std::io::Result<Vec<EntryFile>> {
        let folder = match self.folder.as_deref().map(fs::read_dir) {
            None => return Ok(Vec::new()),
            Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            Some(folder) => folder?,
        };
        let files = folder.filter_map(|file| EntryFile::of(file.ok()?));
        Ok(files.collect())
    }

    /// `key` as it is stored, and the path of its entry.
    fn entry(&self, key: &impl Serialize) -> Option<(String, PathBuf)> {
        let folder = self.folder.as_ref()?;
        let key = serde_json::to_string(&(Build::this()?, key)).ok()?;
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let name = format!("{:016x}.{EXTENSION}", hasher.finish());
        Some((key, folder.join(name)))
    }
}

/// The file at `path`, if it is an ordinary file of this user and no larger than an entry. Others may be able to write to the folder,
/// and a pipe in the place of a file would never end.
fn open_own(path: &Path) -> Option<fs::File> {
    let is_entry = |metadata: &fs::Metadata| {
        metadata.is_file() && metadata.len() < MAX_ENTRY && is_own(metadata)
    };
    // Opening a pipe waits for who writes to it.
    fs::symlink_metadata(path).ok().filter(is_entry)?;
    let file = fs::File::open(path).ok()?;
    file.metadata().ok().filter(is_entry)?;
    Some(file)
}

/// Whether a file belongs to the user of this process, and nobody else can write to it.
#[cfg(unix)]
fn is_own(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    // A file that this process makes belongs to its user.
    let made = tempfile::tempfile().and_then(|file| file.metadata());
    let same_user = made.is_ok_and(|made| made.uid() == metadata.uid());
    same_user && metadata.mode() & 0o022 == 0
}

#[cfg(not(unix))]
fn is_own(_metadata: &fs::Metadata) -> bool {
    true
}

/// The file of an entry.
struct EntryFile {
    path: PathBuf,
    bytes: u64,
    /// When it was last asked for.
    asked: SystemTime,
}

impl EntryFile {
    fn of(file: fs::DirEntry) -> Option<Self> {
        let path = file.path();
        let metadata = file.metadata().ok()?;
        let extension = path.extension()?;
        let entry = metadata.is_file() && extension == EXTENSION;
        entry.then_some(Self {
            path,
            bytes: metadata.len(),
            asked: metadata.modified().ok()?,
        })
    }
}

/// The build that answers: two builds of one version differ in their time or their size.
#[derive(Serialize)]
struct Build {
    version: &'static str,
    bytes: u64,
    built: SystemTime,
}

impl Build {
    fn this() -> Option<Self> {
        let file = fs::metadata(std::env::current_exe().ok()?).ok()?;
        Some(Self {
            version: env!("CARGO_PKG_VERSION"),
            bytes: file.len(),
            built: file.modified().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        Answer {
            rendered: Rendered::of(|_| Ok(text.into())),
            status: 1,
        }
    }

    fn cache(folder: &Path) -> Cache {
        Cache {
            folder: Some(folder.join("answers")),
        }
    }

    #[test]
    fn an_answer_is_found_by_its_question() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        assert_eq!(cache.find(&"fits?"), None);
        cache.keep(&"fits?", answer("yes"));
        assert_eq!(cache.find(&"fits?"), Some(answer("yes")));
        assert_eq!(cache.find(&"fits it?"), None);
    }

    #[test]
    fn a_damaged_entry_is_none_and_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        cache.keep(&1, answer("one"));
        let file = cache.files().unwrap().pop().unwrap().path;
        for damage in ["", "{", "null", "\u{0}"] {
            fs::write(&file, damage).unwrap();
            assert_eq!(cache.find(&1), None);
        }
        // The file of another question that happens to have the same hash.
        let other = Entry {
            key: "2".into(),
            value: answer("two"),
        };
        fs::write(&file, serde_json::to_string(&other).unwrap()).unwrap();
        assert_eq!(cache.find(&1), None);
        cache.keep(&1, answer("one"));
        assert_eq!(cache.find(&1), Some(answer("one")));
    }

    #[test]
    fn the_entries_that_were_not_asked_for_the_longest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        for question in 0..3 {
            cache.keep(&question, answer("the same length"));
            let (_, file) = cache.entry(&question).unwrap();
            let file = fs::File::options().append(true).open(file).unwrap();
            let seconds = std::time::Duration::from_secs(question);
            file.set_modified(SystemTime::UNIX_EPOCH + seconds).unwrap();
        }
        assert!(cache.find(&0).is_some());
        let contents = cache.contents().unwrap();
        assert_eq!(contents.entries, 3);
        cache.shrink(contents.bytes - 1).unwrap();
        let left = [0, 1, 2].map(|question| cache.find(&question).is_some());
        assert_eq!(left, [true, false, true]);
        // A file that is not an entry stays.
        let foreign = cache.folder().unwrap().join("notes.txt");
        fs::write(&foreign, "").unwrap();
        assert_eq!(cache.clear().unwrap().entries, 2);
        assert_eq!(cache.contents().unwrap(), Contents::default());
        assert!(foreign.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_costs_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = cache(file.path());
        cache.keep(&1, answer("one"));
        assert_eq!(cache.find(&1), None);
        Cache::none().keep(&1, answer("one"));
        assert_eq!(Cache::none().find(&1), None);
    }
}
