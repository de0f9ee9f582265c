//! The header of a safetensors file, with limits against hostile ones.
//!
//! The format is <https://huggingface.co/docs/safetensors>: eight bytes with the length of the header, the
//! header as JSON, the tensors without a gap. The crate `safetensors` checks that offsets follow each other
//! and fit the shapes. This module checks that the file is as long as they claim, that no name occurs twice,
//! and that some model has a header of this size.

use std::fmt;
use std::io::{Read, Seek};
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::file_kind::LOOKED_AT;
use super::model_files::{check_kind, open, unreadable};
use crate::user_error::UserError;

/// The longest header that is read. The format allows 100 MB; all tensors of DeepSeek-V3
/// together need 12 MB at 130 bytes each.
const LONGEST: u64 = 16 << 20;
/// The most tensors of a model. DeepSeek-V3 has 58 layers of 256 experts (section 4.2 of arXiv
/// 2412.19437), each with three matrices and their scales: 89,088 tensors, and few besides.
pub(super) const MAX_TENSORS: usize = 1 << 17;

/// Bytes that give the length of the header.
const PREFIX: u64 = 8;

/// A tensor of a weights file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<usize>,
}

impl StoredTensor {
    /// The number of elements; 64 bits can count those of a header that was read.
    pub fn elements(&self) -> u64 {
        self.shape.iter().map(|&side| side as u64).product()
    }
}

/// Reads the tensors of the file at `path`.
pub(super) fn read(path: &Path) -> Result<Vec<StoredTensor>, UserError> {
    let (mut file, length) = open(path)?;
    let mut beginning = Vec::new();
    let io = |error: std::io::Error| unreadable(path, &error.to_string());
    file.by_ref()
        .take(LOOKED_AT as u64)
        .read_to_end(&mut beginning)
        .map_err(io)?;
    check_kind(path, &beginning)?;
    file.rewind().map_err(io)?;
    parse(file, length).map_err(|why| unreadable(path, &why))
}

