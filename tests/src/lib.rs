//! Tests of the whole; see `tests/`.

pub mod differential;
