//! What the files of published decoders share.

use burn::tensor::Device;

use super::{DecoderConfig, train_decoder};
use crate::networks::Network;
use crate::{Counts, Error, Input, Job, Observer, OptimizerKind, Variant};

/// A family of published decoders, such as Qwen3. Each of their files implements it once.
pub(crate) trait DecoderFamily {
    /// The dimensions of the variant, or of the tiny model, called `name`.
    ///
    /// # Panics
    ///
    /// If the file knows no network of this name.
    fn config(name: &str) -> DecoderConfig;

    /// As [`Network::variants`].
    fn published(file: &'static str) -> Vec<Variant>;
}

impl<F: DecoderFamily> Network for F {
    const OUTPUT_LAYERS: &'static [&'static str] = &["head"];

    fn variants(file: &'static str) -> Vec<Variant> {
        F::published(file)
    }

    fn check(_variant: &Variant, _job: &Job) -> Result<(), Error> {
        // The network computes rotations for as many positions as the sequence has.
        Ok(())
    }

    fn train<O: Observer>(
        variant: &Variant,
        job: &Job,
        device: &Device,
        steps: usize,
        observer: &mut O,
    ) -> Result<(), O::Stop> {
        train_decoder(&F::config(variant.name), job, device, steps, observer)
    }
}

/// A decoder as it is fine-tuned on one card: one sequence of 2,048 tokens, AdamW. Name, paper,
/// reference, counts and vocabulary are of another network.
pub(crate) fn fine_tuned(family: &'static str, file: &'static str) -> Variant {
    Variant {
        name: "",
        family,
        file,
        paper: "",
        reference: "",
        counts: Counts {
            trainable: 0,
            tensors: 0,
            buffers: 0,
        },
        input: Input {
            seq: Some(2048),
            ..Input::default()
        },
        batch: 1,
        optimizer: OptimizerKind::AdamW,
        recipe: "Full fine-tuning on sequences of 2,048 tokens, AdamW; the published batch is divided among many cards, here one sequence",
        differences: DIFFERENCES,
    }
}

impl Variant {
    /// This decoder as the network `name` with a vocabulary of `vocab` words and this many
    /// parameters in this many tensors.
    pub(crate) fn sized(
        &self,
        name: &'static str,
        vocab: usize,
        trainable: u64,
        tensors: u64,
    ) -> Self {
        Self {
            name,
            counts: Counts {
                trainable,
                tensors,
                buffers: 0,
            },
            input: Input {
                vocab: Some(vocab),
                ..self.input
            },
            ..self.clone()
        }
    }
}

/// The differences of every decoder from transformers.
pub(crate) const DIFFERENCES: &[&str] = &[
    "attention scores are computed as a tensor; burn has no fused attention that can be differentiated",
    "the rotary encoding turns pairs of neighbouring channels, as Meta's own code does and transformers' does not, and makes a tensor twice as large as the queries, freed at once; the wavelengths are not scaled, which changes no size",
    "gradient clipping and weight decay are left out: they need no memory that outlives an operation",
];
