//! The memory of PyTorch programs.

pub mod allocator;
