//! Pages of `docs/` that are written by the program: a frame that a person wrote, and tables
//! from data.

mod accuracy;

pub use accuracy::accuracy;
