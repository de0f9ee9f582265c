//! Files that are often found where a model's files belong, known by how they begin.

use std::fmt::Write;

/// What a file is that fit-check does not read, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtherFile {
    /// What it is, such as `a GGUF file`.
    pub what: String,
    /// What a person can do.
    pub hint: String,
}

/// The most bytes of a file's beginning that [`other_file`] looks at.
pub(super) const LOOKED_AT: usize = 256;

const CONFIG_IS_ENOUGH: &str = "the model's config.json is enough: give its path";

/// What the file is that begins with `bytes`, if it is of a known kind and neither JSON nor safetensors.
pub(super) fn other_file(bytes: &[u8]) -> Option<OtherFile> {
    let of = |what: &str, hint: &str| {
        Some(OtherFile {
            what: what.into(),
            hint: format!("{hint}; {CONFIG_IS_ENOUGH}"),
        })
    };
    let text: String = bytes
        .iter()
        .take(32)
        .map(|&byte| char::from(byte).to_ascii_lowercase())
        .collect();
    let text = text.trim_start();
    // A safetensors file begins with the length of its header, whose first byte is a brace.
    if bytes.get(4..9) == Some(b"\0\0\0\0{") {
        return None;
    }
    match bytes {
        // https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
        _ if bytes.starts_with(b"version https://git-lfs") => Some(lfs_pointer(bytes)),
        _ if text.starts_with("<!doctype") || text.starts_with("<html") => of(
            "an HTML page, as a server sends it in place of a file that it does not give",
            "download the file again, if need be after `hf auth login`",
        ),
        // https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
        [b'G', b'G', b'U', b'F', ..] => of(
            "a GGUF file, for inference with llama.cpp",
            "training starts from the model's own files",
        ),
        // What torch.save writes since PyTorch 1.6, and before: a ZIP archive, or a pickle of protocol 2.
        [b'P', b'K', 3, 4, ..] | [0x80, 2..=5, ..] => of(
            "a file of torch.save (a pickle, which can run any program when it is read)",
            "fit-check reads safetensors, which `model.save_pretrained(FOLDER)` writes",
        ),
        [0x89, b'H', b'D', b'F', ..] => of(
            "an HDF5 file of Keras or TensorFlow",
            "fit-check reads safetensors, which transformers writes",
        ),
        [0x1f, 0x8b, ..] => of(
            "compressed with gzip",
            "if `max-batch --save` wrote it, ask estimate, max-batch, table or gpus --fits about it; otherwise unpack it",
        ),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(OtherFile {
            what: "text in UTF-16, as PowerShell's `>` writes it".into(),
            hint: "write it again in UTF-8: `… | Out-File -Encoding utf8 config.json`".into(),
        }),
        _ => None,
    }
}

/// The pointer `bytes` of git-lfs; it says how large the file is that it stands for.
fn lfs_pointer(bytes: &[u8]) -> OtherFile {
    let text = String::from_utf8_lossy(bytes);
    let size = text
        .lines()
        .find_map(|line| line.strip_prefix("size ")?.parse::<u64>().ok());
    let mut what = "a pointer of git-lfs to a file that was not downloaded".to_string();
    if let Some(size) = size {
        let _ = write!(what, " ({})", estimator::Bytes(size));
    }
    OtherFile {
        what,
        hint: format!("`git lfs pull` in its folder downloads it; {CONFIG_IS_ENOUGH}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginnings are those of the formats' specifications, or what their programs write.
    #[test]
    fn files_are_known_by_how_they_begin() {
        for (beginning, what) in [
            (
                &b"version https://git-lfs.github.com/spec/v1\noid sha256:5a\nsize 2200119864\n"[..],
                "(2.05 GiB)",
            ),
            (b"<!DOCTYPE html><html>", "an HTML page"),
            (b"\n <html lang=\"en\">", "an HTML page"),
            (b"GGUF\x03\0\0\0", "a GGUF file"),
            (b"PK\x03\x04", "torch.save"),
            (b"\x80\x02\x8a\x0a", "torch.save"),
            (b"\xff\xfe{\0", "UTF-16"),
        ] {
            let file = other_file(beginning).unwrap();
            assert!(file.what.contains(what), "{}", file.what);
        }
        assert_eq!(other_file(b"{\"model_type\": \"bert\"}"), None);
        // The length of this header is the beginning of a pickle.
        let header = [&0x0280u64.to_le_bytes()[..], b"{"].concat();
        assert_eq!(other_file(&header), None);
        assert_eq!(other_file(b""), None);
    }
}
