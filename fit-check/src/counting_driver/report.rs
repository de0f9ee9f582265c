//! The answer of `run`.

use estimator::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CallPosition, Ended, Refusal, Usage};
use crate::job_info::GpuName;

/// The memory that a program took of cards that do not exist.
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
    /// Whether every allocation succeeded in the end.
    pub fn fits(&self) -> bool {
        self.cards.iter().all(|usage| usage.fits)
    }
}

/// The memory that a program took of one card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CardUsage {
    /// The card.
    pub gpu: GpuName,
    /// Whether every allocation succeeded in the end.
    pub fits: bool,
    /// The most bytes of the card that the program held at once, without the overhead of its process.
    pub peak_bytes: Bytes,
    /// The call with which the most was first reached.
    pub peak_at: CallPosition,
    /// The bytes that it held when it ended.
    pub end_bytes: Bytes,
    /// The memory of the card that the peak and the overhead of the process leave.
    pub headroom_bytes: Bytes,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Allocations that failed, although the program freed memory and asked again.
    pub refused: Vec<Refusal>,
    /// Refused allocations that were not refused again after the program had freed memory.
    pub made_good: u64,
    /// The bytes that it held after each change, with the number of driver calls until then.
    #[serde(skip)]
    pub curve: Vec<(u64, Bytes)>,
}

impl CardUsage {
    /// The `usage` of the card `gpu`.
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
