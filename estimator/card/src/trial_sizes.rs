//! The sizes of the buffers with which burn's tuner tried kernels.

use recording::Bytes;
use serde::{Deserialize, Serialize};

/// The sizes of the buffers with which burn's tuner tried kernels. It chooses among those whose buffers the card allows, so on
/// each card that allows and refuses the same sizes it chooses the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialSizes {
    largest_allowed: Bytes,
    smallest_refused: Bytes,
}

/// Nothing was tried.
impl Default for TrialSizes {
    fn default() -> Self {
        Self {
            largest_allowed: Bytes::ZERO,
            smallest_refused: Bytes(u64::MAX),
        }
    }
}

impl TrialSizes {
    /// Adds a buffer of `size`, on a card that allows a kernel one of `limit`.
    pub fn add(&mut self, size: Bytes, limit: Bytes) {
        match size <= limit {
            true => self.largest_allowed = self.largest_allowed.max(size),
            false => self.smallest_refused = self.smallest_refused.min(size),
        }
    }

    /// These sizes and `others`.
    pub fn with(self, others: Self) -> Self {
        Self {
            largest_allowed: self.largest_allowed.max(others.largest_allowed),
            smallest_refused: self.smallest_refused.min(others.smallest_refused),
        }
    }

    /// Takes the choices for those on a card that allows a kernel a buffer of `limit`, whatever it would refuse.
    pub fn stand_for(&mut self, limit: Bytes) {
        self.largest_allowed = self.largest_allowed.min(limit);
        self.smallest_refused = self.smallest_refused.max(limit + Bytes(1));
    }

    /// Whether the tuner chooses the same on a card that allows a kernel a buffer of `limit`.
    pub fn hold_for(&self, limit: Bytes) -> bool {
        self.largest_allowed <= limit && limit < self.smallest_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card that allows 4 GiB was asked for 2 and 6 GiB: one that allows 3 GiB answers alike, ones with 1 and 6 GiB do not.
    #[test]
    fn cards_that_allow_the_same_sizes_choose_alike() {
        let mut sizes = TrialSizes::default();
        for gib in [2, 6] {
            sizes.add(Bytes::gib(gib), Bytes::gib(4));
        }
        let alike = [1, 2, 3, 5, 6].map(|gib| sizes.hold_for(Bytes::gib(gib)));
        assert_eq!(alike, [false, true, true, true, false]);
        sizes.stand_for(Bytes::gib(6));
        assert!(sizes.hold_for(Bytes::gib(6)));
    }
}
