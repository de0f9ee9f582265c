//! Compressed data that the crate carries: the length of the text, 8 bytes with the least one first, and a zlib stream.
//! `data/compress.py` writes it.

use miniz_oxide::inflate::decompress_slice_iter_to_slice;

/// Why data cannot be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data is damaged")]
pub struct Damaged;

/// The text of `data`.
///
/// # Errors
///
/// It is not compressed like this.
pub fn decompress(data: &[u8]) -> Result<Vec<u8>, Damaged> {
    let (length, stream) = data.split_first_chunk().ok_or(Damaged)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| Damaged)?;
    // A zlib stream is at most 1032 times as short as its text (zlib's FAQ).
    if length / 1032 > stream.len() {
        return Err(Damaged);
    }
    let mut text = vec![0; length];
    let written = decompress_slice_iter_to_slice(&mut text, std::iter::once(stream), true, false);
    match written {
        Ok(written) if written == length => Ok(text),
        _ => Err(Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_compressed_is_read() {
        // (5).to_bytes(8, "little") + zlib.compress(b"aaaaa")
        let data = b"\x05\0\0\0\0\0\0\0\x78\x9c\x4b\x4c\x04\x02\0\x05\xb4\x01\xe6";
        assert_eq!(decompress(data), Ok(b"aaaaa".to_vec()));
        assert_eq!(decompress(&data[..14]), Err(Damaged));
        assert_eq!(decompress(b"short"), Err(Damaged));
        assert_eq!(decompress(&[255; 20]), Err(Damaged));
    }
}
