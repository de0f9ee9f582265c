//! What `differential --record FILE` writes of each case.

use estimator::Tuning;
use fit_check::job_info::Burn;
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::outcome::{CaseOutcome, MeasuredRun};

/// A line of the record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseRecord {
    /// burn's [switches].
    pub burn: String,
    /// The sequence.
    pub seed: u64,
    /// The case of the sequence.
    pub number: u64,
    /// The case, made smaller if it differs.
    pub case: Case,
    /// Whether both sides agreed only when the case was measured again.
    #[serde(default)]
    pub again: bool,
    /// The outcome.
    pub outcome: CaseOutcome,
    /// What was measured, if it was to be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredRun>,
}

/// burn's switches in this build, as `fusion on, autotune on`.
pub fn switches() -> String {
    let burn = Burn {
        tuning: None,
        ..Burn::this(Some(Tuning::Cold))
    };
    burn.switches()
}
