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
    /// Whether it fits on its cards; `None` if it did not come to its end, and no card was too small until then.
    pub fn fits(&self) -> Option<bool> {
        let fits = |known| self.cards.iter().any(|usage| usage.fits == known);
        match fits(Some(false)) {
            true => Some(false),
            false if fits(None) => None,
            false => Some(true),
        }
    }
}

/// The memory that a program took of one card.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CardUsage {
    /// The card.
    pub gpu: GpuName,
    /// Whether every allocation succeeded in the end, and the card has room for all processes of the program together;
    /// null if the program did not come to its end, and the card was not too small until then, if it did not ask again for
    /// memory that it was refused, or if the card was too small only with a process that a signal ended, which may have
    /// had its memory for longer than it lived.
    pub fits: Option<bool>,
    /// The most bytes of the card that the program held at once, without the overhead of its processes.
    pub peak_bytes: Bytes,
    /// The call with which the most was first reached.
    pub peak_at: CallPosition,
    /// The bytes that it held when it ended.
    pub end_bytes: Bytes,
    /// The most of the program's processes that used the card at once.
    pub processes: u64,
    /// The memory of the card that the processes and their overhead leave.
    pub headroom_bytes: Bytes,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Allocations that failed, although the program freed memory and asked again.
    pub refused: Vec<Refusal>,
    /// Refused allocations that succeeded after the program had freed memory.
    pub made_good: u64,
    /// Refused allocations that the program did not ask for again.
    pub given_up: u64,
    /// The bytes that it held after each change, with the number of driver calls until then.
    #[serde(skip)]
    pub curve: Vec<(u64, Bytes)>,
}

impl CardUsage {
    /// The `usage` of the card `gpu` by a program that `ended`.
    pub fn new(gpu: GpuName, usage: Usage, ended: Ended) -> Self {
        let has_room = usage.needed_bytes <= gpu.usable_bytes;
        let too_small = !usage.refused.is_empty() || !has_room && usage.cut_short == 0;
        let known = too_small || has_room && usage.given_up == 0 && ended == Ended::Exited(0);
        Self {
            fits: known.then_some(!too_small),
            headroom_bytes: gpu.usable_bytes.saturating_sub(usage.needed_bytes),
            processes: usage.processes,
            gpu,
            peak_bytes: usage.peak_bytes,
            peak_at: usage.peak_at,
            end_bytes: usage.end_bytes,
            allocations: usage.allocations,
            refused: usage.refused,
            made_good: usage.made_good,
            given_up: usage.given_up,
            curve: usage.curve,
        }
    }
}
