//! The measurements in `docs/data`, one per line. `fit-check verify --record` appends them.

use fit_check::records::{LargestBatchRecord, Record};

/// All records of steps.
///
/// # Errors
///
/// A line is not a record.
pub fn all() -> serde_json::Result<Vec<Record>> {
    let lines = include_str!("../data/records.jsonl").lines();
    lines.map(serde_json::from_str).collect()
}

/// All records of largest batches.
///
/// # Errors
///
/// A line is not a record.
pub fn largest_batches() -> serde_json::Result<Vec<LargestBatchRecord>> {
    let lines = include_str!("../data/largest_batches.jsonl").lines();
    lines.map(serde_json::from_str).collect()
}
