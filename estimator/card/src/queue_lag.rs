//! The queue lag: how many calls the program is ahead of the device's thread.

use serde::{Deserialize, Serialize};

/// How many calls the program is ahead of the thread that executes them on the device. The lag decides which
/// tensors the program has dropped by the time of an allocation, and so which page a buffer finds free. On a
/// real card it changes all the time, between [`None`](Self::None) and [`Full`](Self::Full).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueLag {
    /// The thread executes a call as soon as the program hands it over.
    #[default]
    None,
    /// The thread executes calls only when the program has as many more ready as CubeCL's channel holds: a
    /// thread that is slow, or seldom gets a turn.
    Full,
    /// The lag changes between the two; the number is the seed of the changes.
    Varying(u64),
}

impl QueueLag {
    /// Lags to try besides [`None`](Self::None): the largest, and samples of those in between. Which lag is
    /// the worst cannot be predicted, since it depends on the pages.
    pub const SAMPLES: [Self; 9] = [
        Self::Full,
        Self::Varying(1),
        Self::Varying(2),
        Self::Varying(3),
        Self::Varying(4),
        Self::Varying(5),
        Self::Varying(6),
        Self::Varying(7),
        Self::Varying(8),
    ];
}
