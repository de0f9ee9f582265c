//! What a person can change from outside so that a program fits: the allocator's configuration, and the card.

use estimator::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use torch_memory::allocator::AllocatorConfig;
use torch_memory::replay::{Replay, least_capacity};
use torch_memory::saved::are_like;
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

/// PyTorch's expandable segments for a trace on `card`; none if they are in use.
pub fn segments(trace: &Trace, config: &AllocatorConfig, card: &Card) -> Option<Alternative> {
    if config.expandable_segments {
        return None;
    }
    let expandable = config.with_expandable_segments();
    let change = format!("{}=expandable_segments:True", AllocatorConfig::VARIABLES[0]);
    Some(Alternative::of(change, trace, &expandable, card))
}

/// The card `gpu`, on which a program fits that needs `required` there.
pub fn other_card(alias: &str, name: &str, required: Bytes) -> Alternative {
    Alternative {
        change: format!("--gpu {alias} ({name})"),
        required_bytes: required,
        fits: true,
    }
}

/// The changes to try for a program that was recorded on `card`: expandable segments, and the cards with the least memory on which it
/// fits. Kernels are those of `card`; older ones can take more memory, so a card that has such is not named.
pub fn alternatives(
    trace: &Trace,
    config: &AllocatorConfig,
    torch: &Torch,
    card: &Card,
) -> Vec<Alternative> {
    let mut found: Vec<_> = segments(trace, config, card).into_iter().collect();
    let required = Bytes(least_capacity(trace, config));
    let cards = driven_cards(torch.cuda.as_deref());
    let own = card.device.card.compute_capability;
    let enough = cards.iter().filter(|(_, card)| {
        let other = card.device.card.compute_capability;
        (are_like(own, other) || other > own)
            && card.available() >= required
            && Replay::fits(trace, config, card.available().0)
    });
    let enough = enough.take(MAX_CARDS);
    found.extend(enough.map(|(gpu, _)| other_card(gpu.alias(), &gpu.name, required)));
    found
}
