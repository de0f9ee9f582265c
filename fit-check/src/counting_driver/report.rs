//! What `run` answers.

use estimator::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CallPosition, Ended, Refusal, Usage};
use crate::job_info::GpuName;

/// What a program took of cards that do not exist.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ProgramMemoryReport {
    /// Version of this interface.
    pub schema: u32,
    /// The program, as it was typed.
    pub program: String,
    /// How it ended.
    pub ended: Ended,
    /// The cards that it used.
    pub cards: Vec<CardUsage>,
}

impl ProgramMemoryReport {
    /// Whether every allocation was made in the end.
    pub fn fits(&self) -> bool {
        self.cards.iter().all(|usage| usage.fits)
    }
}

/// What a program took of one card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CardUsage {
    /// The card.
    pub gpu: GpuName,
    /// Whether every allocation was made in the end.
    pub fits: bool,
    /// The most that the program took of the card's memory at once, without what its process costs.
    pub peak_bytes: Bytes,
    /// When that was first so.
    pub peak_at: CallPosition,
    /// What it had of it when it ended.
    pub end_bytes: Bytes,
    /// What the peak leaves of the card, beside what a process costs.
    pub headroom_bytes: Bytes,
    /// Allocations that it got.
    pub allocations: u64,
    /// Allocations that it did not get.
    pub refused: Vec<Refusal>,
    /// Refused allocations that were made good when it had given memory back.
    pub made_good: u64,
    /// What it had after each change, by the calls of the driver until then.
    #[serde(skip)]
    pub curve: Vec<(u64, Bytes)>,
}

impl CardUsage {
    /// `usage` of the card `gpu`.
    pub fn new(gpu: GpuName, usage: Usage) -> Self {
        let room = gpu.usable_bytes.saturating_sub(gpu.overhead_bytes);
        Self {
            fits: usage.refused.is_empty(),
            headroom_bytes: room.saturating_sub(usage.peak_bytes),
            gpu,
            peak_bytes: usage.peak_bytes,
            peak_at: usage.peak_at,
            end_bytes: usage.end_bytes,
            allocations: usage.allocations,
            refused: usage.refused,
            made_good: usage.made_good,
            curve: usage.curve,
        }
    }
}
