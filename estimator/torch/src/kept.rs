//! Networks of public packages that were recorded beforehand (`zoo/record.py`): an answer for any batch, without Python.

use crate::compressed::{Damaged, decompress};
use crate::scaling::Scaling;
use crate::stream::{self, Process, StreamError};

/// The files: the name of a network, its number format and the card, and what was recorded.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/kept_files.rs"));

/// The cards on which they were recorded: the least compute capability for which each stands, its name, and the end of a file's
/// name. Attention, convolutions and cuBLAS' workspaces are those of a generation.
const CARDS: &[(u32, &str, &str)] = &[
    (0, "T4", ".t4"),
    (80, "RTX 3090", ""),
    (90, "H200", ".h200"),
];

/// The compute capability of most cards, for an answer about none.
const USUAL_CAPABILITY: u32 = 86;

/// A network that was recorded.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The versions that made it.
    pub process: Process,
    /// What it does at any batch.
    pub scaling: Scaling,
    /// The card on which it was recorded.
    pub recorded_on: &'static str,
}

/// Why a recorded network cannot be read. The data is a part of this crate.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// It cannot be decompressed, or has other lines than `record.py` writes.
    #[error("the recorded network is damaged")]
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

/// The card on which networks were recorded for cards of this compute capability (times ten).
pub fn recorded_on(capability: u32) -> &'static str {
    nearest(Some(capability)).0
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
    let found = FILES.iter().find(|(known, _)| *known == file);
    found.map(|(_, data)| read(data, recorded_on)).transpose()
}

fn read(data: &[u8], recorded_on: &'static str) -> Result<Kept, KeptError> {
    let text = decompress(data)?;
    let recording = stream::read(text.as_slice())?;
    let text = std::str::from_utf8(&text).map_err(|_| KeptError::Damaged)?;
    let mut last = text.lines().rev();
    let slopes = last
        .next()
        .and_then(|line| line.strip_prefix("[\"slopes\",")?.strip_suffix(']'));
    let slopes: Vec<i64> = slopes
        .and_then(|list| serde_json::from_str(list).ok())
        .ok_or(KeptError::Damaged)?;
    let batch = last
        .next()
        .and_then(|line| line.strip_prefix("[\"batch\",")?.strip_suffix(']'));
    let batch = batch
        .and_then(|batch| batch.parse().ok())
        .ok_or(KeptError::Damaged)?;
    let scaling = Scaling::known(batch, recording.trace, slopes).ok_or(KeptError::Damaged)?;
    Ok(Kept {
        process: recording.process,
        scaling,
        recorded_on,
    })
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
