//! A CUDA driver without a GPU. It counts memory, refuses beyond a limit, and runs nothing.
//!
//! CubeCL's CUDA runtime reaches a GPU through one library, `libcuda.so.1`, which it opens by name.
//! This is a library of that name, for cards that do not exist: allocations are counted and refused
//! when a card is full, kernels are accepted and not run, and every value that is read is zero. So
//! the real, unmodified runtime trains a step of any size in seconds.
//!
//! The environment variable `config::VARIABLE` names a file that describes the cards
//! (`config.rs`); what happens is written into a journal (`journal.rs`).
//!
//! Invariant: only the documented interface of the driver is here, and only the functions that
//! CubeCL's runtime calls. One that is missing fails by its name. Unsafe code is confined to
//! `abi.rs`. There is no dependency but std, so that `fit-check/build.rs` can compile this with rustc
//! alone.

mod abi;
mod card;
mod clock;
mod config;
mod driver;
mod journal;
mod kernel;
/// The rule that a simulated card answers burn's tuner by, from the same file.
#[path = "../../card/src/launch_time.rs"]
mod launch_time;
