//! The measurements in `docs/data`, one per line. `fit-check verify --record` and `differential` append them.

use fit_check::records::{LargestBatchRecord, Record};
use fit_check_tests::differential::{RefusalRecord, Summary};
use serde::de::DeserializeOwned;

/// All measurements.
pub struct Records {
    /// Steps, figure by figure.
    pub steps: Vec<Record>,
    /// Largest batches, and whether they and the next ones trained.
    pub largest_batches: Vec<LargestBatchRecord>,
    /// Random jobs: a line for each run of the program `differential`.
    pub random_jobs: Vec<Summary>,
    /// Jobs whose requests for memory were refused: a line for each job of `differential --refuse`.
    pub refused_requests: Vec<RefusalRecord>,
}

impl Records {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// A line is not a record of its file.
    pub fn read() -> serde_json::Result<Self> {
        Ok(Self {
            steps: jsonl(include_str!("../data/records.jsonl"))?,
            largest_batches: jsonl(include_str!("../data/largest_batches.jsonl"))?,
            random_jobs: jsonl(include_str!("../data/differential.jsonl"))?,
            refused_requests: jsonl(include_str!("../data/refused_requests.jsonl"))?,
        })
    }
}

/// The values in `text`, one a line.
fn jsonl<T: DeserializeOwned>(text: &str) -> serde_json::Result<Vec<T>> {
    text.lines().map(serde_json::from_str).collect()
}
