//! Computes lifetimes, categories, layers and bytes in use from a recording.

mod category;
mod history;
mod layers;
mod lifetimes;
mod timeline;

pub use category::{Breakdown, Categories, Category};
pub use history::{History, PhaseOfStep, Sample, Span};
pub use layers::LayerOf;
pub use lifetimes::{Lifetime, Lifetimes};
pub use timeline::{Peak, PhaseMemory, Timeline};