/// Reads the tensors of a `file` of `length` bytes; the error says what is wrong with it.
fn parse(mut file: impl Read, length: u64) -> Result<Vec<StoredTensor>, String> {
    let io = |error: std::io::Error| error.to_string();
    if length < PREFIX {
        return Err(format!(
            "it has {length} bytes, too few for a safetensors file"
        ));
    }
    let mut prefix = [0; PREFIX as usize];
    file.read_exact(&mut prefix).map_err(io)?;
    let header = u64::from_le_bytes(prefix);
    if header > length - PREFIX {
        return Err(format!(
            "its header is said to have {header} bytes, and the whole file has {length}: it is \
             truncated or no safetensors file"
        ));
    }
    if header > LONGEST {
        return Err(format!(
            "its header has {header} bytes, more than {LONGEST}"
        ));
    }
    let mut json = vec![0; header as usize];
    file.read_exact(&mut json).map_err(io)?;
    let Header(mut tensors) =
        serde_json::from_slice(&json).map_err(|error| format!("its header: {error}"))?;
    drop(json);

    tensors.sort_by_key(|(_, tensor)| tensor.data_offsets);
    let stored = tensors.iter().map(|(name, tensor)| StoredTensor {
        name: name.clone(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
    });
    let stored = stored.collect();
    let metadata = Metadata::new(None, tensors).map_err(|error| format!("its header: {error}"))?;
    let needed = (metadata.data_len() as u64).checked_add(PREFIX + header);
    if needed != Some(length) {
        return Err(format!(
            "its tensors end at byte {}, and the file has {length}",
            needed.map_or("2^64".into(), |needed| needed.to_string())
        ));
    }
    Ok(stored)
}

/// The entries of a header, each name once.
struct Header(Vec<(String, TensorInfo)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a header of names and tensors")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Header, M::Error> {
                let mut tensors: Vec<(String, TensorInfo)> = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    if name.chars().any(char::is_control) {
                        let why = format!("the name {name:?} holds control characters");
                        return Err(M::Error::custom(why));
                    }
                    if tensors.len() == MAX_TENSORS {
                        let why = format!("it has more than {MAX_TENSORS} tensors");
                        return Err(M::Error::custom(why));
                    }
                    tensors.push((name, map.next_value()?));
                }
                tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
                match tensors.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    Some(pair) => Err(M::Error::custom(format!("`{}` comes twice", pair[0].0))),
                    None => Ok(Header(tensors)),
                }
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with this header and `data` bytes of tensors.
    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.bytes());
        file.resize(file.len() + data, 0);
        file
    }

    fn parsed(file: &[u8]) -> Result<Vec<StoredTensor>, String> {
        parse(file, file.len() as u64)
    }

    fn refusal(header: &str, data: usize) -> String {
        parsed(&file(header, data)).expect_err(header)
    }

    #[test]
    fn tensors_are_read() {
        let header = r#"{"__metadata__": {"format": "pt"},
            "w": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}}"#;
        let tensors = parsed(&file(header, 12)).unwrap();
        assert_eq!(tensors.len(), 1);
        assert_eq!(tensors[0].shape, [2, 3]);
    }

    #[test]
    fn a_length_beyond_the_file_is_refused() {
        let mut long = u64::MAX.to_le_bytes().to_vec();
        long.extend(b"{}");
        assert!(parsed(&long).unwrap_err().contains("truncated"));
        assert!(parsed(b"short").unwrap_err().contains("too few"));
        let promised = (100_000_000u64).to_le_bytes();
        assert!(
            parse(&promised[..], 1 << 40)
                .unwrap_err()
                .contains("more than")
        );
    }

    #[test]
    fn offsets_and_shapes_must_agree_with_the_file() {
        let tensor = |shape: &str, offsets: &str| {
            format!(r#"{{"w": {{"dtype": "F32", "shape": {shape}, "data_offsets": {offsets}}}}}"#)
        };
        assert!(parsed(&file(&tensor("[2]", "[0, 8]"), 8)).is_ok());
        for (shape, offsets, data) in [
            ("[2]", "[0, 8]", 7),
            ("[2]", "[0, 8]", 9),
            ("[2]", "[4, 12]", 12),
            ("[2]", "[8, 0]", 8),
            ("[3]", "[0, 8]", 8),
            ("[-2]", "[0, 8]", 8),
            ("[4294967296, 4294967296, 4294967296]", "[0, 8]", 8),
            ("[2]", "[0, 18446744073709551615]", 8),
        ] {
            refusal(&tensor(shape, offsets), data);
        }
        let overlapping = r#"{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
            "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}"#;
        refusal(overlapping, 6);
    }

    #[test]
    fn a_name_that_comes_twice_is_refused() {
        let twice = r#"{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}"#;
        assert!(refusal(twice, 2).contains("`a` comes twice"));
    }

    #[test]
    fn a_name_that_would_drive_a_terminal_is_refused() {
        let escape = r#"{"\u001b[2J": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}"#;
        assert!(refusal(escape, 1).contains("control"));
        let nul = r#"{"a\u0000": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}"#;
        assert!(refusal(nul, 1).contains("control"));
    }

    #[test]
    fn deep_nesting_is_refused_or_skipped() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        refusal(&format!(r#"{{"w": {deep}}}"#), 0);
        assert!(parsed(&file(&format!(r#"{{"__metadata__": {deep}}}"#), 0)).is_ok());
    }

    /// The header is as long as the format allows, and nothing of it is read.
    #[test]
    fn a_hundred_megabytes_of_json_are_refused_unread() {
        struct Unread;
        impl Read for Unread {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let length = 100_000_000u64.to_le_bytes();
                assert_eq!(buffer.len(), length.len(), "only the length is read");
                buffer.copy_from_slice(&length);
                Ok(length.len())
            }
        }
        assert!(parse(Unread, 1 << 40).unwrap_err().contains("more than"));
    }

    proptest! {
        /// Whatever the bytes, the result is tensors or an error.
        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parsed(&bytes);
        }

        /// The same for bytes that get as far as the JSON.
        #[test]
        fn reading_json_never_panics(
            name in ".{0,8}",
            dtype in "(F32|U8|F4|BOOL|X)",
            shape in prop::collection::vec(any::<i64>(), 0..4),
            offsets in prop::collection::vec(any::<u64>(), 0..4),
            data in 0usize..40,
        ) {
            let header = serde_json::json!({
                name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            });
            let _ = parsed(&file(&header.to_string(), data));
        }

        /// A file that the crate wrote is read as it was written; a truncated file is refused.
        #[test]
        fn what_was_written_is_read(shapes in prop::collection::vec((0usize..5, 0usize..5), 0..6), cut in 1usize..20) {
            let data = [0u8; 5 * 5 * 4];
            let views = shapes.iter().enumerate().map(|(index, &(a, b))| {
                let view = safetensors::tensor::TensorView::new(
                    safetensors::Dtype::F32, vec![a, b], &data[..a * b * 4]
                );
                (format!("t{index}"), view.unwrap())
            });
            let written = safetensors::serialize(views.collect::<Vec<_>>(), None).unwrap();
            let mut read: Vec<_> = parsed(&written).unwrap();
            read.sort_by(|a, b| a.name.cmp(&b.name));
            let read: Vec<_> = read.into_iter().map(|tensor| tensor.shape).collect();
            let expected: Vec<_> = shapes.iter().map(|&(a, b)| vec![a, b]).collect();
            prop_assert_eq!(read, expected);
            let short = written.len().saturating_sub(cut);
            prop_assert!(parsed(&written[..short]).is_err());
        }
    }
}
