//! What was recorded beforehand, at a few batches: an answer for any batch, without Python. Networks of public packages are a part
//! of this crate (`zoo/record.py`); a user's program is in a file ([`saved`](crate::saved)).

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::compressed::{Damaged, decompress};
use crate::scaling::{Pair, Scaling};
use crate::stream::{self, Process, Recording, StreamError};
use crate::trace::Approximation;

/// The files: the name of a network, and what was recorded.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/kept_files.rs"));

/// The number formats in which they were recorded: `mixed` is autocast to bf16.
pub const PRECISIONS: [&str; 2] = ["fp32", "mixed"];

/// The cards on which they were recorded: the least compute capability for which each stands, its name, and the name in a file.
/// Attention, convolutions and cuBLAS' workspaces are those of a generation.
const CARDS: &[(u32, &str, &str)] = &[
    (0, "T4", "t4"),
    (80, "A100", "a100"),
    (86, "RTX 3090", "rtx-3090"),
    (90, "H200", "h200"),
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
    /// Optimizer steps in it.
    pub steps: usize,
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

/// The names of the networks.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// Whether the network `name` was recorded.
pub fn has(name: &str) -> bool {
    names().any(|known| known == name)
}

/// The card on which networks were recorded for cards of this compute capability (times ten), and its name in files.
fn nearest(capability: Option<u32>) -> (&'static str, &'static str) {
    let capability = capability.unwrap_or(USUAL_CAPABILITY);
    let mut newest_first = CARDS.iter().rev();
    let card = newest_first.find(|(least, _, _)| *least <= capability);
    let (_, recorded_on, in_files) = card.unwrap_or(&CARDS[0]);
    (recorded_on, in_files)
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
    let (recorded_on, in_files) = nearest(capability);
    let Some((_, data)) = FILES.iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    let text = String::from_utf8(decompress(data)?).map_err(|_| KeptError::Damaged)?;
    let section = text
        .split("[\"of\",")
        .find_map(|section| section.strip_prefix(&format!("\"{precision}\",\"{in_files}\"]\n")));
    let section = section.map(|section| Kept::read(section, recorded_on.into()));
    section.transpose()
}

impl Kept {
    /// Reads streams of the recorder, each at some batch and with two lines after it: `["batch", B]` and `["slopes", [...]]`, the
    /// bytes that one more sample adds to each block. A recording with the calls of the one before has `["batch", B]` and `["bends",
    /// [[BLOCK, BYTES, SLOPE], ...]]` alone, the blocks that grow otherwise than before.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn read(text: &str, recorded_on: String) -> Result<Self, KeptError> {
        fn fields<'a>(line: &'a str, start: &str) -> Option<&'a str> {
            line.strip_prefix(start)?.strip_suffix(']')
        }
        fn numbers<T: DeserializeOwned>(text: &str) -> Result<T, KeptError> {
            serde_json::from_str(text).map_err(|_| KeptError::Damaged)
        }
        let mut pairs: Vec<Pair> = Vec::new();
        let mut first: Option<Recording> = None;
        let mut begin = 0;
        let mut end = 0;
        let mut batch = None;
        for line in text.split_inclusive('\n') {
            end += line.len();
            let line = line.trim_end();
            if let Some(field) = fields(line, "[\"batch\",") {
                batch = Some(numbers(field)?);
            } else if let Some(slopes) = fields(line, "[\"slopes\",") {
                let recording = stream::read(&text.as_bytes()[begin..end])?;
                pairs.push(Pair {
                    batch: batch.take().ok_or(KeptError::Damaged)?,
                    first: recording.trace.clone(),
                    slopes: numbers(slopes)?,
                });
                first.get_or_insert(recording);
                begin = end;
            } else if let Some(bends) = fields(line, "[\"bends\",") {
                let before = pairs.last().ok_or(KeptError::Damaged)?;
                let batch = batch.take().ok_or(KeptError::Damaged)?;
                let bent = before.bent(batch, numbers(bends)?);
                pairs.push(bent.ok_or(KeptError::Damaged)?);
                begin = end;
            }
        }
        let scaling = Scaling::known(pairs).filter(|_| begin == text.len());
        let (scaling, first) = scaling.zip(first).ok_or(KeptError::Damaged)?;
        Ok(Self {
            process: first.process,
            scaling,
            steps: first.steps,
            approximations: first.approximations,
            information: first.information,
            recorded_on,
        })
    }

    /// The batches of its recordings; the one after each was recorded too.
    pub fn batches(&self) -> Vec<u64> {
        let pairs = self.scaling.pairs().iter();
        pairs.map(|pair| pair.batch).collect()
    }

    /// What the program does with `batch` samples.
    pub fn at(&self, batch: u64) -> Recording {
        Recording {
            process: self.process.clone(),
            trace: self.scaling.at(batch),
            steps: self.steps,
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
        let mut before: Option<&Pair> = None;
        for pair in self.scaling.pairs() {
            let batch = pair.batch;
            match before.and_then(|before| before.bends(pair)) {
                Some(bends) => {
                    writeln!(out, "[\"batch\",{batch}]\n[\"bends\",{}]", json!(bends))?;
                }
                None => {
                    stream::write(out, &self.process, &pair.first)?;
                    if before.is_none() {
                        self.write_about(out)?;
                    }
                    let slopes = json!(pair.slopes);
                    writeln!(out, "[\"batch\",{batch}]\n[\"slopes\",{slopes}]")?;
                }
            }
            before = Some(pair);
        }
        Ok(())
    }

    /// Writes what is known of the program besides its calls.
    fn write_about(&self, out: &mut impl Write) -> io::Result<()> {
        for found in &self.approximations {
            let Approximation {
                kind, text, count, ..
            } = found;
            writeln!(out, "{}", json!(["x", kind, text, 0, count]))?;
        }
        if !self.information.is_empty() {
            writeln!(out, "{}", json!(["i", self.information]))?;
        }
        let end = json!({ "reason": "steps", "steps": self.steps });
        writeln!(out, "{}", json!(["bye", end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::AllocatorConfig;
    use crate::replay::Replay;

    #[test]
    fn every_kept_network_is_read_and_grows() {
        for precision in PRECISIONS {
            for name in names() {
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
            (80, "A100"),
            (86, "RTX 3090"),
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
