//! The lifetimes of buffers.

use crate::recording::{BufferId, Event, Recording};

/// When a buffer is in use, in positions of [`Recording::events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The position of its allocation.
    pub born: usize,
    /// The position where it is freed; the number of events if it never is.
    pub dies: usize,
    /// The position of the first launch that writes it, if any does.
    pub first_written: Option<usize>,
}

impl Lifetime {
    /// Whether the buffer is in use right after the event at `position`.
    pub fn covers(&self, position: usize) -> bool {
        self.born <= position && position < self.dies
    }
}

/// The lifetimes of all buffers of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetimes(Vec<Lifetime>);

impl Lifetimes {
    /// Computes the lifetimes of `recording`.
    pub fn of(recording: &Recording) -> Self {
        let end = recording.events.len();
        let absent = Lifetime {
            born: end,
            dies: end,
            first_written: None,
        };
        let mut lifetimes = vec![absent; recording.buffers.len()];
        for (position, event) in recording.events.iter().enumerate() {
            match event {
                Event::Allocate(buffer) => lifetimes[buffer.0 as usize].born = position,
                Event::Free(buffer) => lifetimes[buffer.0 as usize].dies = position,
                Event::Launch(launch) => {
                    for buffer in recording.writes(*launch) {
                        lifetimes[buffer.0 as usize]
                            .first_written
                            .get_or_insert(position);
                    }
                }
                _ => {}
            }
        }
        Self(lifetimes)
    }

    /// The lifetime of `buffer`.
    pub fn get(&self, buffer: BufferId) -> Lifetime {
        self.0[buffer.0 as usize]
    }

    /// Every buffer with its lifetime, in the order of birth.
    pub fn iter(&self) -> impl Iterator<Item = (BufferId, Lifetime)> + '_ {
        let buffers = self.0.iter().enumerate();
        buffers.map(|(index, lifetime)| (BufferId(index as u32), *lifetime))
    }
}
