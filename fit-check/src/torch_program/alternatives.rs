//! What a person can change from outside so that a program fits: the allocator's configuration, and the card.

use estimator::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::replay::{Replay, least_capacity};
use torch_memory::trace::Trace;

use super::fitting::driven_cards;
use super::report::Torch;
use crate::resolve::Card;

/// The most cards that an answer names.
pub const MAX_CARDS: usize = 3;

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

impl Alternative {
    /// The `change` with which a program does what `trace` says, on `card`.
    pub fn of(change: String, trace: &Trace, config: &AllocatorConfig, card: &Card) -> Self {
        Self {
            change,
            required_bytes: Bytes(least_capacity(trace, config)),
            fits: Replay::fits(trace, config, card.available().0),
        }
    }
}

/// The changes to try for a trace on `card`: expandable segments, and the cards of the catalogue with the least memory on
/// which it fits. Kernels are those of `card`.
pub fn alternatives(
    trace: &Trace,
    config: &AllocatorConfig,
    torch: &Torch,
    card: &Card,
) -> Vec<Alternative> {
    let mut found = Vec::new();
    if !config.expandable_segments {
        let expandable = config.with_expandable_segments();
        let change = format!("{}=expandable_segments:True", AllocatorConfig::VARIABLES[0]);
        found.push(Alternative::of(change, trace, &expandable, card));
    }
    let required = Bytes(least_capacity(trace, config));
    let cards = driven_cards(torch.cuda.as_deref());
    let enough = cards.iter().filter(|(_, card)| {
        card.available() >= required && Replay::fits(trace, config, card.available().0)
    });
    found.extend(enough.take(MAX_CARDS).map(|(gpu, _)| Alternative {
        change: format!("--gpu {} ({})", gpu.alias(), gpu.name),
        required_bytes: required,
        fits: true,
    }));
    found
}
