//! The measurements in `docs/data`, one per line. `fit-check verify --record` appends them.

use fit_check::records::{LargestBatchRecord, Record};

use crate::jsonl;

/// All records of steps.
///
/// # Errors
///
/// A line is not a record.
pub fn all() -> serde_json::Result<Vec<Record>> {
    jsonl(include_str!("../data/records.jsonl"))
}

/// All records of largest batches.
///
/// # Errors
///
/// A line is not a record.
pub fn largest_batches() -> serde_json::Result<Vec<LargestBatchRecord>> {
    jsonl(include_str!("../data/largest_batches.jsonl"))
}
