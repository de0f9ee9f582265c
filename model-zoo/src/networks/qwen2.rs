//! Qwen2.5, decoder-only language models. See `published` for paper, reference and differences.

use crate::Variant;
use crate::blocks::decoder::{DecoderConfig, DecoderFamily, fine_tuned};

/// Qwen2: Llama with biases on the projections to queries, keys and values.
pub(crate) struct Qwen2;

impl DecoderFamily for Qwen2 {
    fn config(name: &str) -> DecoderConfig {
        let qwen = |vocab, widths, layers, heads, tied| DecoderConfig {
            qkv_bias: true,
            epsilon: 1e-6,
            tied,
            ..DecoderConfig::llama(vocab, widths, layers, heads)
        };
        match name {
            "qwen2.5-0.5b" => qwen(151_936, [896, 4864], 24, [14, 2], true),
            "qwen2.5-1.5b" => qwen(151_936, [1536, 8960], 28, [12, 2], true),
            "qwen2.5-7b" => qwen(152_064, [3584, 18_944], 28, [28, 4], false),
            "qwen2-mini" => Self::config("qwen2.5-0.5b").tiny(),
            other => unreachable!("{other} is not a variant of this file"),
        }
    }

    fn published(file: &'static str) -> Vec<Variant> {
        let qwen = Variant {
            paper: "Qwen Team 2024, Qwen2.5 Technical Report, arXiv 2412.15115",
            reference: "transformers Qwen2ForCausalLM",
            ..fine_tuned("Qwen2", file)
        };
        vec![
            qwen.sized("qwen2.5-0.5b", 151_936, 494_032_768, 290),
            qwen.sized("qwen2.5-1.5b", 151_936, 1_543_714_304, 338),
            qwen.sized("qwen2.5-7b", 152_064, 7_615_616_512, 339),
        ]
    }
}
