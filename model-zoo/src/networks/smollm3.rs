//! SmolLM3, a decoder-only language model. See `published` for source, reference and differences.

use crate::Variant;
use crate::blocks::decoder::{DecoderConfig, DecoderFamily, LayerConfig, fine_tuned};

/// SmolLM3: Llama without rotations in every fourth layer.
pub(crate) struct SmolLm3;

impl DecoderFamily for SmolLm3 {
    fn config(name: &str) -> DecoderConfig {
        let layer = |layer: usize| LayerConfig {
            local: false,
            theta: (!(layer + 1).is_multiple_of(4)).then_some(5_000_000.0),
            experts: false,
        };
        match name {
            "smollm3-3b" => DecoderConfig {
                layers: (0..36).map(layer).collect(),
                epsilon: 1e-6,
                tied: true,
                ..DecoderConfig::llama(128_256, [2048, 11_008], 36, [16, 4])
            },
            "smollm3-mini" => Self::config("smollm3-3b").tiny(),
            other => unreachable!("{other} is not a variant of this file"),
        }
    }

    fn published(file: &'static str) -> Vec<Variant> {
        let smollm = Variant {
            paper: "Bakouch et al. 2025, SmolLM3: smol, multilingual, long-context reasoner, Hugging Face blog",
            reference: "transformers SmolLM3ForCausalLM",
            ..fine_tuned("SmolLM", file)
        };
        vec![smollm.sized("smollm3-3b", 128_256, 3_075_098_624, 326)]
    }
}
