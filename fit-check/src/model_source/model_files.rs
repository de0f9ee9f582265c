//! The files that a path names.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::file_kind::{LOOKED_AT, other_file};
use crate::separator::{following, is_script};
use crate::user_error::{UserError, printable};

/// Larger than any `config.json`: the 21,843 classes of ImageNet-21k, each with its label in two
/// tables, need less than 5 MB at 100 bytes a line.
pub(super) const LONGEST_CONFIG: u64 = 8 << 20;
/// Larger than any index: the 90,000 tensors of DeepSeek-V3 need 9 MB at 100 bytes a line.
const LONGEST_INDEX: u64 = 16 << 20;
/// More than any model has: DeepSeek-V3 has 163 (`model-00001-of-000163.safetensors`).
const MAX_FILES: usize = 1_000;

const INDEX: &str = "model.safetensors.index.json";
/// The end of an index of any name: diffusers has `diffusion_pytorch_model.safetensors.index.json`.
const INDEX_ENDING: &str = ".safetensors.index.json";
pub(super) const CONFIG: &str = "config.json";
/// The configuration of an adapter of PEFT, which is no model.
const ADAPTER: &str = "adapter_config.json";
const WEIGHTS: &str = "model.safetensors";

/// The files of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelFiles {
    /// The name of the model for people.
    pub name: String,
    /// Its files of weights; empty if the path names only a configuration.
    pub weights: Vec<PathBuf>,
    /// Its configuration.
    pub config: Option<PathBuf>,
}

/// Whether `text` is a path and not the name of a model of the zoo. No such name has a separator or one of
/// these endings.
pub fn is_path(text: &str) -> bool {
    text.contains(std::path::is_separator)
        || text == "."
        || text == ".."
        || text.ends_with(".safetensors")
        || text.ends_with(".json")
        || (!is_of_the_zoo(text) && Path::new(text).exists())
}

fn is_of_the_zoo(name: &str) -> bool {
    model_zoo::find(name).is_ok() || model_zoo::find_tiny(name).is_some()
}

impl ModelFiles {
    /// The files of the model at `path`.
    pub fn find(path: &Path) -> Result<Self, UserError> {
        let kind = fs::metadata(path).map_err(|error| unreadable(path, &error.to_string()))?;
        let name = name(path);
        if kind.is_dir() {
            return Self::in_folder(name, path);
        }
        let text = path.to_string_lossy();
        let folder = path.parent().unwrap_or(Path::new(""));
        if text.ends_with(".index.json") {
            return Ok(Self {
                name,
                weights: shards(path)?,
                config: configuration(folder),
            });
        }
        if text.ends_with(".json") {
            return Ok(Self {
                name,
                weights: Vec::new(),
                config: Some(path.into()),
            });
        }
        Ok(Self {
            name,
            weights: parts(path).unwrap_or_else(|| vec![path.into()]),
            config: configuration(folder),
        })
    }

    /// The files of the model called `name` in `folder`, a snapshot in the cache of Hugging Face's libraries. There a download
    /// may have left parts of the weights out, and then they do not count.
    pub fn in_snapshot(name: &str, folder: &Path) -> Self {
        let weights =
            Self::in_folder(name.into(), folder).map_or(Vec::new(), |files| files.weights);
        let complete = weights.iter().all(|file| file.exists());
        Self {
            name: name.into(),
            weights: if complete { weights } else { Vec::new() },
            config: existing(folder, CONFIG),
        }
    }

    fn in_folder(name: String, folder: &Path) -> Result<Self, UserError> {
        let weights = match (existing(folder, INDEX), existing(folder, WEIGHTS)) {
            (Some(index), _) => shards(&index)?,
            (None, Some(file)) => vec![file],
            (None, None) => match only(folder, INDEX_ENDING)? {
                Some(index) => shards(&index)?,
                None => only(folder, ".safetensors")?.into_iter().collect(),
            },
        };
        let config = configuration(folder);
        if weights.is_empty() && config.is_none() {
            return Err(nothing_in(folder));
        }
        Ok(Self {
            name,
            weights,
            config,
        })
    }
}

/// The error for a folder without a model. A file that is often in the place of one is named for what it is.
fn nothing_in(folder: &Path) -> UserError {
    let other = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .find_map(|entry| {
            let (mut file, _) = open(&entry.path()).ok()?;
            let mut beginning = [0; LOOKED_AT];
            let read = file.read(&mut beginning).ok()?;
            check_kind(&entry.path(), &beginning[..read]).err()
        });
    other.unwrap_or_else(|| {
        UserError::new(format!("there is no model in {}", folder.display())).hint(format!(
            "a model is {CONFIG}, with or without {WEIGHTS}, or {INDEX} with its parts"
        ))
    })
}

