//! Memory of a device that is held, so that only a given amount is left to another process.

use burn::tensor::{Device, Tensor};
use estimator::Bytes;

/// Memory is taken in pieces of 2 MiB. This is a choice that no GPU has confirmed: CUDA's driver is assumed
/// to round large allocations to 2 MiB. A driver that rounds to more leaves less than it should.
const PIECE: u64 = 2 << 20;

/// Takes memory until what is `free` exceeds `left` by less than a piece. `take` takes the given bytes, or
/// fewer. Returns the bytes that are free in the end.
///
/// # Errors
///
/// Less than `left` was free from the beginning, the driver does not report free memory, or it reports taken
/// memory as free.
pub(super) fn leave(
    left: Bytes,
    free: impl Fn() -> Option<Bytes>,
    mut take: impl FnMut(Bytes),
) -> Result<Bytes, String> {
    let silent = || "the driver does not say what is free".to_string();
    let mut now = free().ok_or_else(silent)?;
    if now < left {
        return Err(format!(
            "{now} of the device are free, which is less than {left}"
        ));
    }
    loop {
        let pieces = now.saturating_sub(left).0 / PIECE;
        if pieces == 0 {
            return Ok(now);
        }
        take(Bytes(pieces * PIECE));
        let then = free().ok_or_else(silent)?;
        if then >= now {
            return Err(format!(
                "{now} are free, and it is not less when some is taken"
            ));
        }
        now = then;
    }
}

/// Buffers on a device, each in an allocation of exactly its size.
#[derive(Debug)]
pub(super) struct Ballast {
    device: Device,
    /// The largest single allocation.
    largest: Bytes,
    held: Vec<Tensor<1>>,
}

impl Ballast {
    /// No buffers yet, on `device`, which allocates at most `largest` at once.
    pub(super) fn new(device: Device, largest: Bytes) -> Self {
        Self {
            device,
            largest,
            held: Vec::new(),
        }
    }

    /// Takes `bytes`, or the largest single allocation if that is less.
    ///
    /// # Panics
    ///
    /// The device refuses the allocation.
    pub(super) fn take(&mut self, bytes: Bytes) {
        let bytes = bytes.min(self.largest);
        let elements = bytes.0 as usize / size_of::<f32>();
        let device = &self.device;
        let buffer =
            device.memory_persistent_allocations((), |()| Tensor::<1>::empty([elements], device));
        self.held.push(buffer);
        if let Err(refused) = device.sync() {
            panic!("{bytes} of ballast: {refused}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Leaves `left` MiB of a device of `total` MiB, which allocates at most `largest` MiB at once, in whole
    /// pieces.
    fn device(total: u64, largest: u64, left: u64) -> Result<Bytes, String> {
        let free = Cell::new(Bytes::mib(total));
        let take = |bytes: Bytes| {
            let given = bytes.min(Bytes::mib(largest)).0.next_multiple_of(PIECE);
            free.set(free.get().saturating_sub(Bytes(given)));
        };
        leave(Bytes::mib(left), || Some(free.get()), take)
    }

    #[test]
    fn what_is_left_is_what_was_asked_for() {
        assert_eq!(device(24_000, 6_000, 8_000), Ok(Bytes::mib(8_000)));
        // An odd number of MiB: the last one is less than a piece.
        assert_eq!(device(24_001, 6_000, 8_000), Ok(Bytes::mib(8_001)));
        assert_eq!(device(8_000, 6_000, 8_000), Ok(Bytes::mib(8_000)));
    }

    #[test]
    fn a_device_with_less_than_that_says_so() {
        let refused = device(4_000, 6_000, 8_000).unwrap_err();
        assert!(refused.contains("which is less than"), "{refused}");
    }

    #[test]
    fn a_driver_that_counts_nothing_is_no_endless_loop() {
        let refused = leave(Bytes::ZERO, || Some(Bytes::mib(100)), |_| {}).unwrap_err();
        assert!(refused.contains("not less"), "{refused}");
        let silent = leave(Bytes::ZERO, || None, |_| {}).unwrap_err();
        assert!(silent.contains("does not say"), "{silent}");
    }
}
