//! OLMo 2, a decoder-only language model. See `published` for paper, reference and differences.

use crate::Variant;
use crate::blocks::decoder::{DecoderConfig, DecoderFamily, HeadNorm, Norms, fine_tuned};

/// OLMo 2: Llama with the normalisations after attention and feed-forward block, and one of all
/// queries and one of all keys.
pub(crate) struct Olmo2;

impl DecoderFamily for Olmo2 {
    fn config(name: &str) -> DecoderConfig {
        match name {
            "olmo-2-1b" => DecoderConfig {
                norms: Norms::After,
                head_norm: Some(HeadNorm::Projection),
                epsilon: 1e-6,
                ..DecoderConfig::llama(100_352, [2048, 8192], 16, [16, 16])
            },
            "olmo2-mini" => Self::config("olmo-2-1b").tiny(),
            other => unreachable!("{other} is not a variant of this file"),
        }
    }

    fn published(file: &'static str) -> Vec<Variant> {
        let olmo = Variant {
            paper: "OLMo Team 2025, 2 OLMo 2 Furious, arXiv 2501.00656",
            reference: "transformers Olmo2ForCausalLM",
            ..fine_tuned("OLMo", file)
        };
        vec![olmo.sized("olmo-2-1b", 100_352, 1_484_916_736, 179)]
    }
}
