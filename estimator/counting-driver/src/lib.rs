//! A CUDA driver without a GPU. It counts memory, refuses beyond a limit, and runs nothing.
//!
//! CubeCL's CUDA runtime reaches a GPU through one library, `libcuda.so.1`, which it opens by name. This
//! library has that name and simulates the cards: it counts allocations and refuses them when a card is full,
//! accepts kernels without running them, and returns zero for every value that is read. So the real,
//! unmodified runtime trains a step of any size in seconds.
//!
//! The environment variable `config::VARIABLE` names a file that describes the cards (`config.rs`); the
//! driver writes what happens into a journal (`journal.rs`).
//!
//! Invariant: this crate implements only the documented interface of the driver, and only the functions that
//! CubeCL's runtime calls. A missing function fails by its name. Unsafe code is confined to `abi`. The only
//! dependency is std, so that `fit-check/build.rs` can compile this crate with rustc alone.

mod abi;
mod card;
mod clock;
mod config;
mod driver;
mod journal;
mod kernel;
/// The rule for the time of a launch, from the file that the simulated card uses.
#[path = "../../card/src/launch_time.rs"]
mod launch_time;