/// The error for the file at `path` that begins with `bytes`, if it is of a kind that fit-check does not read.
pub(super) fn check_kind(path: &Path, bytes: &[u8]) -> Result<(), UserError> {
    let script = path.to_string_lossy();
    if is_script(&script) {
        let error = UserError::new(format!("{script} is a Python program"));
        return Err(error.hint(format!("`{}` follows it", following(&script))));
    }
    match other_file(&bytes[..bytes.len().min(LOOKED_AT)]) {
        None => Ok(()),
        Some(other) => {
            Err(UserError::new(format!("{} is {}", path.display(), other.what)).hint(other.hint))
        }
    }
}

/// The error for a file that cannot be read.
pub(super) fn unreadable(path: &Path, why: &str) -> UserError {
    UserError::new(format!("cannot read {}: {why}", path.display())).hint(
        "a path leads to a .safetensors file, its index, a config.json, or a folder with them; \
         `fit-check models` lists what needs no file",
    )
}

/// The text of the configuration at `path`.
pub(super) fn read_config(path: &Path) -> Result<String, UserError> {
    read_text(path, LONGEST_CONFIG)
}

/// The configuration in `folder`: that of a model, else that of an adapter.
fn configuration(folder: &Path) -> Option<PathBuf> {
    existing(folder, CONFIG).or_else(|| existing(folder, ADAPTER))
}

/// `file` in `folder`, if it exists.
fn existing(folder: &Path, file: &str) -> Option<PathBuf> {
    let path = folder.join(file);
    path.exists().then_some(path)
}

/// The only file of `folder` whose name ends with `ending`, if there is one.
fn only(folder: &Path, ending: &str) -> Result<Option<PathBuf>, UserError> {
    let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, &error.to_string()))?;
    let mut found = None;
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().ends_with(ending) {
            continue;
        }
        if found.replace(entry.path()).is_some() {
            return Err(UserError::new(format!(
                "there are several files *{ending} in {}, and no {INDEX}",
                folder.display()
            ))
            .hint("name one of them"));
        }
    }
    Ok(found)
}

/// All parts of the weights of which the file at `path` is one; `None` if its name is not that of a part, such as
/// `model-00001-of-00003.safetensors`. Some models count from 0 (`openai/gpt-oss-20b`: 0 to 2 of 2).
fn parts(path: &Path) -> Option<Vec<PathBuf>> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".safetensors")?;
    let (part, of) = stem.rsplit_once("-of-")?;
    let (model, part) = part.rsplit_once('-')?;
    let digits = part.len();
    let number: usize = part.parse().ok()?;
    let last: usize = of.parse().ok()?;
    if number > last || last > MAX_FILES {
        return None;
    }
    let file = |number: usize| {
        path.with_file_name(format!("{model}-{number:0digits$}-of-{of}.safetensors"))
    };
    // A part in the middle that is missing is an error when it is read.
    let begin = usize::from(!file(0).exists());
    let end = last - usize::from(begin == 0 && number < last && !file(last).exists());
    Some((begin..=end).map(file).collect())
}

/// The files that the index at `path` names.
fn shards(path: &Path) -> Result<Vec<PathBuf>, UserError> {
    /// The part of an index that is read.
    #[derive(Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let text = read_text(path, LONGEST_INDEX)?;
    let index: Index =
        serde_json::from_str(&text).map_err(|error| unreadable(path, &error.to_string()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut files: Vec<_> = index.weight_map.into_values().collect();
    files.sort();
    files.dedup();
    if files.is_empty() || files.len() > MAX_FILES {
        let why = format!("it names {} files, not 1 to {MAX_FILES}", files.len());
        return Err(unreadable(path, &why));
    }
    files
        .into_iter()
        .map(|file| match Path::new(&file).file_name() {
            Some(plain) if plain == file.as_str() => Ok(folder.join(file)),
            _ => Err(unreadable(path, "it names a file outside its own folder")),
        })
        .collect()
}

/// The text of the regular file at `path`, which may have at most `longest` bytes.
fn read_text(path: &Path, longest: u64) -> Result<String, UserError> {
    let (mut file, length) = open(path)?;
    if length > longest {
        let why = format!("it has {length} bytes, more than {longest}");
        return Err(unreadable(path, &why));
    }
    let mut bytes = Vec::new();
    let read = file.by_ref().take(longest).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error.to_string()))?;
    text_of(path, &bytes)
}

/// The text in UTF-8 with these `bytes`, which `path` names for people.
pub(super) fn text_of(path: &Path, bytes: &[u8]) -> Result<String, UserError> {
    check_kind(path, bytes)?;
    // PowerShell writes a byte order mark, which RFC 8259 (section 8.1) lets a parser ignore.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(_) => Err(unreadable(path, "it is no text in UTF-8")),
    }
}

