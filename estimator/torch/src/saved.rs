//! A file with what was recorded of a program, to ask about it later, without the program: JSON lines, compressed as gzip does.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::kept::{Kept, KeptError};

/// The version of the format.
const VERSION: u32 = 1;

/// How the first line begins.
const BEGIN: &str = "[\"fit-check recording\",";

/// How the line before each recording begins.
const CARD: &str = "[\"card\",";

/// More text than any recording has: one of 100,000 allocations has 10 MB.
const MAX_BYTES: u64 = 1 << 30;

/// What was recorded of a program.
#[derive(Clone, Debug)]
pub struct Saved<A> {
    /// What the program is.
    pub about: A,
    /// The recordings, by the compute capability (times ten) of the card on which each was made; at least one.
    pub recordings: Vec<(u32, Kept)>,
}

/// Why a file with recordings cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It cannot be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another version wrote it.
    #[error("its format has version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// It breaks off, or was changed.
    #[error("it is damaged")]
    Damaged,
}

impl From<KeptError> for SavedError {
    fn from(_: KeptError) -> Self {
        Self::Damaged
    }
}

#[derive(Deserialize, Serialize)]
struct Head<A> {
    version: u32,
    about: A,
}

/// Whether the file at `path` holds recordings.
pub fn is_saved(path: &Path) -> bool {
    // A pipe would be read empty.
    if !path.is_file() {
        return false;
    }
    let mut begin = vec![0; BEGIN.len()];
    let read = File::open(path).and_then(|file| GzDecoder::new(file).read_exact(&mut begin));
    read.is_ok() && begin == BEGIN.as_bytes()
}

impl<A: Serialize + DeserializeOwned> Saved<A> {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// It holds no recordings.
    pub fn read(path: &Path) -> Result<Self, SavedError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let text = GzDecoder::new(BufReader::new(File::open(path)?)).take(MAX_BYTES);
        let mut lines = BufReader::new(text).lines();
        let first = lines.next().ok_or(SavedError::Damaged)??;
        let head = fields(&first, BEGIN).ok_or(SavedError::Damaged)?;
        // The rest of another version's line is not known.
        let (Version { version },): (Version,) = parse(&head)?;
        if version != VERSION {
            return Err(SavedError::Version(version));
        }
        let (head,): (Head<A>,) = parse(&head)?;
        let mut texts: Vec<(u32, String, String)> = Vec::new();
        for line in lines {
            let line = line?;
            match (fields(&line, CARD), texts.last_mut()) {
                (Some(card), _) => {
                    let (capability, name) = parse(&card)?;
                    texts.push((capability, name, String::new()));
                }
                (None, Some((_, _, text))) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                (None, None) => return Err(SavedError::Damaged),
            }
        }
        if texts.is_empty() {
            return Err(SavedError::Damaged);
        }
        let recordings = texts
            .into_iter()
            .map(|(capability, name, text)| Ok((capability, Kept::read(&text, name)?)));
        Ok(Self {
            about: head.about,
            recordings: recordings.collect::<Result<_, KeptError>>()?,
        })
    }

    /// The content of the file.
    ///
    /// # Errors
    ///
    /// None that a program can meet: it is written to memory.
    pub fn content(&self) -> io::Result<Vec<u8>> {
        let mut out = GzEncoder::new(Vec::new(), Compression::default());
        let head = Head {
            version: VERSION,
            about: &self.about,
        };
        writeln!(out, "{BEGIN}{}]", serde_json::to_string(&head)?)?;
        for (capability, kept) in &self.recordings {
            let name = serde_json::to_string(&kept.recorded_on)?;
            writeln!(out, "{CARD}{capability},{name}]")?;
            kept.write(&mut out)?;
        }
        out.finish()
    }

    /// The recording for a card of this compute capability (times ten): of those on cards with like kernels, that on the newest that
    /// is not newer, or else on the oldest; none if there is none on such a card.
    pub fn nearest(&self, capability: u32) -> Option<&Kept> {
        let recordings = self.recordings.iter();
        let like = recordings.filter(|(made, _)| are_like(*made, capability));
        let nearest = like.min_by_key(|(made, _)| (*made > capability, made.abs_diff(capability)));
        nearest.map(|(_, kept)| kept)
    }
}

