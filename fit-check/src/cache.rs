//! Answers, kept between calls: the same question again costs no simulation.
//!
//! An entry is a file in a folder by the conventions of the system. Its name is a hash of the question,
//! and the question stands in it too, together with which program answered: another build of
//! fit-check asks anew. A file that is damaged, or that something else put there, is as good as none,
//! and a folder that cannot be written to costs the entries and nothing else.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use estimator::{DeviceSpec, Runtime, Tuning};
use etcetera::BaseStrategy;
use model_zoo::{Model, Request};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::cli;
use crate::job_info::GpuName;
use crate::output::Rendered;
use crate::resolve::ResolvedRequest;

/// The most bytes that the entries take together; those that were not asked for the longest go first.
const MOST_BYTES: u64 = 64 << 20;

/// The variable of the environment that names another folder; empty: none.
const FOLDER: &str = "FIT_CHECK_CACHE_DIR";

/// The ending of an entry's name.
const EXTENSION: &str = "answer";

/// What was answered, in every form, and the exit status.
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
    question: String,
    answer: Answer,
}

/// A folder of answers.
#[derive(Clone, Debug)]
pub struct Cache {
    /// None where nothing is to be kept, or where it is not known who would want to find it.
    folder: Option<PathBuf>,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Contents {
    /// Answers.
    pub entries: u64,
    /// Bytes that they take together.
    pub bytes: u64,
}

impl Cache {
    /// The folder of this user.
    pub fn of_user() -> Self {
        let usual = || {
            let strategy = etcetera::choose_base_strategy().ok()?;
            Some(strategy.cache_dir().join("fit-check"))
        };
        let folder = match std::env::var_os(FOLDER) {
            Some(named) if named.is_empty() => None,
            Some(named) => Some(named.into()),
            None => usual(),
        };
        Self { folder }
    }

    /// That of this user, for the answers about `model`; none if `raw` wants none, and for a model that is
    /// not of the zoo: its files can change, or its code.
    pub fn about(model: &impl Model, raw: &cli::Caching) -> Self {
        match model.published() {
            Some(_) if !raw.no_cache => Self::of_user(),
            _ => Self::none(),
        }
    }

    /// One that keeps nothing.
    pub fn none() -> Self {
        Self { folder: None }
    }

    /// Where it is.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// What was answered to `question`, if it was asked before.
    pub fn find(&self, question: &impl Serialize) -> Option<Answer> {
        let (question, file) = self.entry(question)?;
        let entry: Entry = serde_json::from_str(&fs::read_to_string(&file).ok()?).ok()?;
        if entry.question != question {
            return None;
        }
        // The oldest go first, so this one is young again.
        if let Ok(file) = fs::File::options().append(true).open(&file) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(entry.answer)
    }

    /// Keeps what was answered to `question`, if that can be done.
    pub fn keep(&self, question: &impl Serialize, answer: Answer) {
        let Some((question, file)) = self.entry(question) else {
            return;
        };
        let kept = || -> std::io::Result<()> {
            let folder = self.folder.as_deref().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            let mut partial = NamedTempFile::new_in(folder)?;
            serde_json::to_writer(&mut partial, &Entry { question, answer })?;
            partial.flush()?;
            partial.persist(&file)?;
            self.shrink(MOST_BYTES)
        };
        // Whoever asked has the answer all the same.
        let _ = kept();
    }

    /// What it holds.
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

    /// Takes away everything that it holds, and says what that was.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or a file cannot be taken away.
    pub fn clear(&self) -> std::io::Result<Contents> {
        let contents = self.contents()?;
        self.shrink(0)?;
        Ok(contents)
    }

    /// Takes away the oldest entries until the others have no more than `most` bytes.
    fn shrink(&self, most: u64) -> std::io::Result<()> {
        let mut files = self.files()?;
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        files.sort_by_key(|file| file.asked);
        for file in files {
            if bytes <= most {
                break;
            }
            match fs::remove_file(&file.path) {
                // Another process can have done so.
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

    /// `question` as it is stored, and the file of its entry.
    fn entry(&self, question: &impl Serialize) -> Option<(String, PathBuf)> {
        let folder = self.folder.as_ref()?;
        let question = serde_json::to_string(&(Program::this()?, question)).ok()?;
        let mut hasher = DefaultHasher::new();
        question.hash(&mut hasher);
        let name = format!("{:016x}.{EXTENSION}", hasher.finish());
        Some((question, folder.join(name)))
    }
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
        let entry = metadata.is_file() && path.extension()? == EXTENSION;
        entry.then_some(Self {
            path,
            bytes: metadata.len(),
            asked: metadata.modified().ok()?,
        })
    }
}

/// A question, as answers to it are kept: everything on which they depend.
#[derive(Clone, Debug, Serialize)]
pub struct Question {
    /// Which command, and what of its options counts.
    asked: String,
    model: String,
    request: Request,
    runtime: Runtime,
    tuning: Tuning,
    cards: Vec<(GpuName, DeviceSpec)>,
}

impl Question {
    /// `asked` of a command about `request`.
    pub fn new<M: Model>(asked: String, request: &ResolvedRequest<M>) -> Self {
        let cards = request.cards.iter();
        Self {
            asked,
            model: request.model.name().into(),
            request: request.job.request(),
            runtime: request.runtime,
            tuning: request.tuning,
            cards: cards
                .map(|card| (GpuName::new(card), card.device.clone()))
                .collect(),
        }
    }
}

/// Which program answers: two builds of one version differ in when or how large they are.
#[derive(Serialize)]
struct Program {
    version: &'static str,
    bytes: u64,
    built: SystemTime,
}

impl Program {
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
        // The file of another question, by chance of the same hash.
        let other = Entry {
            question: "2".into(),
            answer: answer("two"),
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
        // What is no entry is nobody's here to take away.
        let foreign = cache.folder().unwrap().join("notes.txt");
        fs::write(&foreign, "").unwrap();
        assert_eq!(cache.clear().unwrap().entries, 2);
        assert_eq!(cache.contents().unwrap(), Contents::default());
        assert!(foreign.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_costs_nothing() {
        let file = NamedTempFile::new().unwrap();
        let cache = cache(file.path());
        cache.keep(&1, answer("one"));
        assert_eq!(cache.find(&1), None);
        Cache::none().keep(&1, answer("one"));
        assert_eq!(Cache::none().find(&1), None);
    }
}
