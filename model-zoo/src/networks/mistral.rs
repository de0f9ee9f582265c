//! Mistral 7B, a decoder-only language model. See `published` for paper, reference and differences.

use crate::Variant;
use crate::blocks::decoder::{DecoderConfig, DecoderFamily, fine_tuned};

/// Mistral: Llama with shared keys; version 0.3 has no window.
pub(crate) struct Mistral;

impl DecoderFamily for Mistral {
    fn config(name: &str) -> DecoderConfig {
        match name {
            "mistral-7b-v0.3" => DecoderConfig::llama(32_768, [4096, 14_336], 32, [32, 8]),
            "mistral-mini" => Self::config("mistral-7b-v0.3").tiny(),
            other => unreachable!("{other} is not a variant of this file"),
        }
    }

    fn published(file: &'static str) -> Vec<Variant> {
        let mistral = Variant {
            paper: "Jiang et al. 2023, Mistral 7B, arXiv 2310.06825",
            reference: "transformers MistralForCausalLM",
            ..fine_tuned("Mistral", file)
        };
        vec![mistral.sized("mistral-7b-v0.3", 32_768, 7_248_023_552, 291)]
    }
}
