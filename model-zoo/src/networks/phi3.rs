//! Phi-3 mini and Phi-4 mini, decoder-only language models. See `published` for papers, reference
//! and differences.

use crate::Variant;
use crate::blocks::decoder::{DecoderConfig, DecoderFamily, fine_tuned};

/// Phi-3: Llama with one projection to queries, keys and values, and one to both halves of the
/// feed-forward block.
pub(crate) struct Phi3;

impl DecoderFamily for Phi3 {
    fn config(name: &str) -> DecoderConfig {
        let phi = |vocab, heads| DecoderConfig {
            fused: true,
            ..DecoderConfig::llama(vocab, [3072, 8192], 32, heads)
        };
        match name {
            "phi-3-mini" => phi(32_064, [32, 32]),
            "phi-4-mini" => DecoderConfig {
                // Three quarters of the channels of a head are rotated.
                d_rotary: 96,
                tied: true,
                ..phi(200_064, [24, 8])
            },
            "phi-mini" => Self::config("phi-4-mini").tiny(),
            other => unreachable!("{other} is not a variant of this file"),
        }
    }

    fn published(file: &'static str) -> Vec<Variant> {
        let phi_3 = Variant {
            paper: "Abdin et al. 2024, Phi-3 Technical Report: A Highly Capable Language Model Locally on Your Phone, arXiv 2404.14219",
            reference: "transformers Phi3ForCausalLM",
            ..fine_tuned("Phi", file)
        };
        let phi_4 = Variant {
            paper: "Abouelenin et al. 2025, Phi-4-Mini Technical Report, arXiv 2503.01743",
            ..phi_3.clone()
        };
        vec![
            phi_3.sized("phi-3-mini", 32_064, 3_821_079_552, 195),
            phi_4.sized("phi-4-mini", 200_064, 3_836_021_760, 194),
        ]
    }
}
