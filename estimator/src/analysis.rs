//! What a recording says, after the fact.

mod category;
mod layers;
mod lifetimes;
mod timeline;

pub use category::{Breakdown, Categories, Category};
pub use layers::LayerOf;
pub use lifetimes::{Lifetime, Lifetimes};
pub use timeline::{Peak, PhaseMemory, Timeline};
