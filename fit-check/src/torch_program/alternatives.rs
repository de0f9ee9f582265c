//! What a person can change from outside so that a program fits: the allocator's configuration, and the card.

use estimator::{Bytes, Gpu, Runtime, Tuning};
use schemars::JsonSchema;
use serde::Serialize;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::replay::{Replay, least_capacity};
use torch_memory::trace::Trace;

use crate::resolve::Card;

/// The most cards that an answer names.
const MAX_CARDS: usize = 3;

/// A change from outside with which the program fits, or nearly.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Alternative {
    /// The change.
    pub change: String,
    /// The least memory that the program needs with it.
    pub required_bytes: Bytes,
    /// Whether it fits then.
    pub fits: bool,
}

/// The changes to try for a trace that does not fit on `card`: expandable segments, and the cards of the catalogue
/// with the least memory on which it fits. Kernels are those of `card`.
pub fn alternatives(
    trace: &Trace,
    config: &AllocatorConfig,
    card: &Card,
    overhead: Bytes,
) -> Vec<Alternative> {
    let mut found = Vec::new();
    if !config.expandable_segments {
        let expandable = config.with_expandable_segments();
        found.push(Alternative {
            change: format!("{}=expandable_segments:True", AllocatorConfig::VARIABLES[0]),
            required_bytes: Bytes(least_capacity(trace, &expandable)),
            fits: Replay::fits(trace, &expandable, card.available().0),
        });
    }
    let required = Bytes(least_capacity(trace, config));
    let larger = larger_cards(required + overhead);
    let larger = larger
        .into_iter()
        .filter(|card| Replay::fits(trace, config, card.available().0));
    found.extend(larger.take(MAX_CARDS).map(|card| {
        Alternative {
            change: card
                .gpu
                .map_or_else(String::new, |gpu| format!("on {}", gpu.name)),
            required_bytes: required,
            fits: true,
        }
    }));
    found
}

/// The NVIDIA cards with at least `bytes`, the least first.
fn larger_cards(bytes: Bytes) -> Vec<Card> {
    let gpus = Gpu::all()
        .iter()
        .filter(|gpu| gpu.is_driven_by(Runtime::Cuda) && gpu.usable_bytes >= bytes);
    let mut cards: Vec<_> = gpus
        .map(|gpu| Card::of(gpu, Runtime::Cuda, Tuning::Cold))
        .collect();
    cards.sort_by_key(Card::usable);
    cards
}
