//! Networks of public packages that were recorded beforehand (`zoo/record.py`): an answer for any batch, without Python.

use crate::compressed::{Damaged, decompress};
use crate::scaling::Scaling;
use crate::stream::{self, Process, StreamError};

/// The files: the name of a network and its number format, and what was recorded.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/kept_files.rs"));

/// The card on which they were recorded: attention and other kernels are those of its generation.
pub const RECORDED_ON: &str = "RTX 3090";

/// A network that was recorded.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The versions that made it.
    pub process: Process,
    /// What it does at any batch.
    pub scaling: Scaling,
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

/// The recorded network `name` with this number format; none if there is none.
///
/// # Errors
///
/// It is damaged.
pub fn find(name: &str, precision: &str) -> Result<Option<Kept>, KeptError> {
    let file = format!("{name}.{precision}");
    let found = FILES.iter().find(|(known, _)| *known == file);
    found.map(|(_, data)| read(data)).transpose()
}

fn read(data: &[u8]) -> Result<Kept, KeptError> {
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
                let kept = find(name, precision).unwrap().unwrap();
                assert!(kept.scaling.grows(), "{name}");
                let replay = Replay::of(&kept.scaling.at(4), &AllocatorConfig::default(), u64::MAX);
                assert!(replay.max_allocated_bytes > 0, "{name}");
            }
        }
        assert!(find("no-such-network", "fp32").unwrap().is_none());
    }

    /// 25,557,032 parameters, by torchvision's documentation.
    #[test]
    fn resnet_50_has_its_parameters() {
        let kept = find("resnet-50", "fp32").unwrap().unwrap();
        let parameters = kept.scaling.at(32).blocks.into_iter();
        let parameters =
            parameters.filter(|block| block.role == Some(crate::trace::Role::Parameter));
        assert_eq!(
            parameters.map(|block| block.bytes).sum::<u64>(),
            4 * 25_557_032
        );
    }
}
