//! How far a device's thread is behind the program.

use serde::{Deserialize, Serialize};

/// How far the thread that makes a program's calls on the device is behind the program. Which
/// tensors the program has dropped by the time of an allocation depends on it, and so which page
/// a buffer finds free. On a real card it changes from moment to moment, between these two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueLag {
    /// The thread makes a call as soon as the program hands it over.
    #[default]
    None,
    /// The thread makes calls when the program has as many more ready as CubeCL's channel holds:
    /// a device's thread that is slow, or seldom gets a turn.
    Full,
    /// The lag changes, between the two; the number seeds how.
    Varying(u64),
}

impl QueueLag {
    /// How far the thread can be behind, beside keeping up: the furthest, and samples of what is
    /// between. Which of all the ways is the worst cannot be said, since it depends on the pages.
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
