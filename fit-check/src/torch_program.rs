//! PyTorch programs, unchanged, on cards that do not exist.
//!
//! A program is started with two doors open ([`launch`]): a recorder in its Python, which answers if it uses PyTorch's CUDA, and
//! the counting driver, which answers if it opens CUDA itself. What the recorder saw is replayed in PyTorch's allocator
//! (`estimator/torch`) for each card ([`report`]); two recordings at small batches tell the largest batch
//! ([`batches`]). On a GPU of this machine a program is measured ([`measured`]) and compared with its recording ([`verify_report`]). A snapshot of PyTorch's allocator is replayed likewise
//! ([`snapshot`]). Where no program is typed, a [`source`](source::Source) has the step.

pub mod alternatives;
pub mod batches;
pub mod failure;
pub mod fitting;
pub mod job;
pub mod kept;
pub mod launch;
pub mod measured;
pub mod placeholder;
pub mod plot;
pub mod python;
pub mod quiet;
pub mod report;
pub mod saved;
pub mod silent;
pub mod snapshot;
pub mod source;
pub mod training_step;
pub mod verify_report;
pub mod versions;

pub use launch::{Launch, Ran};
pub use report::TorchReport;
