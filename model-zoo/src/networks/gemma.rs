//! Gemma, Gemma 2 and the text part of Gemma 3, decoder-only language models. See `published` for
//! papers, reference and differences.

use crate::Variant;
use crate::blocks::decoder::{
    Activation, DecoderConfig, DecoderFamily, HeadNorm, LayerConfig, Norms, fine_tuned,
};

/// Gemma: Llama with GELU in the gate and scaled vectors of words. Gemma 2 has normalisations around
/// both parts of a layer, a window in every other layer and bounded scores; Gemma 3 a window in
/// five of six layers and a normalisation of each head's queries and keys.
pub(crate) struct Gemma;

/// Gemma with `layers` layers and heads of 256 channels.
fn gemma(vocab: usize, widths: [usize; 2], layers: usize, heads: [usize; 2]) -> DecoderConfig {
    DecoderConfig {
        activation: Activation::GeluTanh,
        scaled_words: true,
        epsilon: 1e-6,
        tied: true,
        ..DecoderConfig::llama(vocab, widths, layers, heads).with_heads_of(256)
    }
}

/// The layers of a Gemma 3: five local ones, one that sees everything, and so on.
fn five_of_six_local(layers: usize) -> Vec<LayerConfig> {
    let layer = |layer: usize| match (layer + 1).is_multiple_of(6) {
        true => LayerConfig::full(1_000_000.0),
        false => LayerConfig::local(10_000.0),
    };
    (0..layers).map(layer).collect()
}

impl DecoderFamily for Gemma {
    fn config(name: &str) -> DecoderConfig {
        let gemma_2 = |widths, layers: usize, heads| {
            let layer = |layer: usize| match layer.is_multiple_of(2) {
                true => LayerConfig::local(10_000.0),
                false => LayerConfig::full(10_000.0),
            };
            DecoderConfig {
                layers: (0..layers).map(layer).collect(),
                window: Some(4096),
                norms: Norms::Around,
                score_cap: Some(50.0),
                logit_cap: Some(30.0),
                ..gemma(256_000, widths, layers, heads)
            }
        };
        let gemma_3 = |vocab, widths, layers, heads, window| DecoderConfig {
            layers: five_of_six_local(layers),
            window: Some(window),
            norms: Norms::Around,
            head_norm: Some(HeadNorm::Head),
            ..gemma(vocab, widths, layers, heads)
        };
        match name {
            "gemma-2b" => gemma(256_000, [2048, 16_384], 18, [8, 1]),
            "gemma-2-2b" => gemma_2([2304, 9216], 26, [8, 4]),
            "gemma-3-270m" => gemma_3(262_144, [640, 2048], 18, [4, 1], 512),
            "gemma-3-1b" => gemma_3(262_144, [1152, 6912], 26, [4, 1], 512),
            "gemma-3-4b-text" => gemma_3(262_208, [2560, 10_240], 34, [8, 4], 1024),
            "gemma-mini" => Self::config("gemma-2b").tiny(),
            "gemma-2-mini" => Self::config("gemma-2-2b").tiny(),
            "gemma-3-mini" => Self::config("gemma-3-270m").tiny(),
            other => unreachable!("{other} is not a variant of this file"),
        }
    }

    fn published(file: &'static str) -> Vec<Variant> {
        let gemma = Variant {
            paper: "Gemma Team 2024, Gemma: Open Models Based on Gemini Research and Technology, arXiv 2403.08295",
            reference: "transformers GemmaForCausalLM",
            ..fine_tuned("Gemma", file)
        };
        let gemma_2 = Variant {
            paper: "Gemma Team 2024, Gemma 2: Improving Open Language Models at a Practical Size, arXiv 2408.00118",
            reference: "transformers Gemma2ForCausalLM",
            ..gemma.clone()
        };
        let gemma_3 = Variant {
            paper: "Gemma Team 2025, Gemma 3 Technical Report, arXiv 2503.19786",
            reference: "transformers Gemma3ForCausalLM",
            ..gemma.clone()
        };
        vec![
            gemma.sized("gemma-2b", 256_000, 2_506_172_416, 164),
            gemma_2.sized("gemma-2-2b", 256_000, 2_614_341_888, 288),
            gemma_3.sized("gemma-3-270m", 262_144, 268_098_176, 236),
            gemma_3.sized("gemma-3-1b", 262_144, 999_885_952, 340),
            gemma_3.sized("gemma-3-4b-text", 262_208, 3_880_263_168, 444),
        ]
    }
}
