//! The exit statuses of the program.

/// It fits, or the command is done.
pub const FITS: u8 = 0;
/// It does not fit, or a check found a difference.
pub const DOES_NOT_FIT: u8 = 1;
/// There is no answer.
pub const UNKNOWN: u8 = 2;
