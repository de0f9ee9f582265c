//! The clock of a stream. No kernel runs, so nothing takes time: each launch advances the clock of its stream
//! by the time that [`launch_time`](crate::launch_time) assigns to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time on one stream since it was made, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct StreamClock(AtomicU64);

impl StreamClock {
    /// The clock of a new stream, at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Advances the clock by `time`.
    pub fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The current time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The moment at which an event was recorded, in nanoseconds of its stream's clock.
#[derive(Debug, Default)]
pub(crate) struct EventTime(AtomicU64);

impl EventTime {
    /// Sets the event to the current time of `clock`.
    pub fn record(&self, clock: &StreamClock) {
        self.0.store(clock.now(), Ordering::Relaxed);
    }

    /// Milliseconds from `start` to this event.
    pub fn since(&self, start: &Self) -> f32 {
        let (start, end) = (
            start.0.load(Ordering::Relaxed),
            self.0.load(Ordering::Relaxed),
        );
        (end as i64).wrapping_sub(start as i64) as f32 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_events_is_that_of_the_launches_between_them() {
        let clock = StreamClock::new();
        let (start, end) = (EventTime::default(), EventTime::default());
        clock.advance(Duration::from_millis(7));
        start.record(&clock);
        clock.advance(Duration::from_millis(2));
        clock.advance(Duration::from_millis(3));
        end.record(&clock);
        assert_eq!(end.since(&start), 5.0);
        assert_eq!(start.since(&end), -5.0);
    }
}
