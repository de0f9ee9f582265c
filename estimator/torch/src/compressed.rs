//! Compressed data that the crate carries, as zstandard does it.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

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
    let mut text = Vec::new();
    let mut decoder = StreamingDecoder::new(data).map_err(|_| Damaged)?;
    decoder.read_to_end(&mut text).map_err(|_| Damaged)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_zstandard_compressed_is_read() {
        // printf aaaaa | zstd -c
        let data = b"\x28\xb5\x2f\xfd\x04\x58\x29\0\0aaaaahA\x45\x13";
        assert_eq!(decompress(data), Ok(b"aaaaa".to_vec()));
        assert_eq!(decompress(&data[..10]), Err(Damaged));
        assert_eq!(decompress(b"short"), Err(Damaged));
    }
}
