//! Llama 2, 3.1 and 3.2, and TinyLlama, decoder-only language models. See `published` for papers,
//! reference and differences.

use crate::blocks::decoder::{DecoderConfig, DecoderFamily, fine_tuned};
use crate::{Input, Variant};

/// Llama: normalisations before attention and feed-forward block, no biases.
pub(crate) struct Llama;

impl DecoderFamily for Llama {
    fn config(name: &str) -> DecoderConfig {
        let llama = DecoderConfig::llama;
        let tied = |config| DecoderConfig {
            tied: true,
            ..config
        };
        match name {
            "llama-2-7b" => llama(32_000, [4096, 11_008], 32, [32, 32]),
            "tinyllama-1.1b" => llama(32_000, [2048, 5632], 22, [32, 4]),
            "llama-3.1-8b" => llama(128_256, [4096, 14_336], 32, [32, 8]),
            "llama-3.2-1b" => tied(llama(128_256, [2048, 8192], 16, [32, 8])),
            "llama-3.2-3b" => tied(llama(128_256, [3072, 8192], 28, [24, 8])),
            "llama-mini" => Self::config("llama-2-7b").tiny(),
            other => unreachable!("{other} is not a variant of this file"),
        }
    }

    fn published(file: &'static str) -> Vec<Variant> {
        let llama_2 = Variant {
            paper: "Touvron et al. 2023, Llama 2: Open Foundation and Fine-Tuned Chat Models, arXiv 2307.09288",
            reference: "transformers LlamaForCausalLM",
            ..fine_tuned("Llama", file)
        };
        let pretrained = Variant {
            input: Input {
                seq: Some(4096),
                ..llama_2.input
            },
            recipe: "Language modelling on sequences of 4,096 tokens, AdamW; the published batch is divided among many cards, here one sequence",
            ..llama_2.clone()
        };
        let tiny_llama = Variant {
            paper: "Zhang, Zeng, Wang, Lu 2024, TinyLlama: An Open-Source Small Language Model, arXiv 2401.02385",
            recipe: "Language modelling on sequences of 2,048 tokens, AdamW; the published batch is divided among many cards, here one sequence",
            ..llama_2.clone()
        };
        let llama_3 = Variant {
            paper: "Grattafiori et al. 2024, The Llama 3 Herd of Models, arXiv 2407.21783",
            ..llama_2
        };
        vec![
            tiny_llama.sized("tinyllama-1.1b", 32_000, 1_100_048_384, 201),
            pretrained.sized("llama-2-7b", 32_000, 6_738_415_616, 291),
            llama_3.sized("llama-3.1-8b", 128_256, 8_030_261_248, 291),
            llama_3.sized("llama-3.2-1b", 128_256, 1_235_814_400, 146),
            llama_3.sized("llama-3.2-3b", 128_256, 3_212_749_824, 254),
        ]
    }
}
