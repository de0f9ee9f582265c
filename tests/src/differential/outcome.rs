//! What the two sides of a case report, and in what they differ.

use estimator::{Bytes, DeviceDescription};
use fit_check::comparison::{Figures, count_as_equal};
use serde::{Deserialize, Serialize};

/// How a side ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It trained every step.
    Trained,
    /// The card refused an allocation for good.
    OutOfMemory,
    /// It failed in another way.
    Failed(String),
}

/// A quantity that both sides have at the end of a phase.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display,
)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Bytes in use at the end of a phase.
    #[strum(to_string = "bytes in use, at the end of a phase")]
    InUse,
    /// Bytes reserved at the end of a phase.
    #[strum(to_string = "bytes reserved, at the end of a phase")]
    Reserved,
    /// The most bytes reserved within a phase.
    #[strum(to_string = "bytes reserved, the most within a phase")]
    MostReserved,
}

/// How often the estimate of a quantity was right, and how wrong it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Phases.
    pub phases: u32,
    /// Phases in which both sides are equal.
    pub equal: u32,
    /// Phases in which the estimate is below the measurement.
    pub under: u32,
    /// The lowest error relative to the measurement; negative if an estimate was too low.
    pub lowest: f64,
    /// The highest error relative to the measurement.
    pub highest: f64,
}

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseOutcome {
    /// How the real runtime ended.
    pub real: Ended,
    /// How the simulated card ended.
    pub simulated: Ended,
    /// Whether the simulated run is not the usual one, but another that a step has to complete to fit.
    #[serde(default)]
    pub other_run: bool,
    /// How often burn's tuner was asked in the measured step for a kernel that it did not know, although the step
    /// was tuned before.
    #[serde(default)]
    pub tuner_requests: u64,
    /// The quantities at the ends of the phases that both sides completed.
    pub quantities: Vec<(Quantity, Tally)>,
}

impl Tally {
    /// Adds a pair of values, which are equal if they [count as such](count_as_equal).
    pub fn add(&mut self, estimated: Bytes, measured: Bytes) {
        self.phases += 1;
        if count_as_equal(estimated, measured) {
            self.equal += 1;
            return;
        }
        self.under += u32::from(estimated < measured);
        let error = estimated.signed_difference(measured) as f64 / measured.as_f64().max(1.0);
        self.lowest = self.lowest.min(error);
        self.highest = self.highest.max(error);
    }

    /// Adds `other`.
    pub fn merge(&mut self, other: &Self) {
        self.phases += other.phases;
        self.equal += other.equal;
        self.under += other.under;
        self.lowest = self.lowest.min(other.lowest);
        self.highest = self.highest.max(other.highest);
    }
}

impl CaseOutcome {
    /// Whether both sides ended alike, and every quantity is equal at every phase end.
    pub fn agrees(&self) -> bool {
        let alike = match (&self.real, &self.simulated) {
            (Ended::Failed(_), Ended::Failed(_)) => true,
            (real, simulated) => real == simulated,
        };
        alike && all_equal(&self.quantities)
    }
}

/// Measures again, up to `again` times, where the two sides of `first` differ: what differs between two real runs is no
/// difference to the simulated card. Returns the outcome that agrees, or else the first, and whether it is a later one.
///
/// # Errors
///
/// Those of `run`.
pub fn agreeing<T>(
    first: T,
    again: u32,
    agrees: impl Fn(&T) -> bool,
    mut run: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(T, bool)> {
    if agrees(&first) {
        return Ok((first, false));
    }
    for _ in 0..again {
        let other = run()?;
        if agrees(&other) {
            return Ok((other, true));
        }
    }
    Ok((first, false))
}

/// Whether the two sides are equal in every phase.
pub(super) fn all_equal(quantities: &[(Quantity, Tally)]) -> bool {
    let mut tallies = quantities.iter();
    tallies.all(|(_, tally)| tally.equal == tally.phases)
}

/// What the real runtime did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredRun {
    /// The device, as CubeCL's runtime describes it.
    pub description: DeviceDescription,
    /// Memory that was free on it when the process began.
    pub free: Option<Bytes>,
    /// How the step ended.
    pub ended: Ended,
    /// The figures of the phases that it completed.
    pub figures: Figures,
    /// How often burn's tuner was asked in a warm step for a kernel that it did not know.
    #[serde(default)]
    pub tuner_requests: u64,
}
