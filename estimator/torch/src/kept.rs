//! What was recorded beforehand, at two batches: an answer for any batch, without Python. Networks of public packages are a part
//! of this crate (`zoo/record.py`); a user's program is in a file ([`saved`](crate::saved)).

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::compressed::{Damaged, decompress};
use crate::scaling::Scaling;
use crate::stream::{self, Process, Recording, StreamError};
use crate::trace::Approximation;

/// The files: the name of a network, its number format and the card, and what was recorded.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/kept_files.rs"));

/// The cards on which they were recorded: the least compute capability for which each stands, its name, and the end of a file's
/// name. Attention, convolutions and cuBLAS' workspaces are those of a generation.
const CARDS: &[(u32, &str, &str)] = &[
    (0, "T4", ".t4"),
    (80, "RTX 3090", ""),
    (90, "H200", ".h200"),
];

/// The compute capability (times ten) of most cards, for an answer about none.
pub const USUAL_CAPABILITY: u32 = 86;

/// A program that was recorded.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The process, and the versions that made it.
    pub process: Process,
    /// What it does at any batch.
    pub scaling: Scaling,
    /// What was not followed exactly, without bytes, which depend on the batch.
    pub approximations: Vec<Approximation>,
    /// More about the program: the class of its optimizer, for instance.
    pub information: BTreeMap<String, Value>,
    /// The card on which it was recorded.
    pub recorded_on: String,
}

/// Why something recorded cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// It cannot be decompressed, or lacks lines.
    #[error("the recording is damaged")]
    Damaged,
    /// A line is not understood.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl From<Damaged> for KeptError {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

/// The names of the networks with this number format: `fp32`, or `mixed` for autocast to bf16.
pub fn names(precision: &str) -> Vec<&'static str> {
    let of_precision = FILES
        .iter()
        .filter_map(|(file, _)| file.strip_suffix(precision));
    of_precision
        .filter_map(|name| name.strip_suffix('.'))
        .collect()
}

/// The card on which networks were recorded for cards of this compute capability (times ten), and the end of their files' names.
fn nearest(capability: Option<u32>) -> (&'static str, &'static str) {
    let capability = capability.unwrap_or(USUAL_CAPABILITY);
    let mut newest_first = CARDS.iter().rev();
    let card = newest_first.find(|(least, _, _)| *least <= capability);
    let (_, recorded_on, ending) = card.unwrap_or(&CARDS[0]);
    (recorded_on, ending)
}

/// The card on which networks were recorded for cards of this compute capability (times ten), or for most cards.
pub fn recorded_on(capability: Option<u32>) -> &'static str {
    nearest(capability).0
}

/// The recorded network `name` with this number format, with the kernels of a card of this compute capability (times ten); none
/// if there is none.
///
/// # Errors
///
/// It is damaged.
pub fn find(
    name: &str,
    precision: &str,
    capability: Option<u32>,
) -> Result<Option<Kept>, KeptError> {
    let (recorded_on, ending) = nearest(capability);
    let file = format!("{name}.{precision}{ending}");
    let Some((_, data)) = FILES.iter().find(|(known, _)| *known == file) else {
        return Ok(None);
    };
    let text = String::from_utf8(decompress(data)?).map_err(|_| KeptError::Damaged)?;
    Kept::read(&text, recorded_on.into()).map(Some)
}

impl Kept {
    /// Reads a stream of the recorder at some batch, and two lines after it: `["batch", B]` and `["slopes", [...]]`, the bytes that
    /// one more sample adds to each block.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn read(text: &str, recorded_on: String) -> Result<Self, KeptError> {
        let recording = stream::read(text.as_bytes())?;
        let mut last = text.lines().rev();
        let mut fields = |start: &str| {
            let line = last.next()?.strip_prefix(start)?.strip_suffix(']')?;
            Some(line.to_string())
        };
        let slopes: Option<Vec<i64>> =
            fields("[\"slopes\",").and_then(|list| serde_json::from_str(&list).ok());
        let batch = fields("[\"batch\",").and_then(|batch| batch.parse().ok());
        let (slopes, batch) = slopes.zip(batch).ok_or(KeptError::Damaged)?;
        let scaling = Scaling::known(batch, recording.trace, slopes).ok_or(KeptError::Damaged)?;
        Ok(Self {
            process: recording.process,
            scaling,
            approximations: recording.approximations,
            information: recording.information,
            recorded_on,
        })
    }

    /// What the program does with `batch` samples.
    pub fn at(&self, batch: u64) -> Recording {
        Recording {
            process: self.process.clone(),
            trace: self.scaling.at(batch),
            approximations: self.approximations.clone(),
            information: self.information.clone(),
            ..Recording::default()
        }
    }

    /// Writes what [`Kept::read`] reads.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (batch, trace, slopes) = self.scaling.parts();
        stream::write(out, &self.process, trace)?;
        for found in &self.approximations {
            let Approximation {
                kind, text, count, ..
            } = found;
            writeln!(out, "{}", json!(["x", kind, text, 0, count]))?;
        }
        if !self.information.is_empty() {
            writeln!(out, "{}", json!(["i", self.information]))?;
        }
        writeln!(out, "[\"batch\",{batch}]")?;
        writeln!(out, "[\"slopes\",{}]", json!(slopes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::AllocatorConfig;
    use crate::replay::Replay;

    #[test]
    fn every_kept_network_is_read_and_grows() {
        for precision in ["fp32", "mixed"] {
            for name in names(precision) {
                for (least, card, _) in CARDS {
                    let kept = find(name, precision, Some(*least)).unwrap().unwrap();
                    assert_eq!(kept.recorded_on, *card);
                    assert!(kept.scaling.grows(), "{name}");
                    let trace = kept.scaling.at(4);
                    let replay = Replay::of(&trace, &AllocatorConfig::default(), u64::MAX);
                    assert!(replay.max_allocated_bytes > 0, "{name}");
                }
            }
        }
        assert!(find("no-such-network", "fp32", None).unwrap().is_none());
    }

    #[test]
    fn a_card_has_the_kernels_of_its_generation() {
        for (capability, card) in [
            (75, "T4"),
            (80, "RTX 3090"),
            (89, "RTX 3090"),
            (120, "H200"),
        ] {
            let kept = find("bert-base", "mixed", Some(capability))
                .unwrap()
                .unwrap();
            assert_eq!(kept.recorded_on, card);
        }
    }

    /// 25,557,032 parameters, by torchvision's documentation.
    #[test]
    fn resnet_50_has_its_parameters() {
        let kept = find("resnet-50", "fp32", None).unwrap().unwrap();
        let parameters = kept.scaling.at(32).blocks.into_iter();
        let parameters =
            parameters.filter(|block| block.role == Some(crate::trace::Role::Parameter));
        assert_eq!(
            parameters.map(|block| block.bytes).sum::<u64>(),
            4 * 25_557_032
        );
    }
}
