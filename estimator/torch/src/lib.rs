//! The memory of PyTorch programs.
//!
//! A recorder in the program's own Python tells what the program allocates and frees ([`stream`]); the replay of that
//! in PyTorch's allocator ([`allocator`], written anew from its rules) says how much memory it takes, whether
//! a device has enough ([`replay`]), and what for. Nothing here knows burn, CubeCL or the command line.

pub mod allocator;
pub mod analysis;
pub mod compressed;
pub mod counters;
mod cycle;
pub mod definitions;
pub mod kept;
mod pickle;
#[cfg(unix)]
pub mod recorder;
pub mod replay;
pub mod saved;
pub mod scaling;
pub mod search;
pub mod snapshot;
pub mod stream;
pub mod trace;