/// Opens the regular file at `path`, and returns its length too. Reading a device or a pipe might never end.
pub(super) fn open(path: &Path) -> Result<(fs::File, u64), UserError> {
    let io = |error: std::io::Error| unreadable(path, &error.to_string());
    let kind = fs::metadata(path).map_err(io)?;
    if !kind.is_file() {
        return Err(unreadable(path, "it is no regular file"));
    }
    Ok((fs::File::open(path).map_err(io)?, kind.len()))
}

/// The name of the model at `path` for people: that of its folder or file. A link to a file has its own name: where
/// Hugging Face keeps models, files are links to others that are called by a hash.
fn name(path: &Path) -> String {
    let canonical = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let absolute = match path.file_name() {
        Some(file) if !path.is_dir() => canonical(&path.with_file_name(".")).join(file),
        _ => canonical(path),
    };
    let named_by_folder = [WEIGHTS, INDEX, CONFIG]
        .iter()
        .any(|usual| absolute.ends_with(usual));
    let named = match absolute.parent() {
        Some(folder) if named_by_folder => folder,
        _ => &absolute,
    };
    let name = named.file_name().unwrap_or(named.as_os_str());
    let name = printable(&name.to_string_lossy());
    let short = [".safetensors", ".json"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending));
    short.unwrap_or(&name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_index_before_the_single_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert!(ModelFiles::find(folder.path()).is_err(), "an empty folder");
        write("other.safetensors", "");
        let only = ModelFiles::find(folder.path()).unwrap();
        assert_eq!(only.weights, [folder.path().join("other.safetensors")]);
        write(WEIGHTS, "");
        let named = ModelFiles::find(folder.path()).unwrap();
        assert_eq!(named.weights, [folder.path().join(WEIGHTS)]);
        write("part-1.safetensors", "");
        write(
            INDEX,
            r#"{"weight_map": {"a": "part-1.safetensors", "b": "part-1.safetensors"}}"#,
        );
        write(CONFIG, "{}");
        let indexed = ModelFiles::find(folder.path()).unwrap();
        assert_eq!(indexed.weights, [folder.path().join("part-1.safetensors")]);
        assert_eq!(indexed.config, Some(folder.path().join(CONFIG)));
        let config = ModelFiles::find(&folder.path().join(CONFIG)).unwrap();
        assert!(config.weights.is_empty() && config.config.is_some());
    }

    #[test]
    #[cfg(unix)]
    fn a_link_to_a_file_has_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let [blob, snapshot] = ["4f5c", "tiny"].map(|name| folder.path().join(name));
        fs::write(&blob, "{}").unwrap();
        fs::create_dir(&snapshot).unwrap();
        for (file, expected) in [(CONFIG, "tiny"), ("other.json", "other")] {
            std::os::unix::fs::symlink(&blob, snapshot.join(file)).unwrap();
            assert_eq!(name(&snapshot.join(file)), expected);
        }
        // A folder is called by its own name, whatever leads to it.
        assert_eq!(name(&snapshot.join(".")), "tiny");
        std::os::unix::fs::symlink("tiny", folder.path().join("latest")).unwrap();
        assert_eq!(name(&folder.path().join("latest")), "tiny");
        assert_eq!(name(&snapshot.join("../tiny/config.json")), "tiny");
    }

    #[test]
    fn a_part_stands_for_all_parts() {
        let folder = tempfile::tempdir().unwrap();
        let part = |name: &str| folder.path().join(name);
        let names = [
            "model-00001-of-000002.safetensors",
            "model-00002-of-000002.safetensors",
        ];
        for name in names {
            fs::write(part(name), "").unwrap();
        }
        let all = names.map(part);
        assert_eq!(ModelFiles::find(&part(names[1])).unwrap().weights, all);
        assert!(ModelFiles::find(folder.path()).is_err(), "no index");
        let index = format!(
            r#"{{"weight_map": {{"a": "{}", "b": "{}"}}}}"#,
            names[0], names[1]
        );
        fs::write(
            part("diffusion_pytorch_model.safetensors.index.json"),
            index,
        )
        .unwrap();
        assert_eq!(ModelFiles::find(folder.path()).unwrap().weights, all);
        assert_eq!(parts(Path::new("a-tale-of-two.safetensors")), None);
        assert_eq!(parts(Path::new("model-3-of-2.safetensors")), None);
        // Those that count from 0, to the number of parts or to one less.
        for names in [["b-0-of-1", "b-1-of-1"], ["c-0-of-2", "c-1-of-2"]] {
            let names = names.map(|name| part(&format!("{name}.safetensors")));
            names.iter().for_each(|name| fs::write(name, "").unwrap());
            for name in &names {
                assert_eq!(parts(name), Some(names.to_vec()));
            }
        }
    }

    #[test]
    fn names_of_the_zoo_are_no_paths() {
        assert!(!is_path("resnet-50") && !is_path("no-such-model"));
        assert!(is_path("./resnet-50") && is_path("weights.safetensors") && is_path(".."));
    }
}