/// Whether cards of two compute capabilities (times ten) have the same attention kernels, which differ most: PyTorch's flash attention
/// runs from 8.0 on (`check_flash_attention_hardware_support` in `sdp_utils.cpp`), cuDNN's, which comes first then, from 9.0 on
/// (`check_prefer_cudnn_attention`).
pub fn are_like(one: u32, other: u32) -> bool {
    let attention = |capability: u32| match capability {
        ..80 => 0,
        80..90 => 1,
        90.. => 2,
    };
    attention(one) == attention(other)
}

/// The fields of a line that begins with `start`, as the text of an array.
fn fields(line: &str, start: &str) -> Option<String> {
    line.strip_prefix(start).map(|fields| format!("[{fields}"))
}

fn parse<T: DeserializeOwned>(fields: &str) -> Result<T, SavedError> {
    serde_json::from_str(fields).map_err(|_| SavedError::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept;

    fn saved() -> Saved<String> {
        let recorded = |capability| {
            let kept = kept::find("resnet-50", "mixed", Some(capability));
            (capability, kept.unwrap().unwrap())
        };
        Saved {
            about: "resnet-50".into(),
            recordings: [75, 86, 90].map(recorded).into(),
        }
    }

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn what_is_written_is_read() {
        let saved = saved();
        let file = file(&saved.content().unwrap());
        assert!(is_saved(file.path()));
        let again = Saved::<String>::read(file.path()).unwrap();
        assert_eq!(again.about, "resnet-50");
        for capability in [70, 75, 80, 86, 89, 90, 120] {
            let (kept, again) = (saved.nearest(capability), again.nearest(capability));
            let (kept, again) = (kept.unwrap(), again.unwrap());
            assert_eq!(kept.recorded_on, again.recorded_on);
            assert_eq!(kept.process, again.process);
            assert_eq!(kept.scaling.at(77), again.scaling.at(77));
        }
        // An A100 has the attention of an RTX 3090, not that of a T4.
        for (capability, card) in [
            (70, "T4"),
            (80, "RTX 3090"),
            (89, "RTX 3090"),
            (120, "H200"),
        ] {
            assert_eq!(again.nearest(capability).unwrap().recorded_on, card);
        }
    }

    #[test]
    fn a_card_with_other_kernels_has_no_recording() {
        let mut saved = saved();
        saved.recordings.remove(0);
        assert!(saved.nearest(75).is_none() && saved.nearest(89).is_some());
    }

    /// The square root of 2 times 1000 is 44.7.
    #[test]
    fn what_was_recorded_at_other_batches_is_kept() {
        let mut saved = saved();
        let (_, kept) = &mut saved.recordings[0];
        let mut pair = kept.scaling.pairs()[0].clone();
        pair.batch = 1000;
        pair.first.blocks[0].bytes += 77;
        let larger = crate::scaling::Scaling::known(vec![pair]).unwrap();
        kept.scaling.add(larger);
        let kept = kept.clone();
        let file = file(&saved.content().unwrap());
        let again = Saved::<String>::read(file.path()).unwrap();
        let (_, again) = &again.recordings[0];
        for batch in [1, 2, 40, 50, 500, 2000] {
            assert_eq!(kept.scaling.at(batch), again.scaling.at(batch), "{batch}");
        }
        assert_ne!(kept.at(40).trace.blocks[0], kept.at(50).trace.blocks[0]);
    }

    #[test]
    fn other_files_are_refused() {
        let content = saved().content().unwrap();
        let cut = file(&content[..content.len() / 2]);
        assert!(is_saved(cut.path()));
        assert!(Saved::<String>::read(cut.path()).is_err());
        let text = |text: &str| {
            let mut out = GzEncoder::new(Vec::new(), Compression::default());
            out.write_all(text.as_bytes()).unwrap();
            file(&out.finish().unwrap())
        };
        let newer = text("[\"fit-check recording\",{\"version\":2}]\n");
        let error = Saved::<String>::read(newer.path()).unwrap_err();
        assert!(matches!(error, SavedError::Version(2)), "{error}");
        let empty = text("[\"fit-check recording\",{\"version\":1,\"about\":\"x\"}]\n");
        let error = Saved::<String>::read(empty.path()).unwrap_err();
        assert!(matches!(error, SavedError::Damaged), "{error}");
        assert!(!is_saved(text("[\"hello\", {\"version\": 1}, 1]").path()));
        assert!(!is_saved(file(b"{}").path()));
        assert!(!is_saved(Path::new("/no/such/file")));
    }
}
