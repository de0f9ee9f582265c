//! Random jobs on CUDA's own runtime with the counting driver, beside the simulated card.
//!
//! A [`Case`] is a job, a card, and how both sides run it. [`Case::measure`] trains the step on the real runtime
//! in a process of its own; [`Case::compare`] simulates it, and says in what the two differ.

mod case;
mod layer;
mod network;
mod outcome;
mod record;
mod refusals;
mod sides;
mod summary;

pub use case::{Case, CaseModel, NetworkSpec, draw, small_jobs};
pub use outcome::{CaseOutcome, Ended, MeasuredRun, Quantity, Tally, agreeing};
pub use record::{CaseRecord, switches};
pub use refusals::{RefusalCounts, RefusalOutcome, RefusalRecord, Refused, refuse_each};
pub use summary::Summary;
