//! Qwen3, decoder-only language models. See `published` for paper, reference and differences.

use crate::Variant;
use crate::blocks::decoder::{DecoderConfig, DecoderFamily, HeadNorm, fine_tuned};

/// Qwen3: Llama with heads of 128 channels whatever the width, and a normalisation of each head's
/// queries and keys.
pub(crate) struct Qwen3;

impl DecoderFamily for Qwen3 {
    fn config(name: &str) -> DecoderConfig {
        let qwen = |widths, layers, heads, tied| DecoderConfig {
            head_norm: Some(HeadNorm::Head),
            epsilon: 1e-6,
            tied,
            ..DecoderConfig::llama(151_936, widths, layers, heads).with_heads_of(128)
        };
        match name {
            "qwen3-0.6b" => qwen([1024, 3072], 28, [16, 8], true),
            "qwen3-1.7b" => qwen([2048, 6144], 28, [16, 8], true),
            "qwen3-4b" => qwen([2560, 9728], 36, [32, 8], true),
            "qwen3-8b" => qwen([4096, 12_288], 36, [32, 8], false),
            "qwen3-mini" => Self::config("qwen3-0.6b").tiny(),
            other => unreachable!("{other} is not a variant of this file"),
        }
    }

    fn published(file: &'static str) -> Vec<Variant> {
        let qwen = Variant {
            paper: "Qwen Team 2025, Qwen3 Technical Report, arXiv 2505.09388",
            reference: "transformers Qwen3ForCausalLM",
            ..fine_tuned("Qwen3", file)
        };
        vec![
            qwen.sized("qwen3-0.6b", 151_936, 596_049_920, 310),
            qwen.sized("qwen3-1.7b", 151_936, 1_720_574_976, 310),
            qwen.sized("qwen3-4b", 151_936, 4_022_468_096, 398),
            qwen.sized("qwen3-8b", 151_936, 8_190_735_360, 399),
        ]
    }
}
