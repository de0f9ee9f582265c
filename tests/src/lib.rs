//! Behaviour of the whole: see `tests/`.
