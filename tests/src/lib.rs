//! Tests of the whole; see `tests/`.

pub mod differential;
pub mod workers;
