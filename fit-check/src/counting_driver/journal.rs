//! Reads the journal in which the counting driver records what processes do to the memory of cards.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::Context;
use estimator::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Allocations, releases and refusals, in the order in which they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    entries: Vec<Entry>,
}

/// The event of a line; see `journal.rs` of `estimator/counting-driver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
enum Event {
    Context,
    Allocate,
    Free,
    Refuse,
    Exit,
}

/// A line of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    event: Event,
    process: u64,
    thread: u64,
    card: usize,
    moment: CallPosition,
    bytes: Bytes,
    used: Bytes,
    /// Kernels that the thread launched until then.
    launched: u64,
    /// Bytes of the journal up to the end of this line.
    end: u64,
}

/// A part of a journal, from one of its lengths in bytes to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalSpan {
    /// The length at its begin.
    pub begin: u64,
    /// The length at its end.
    pub end: u64,
}

/// The position of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct CallPosition {
    /// Calls of the driver until then.
    pub calls: u64,
    /// Kernels launched until then.
    pub launches: u64,
    /// Milliseconds since the process loaded the driver.
    pub milliseconds: u64,
}

/// An allocation that the driver refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Refusal {
    /// The bytes that the program asked for.
    pub bytes: Bytes,
    /// The bytes that it held then.
    pub used_bytes: Bytes,
    /// The call that was refused.
    #[serde(flatten)]
    pub moment: CallPosition,
}

/// The memory that a program took of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The most bytes that its processes held at once.
    pub peak_bytes: Bytes,
    /// The call with which the most was first reached.
    pub peak_at: CallPosition,
    /// The bytes that it held when it ended.
    pub end_bytes: Bytes,
    /// The most of its processes that used the card at once.
    pub processes: u64,
    /// Processes that used the card and did not come to their end, since a signal ended them or they still run. They count
    /// until the end of the journal.
    pub cut_short: u64,
    /// The most bytes at once that the card needs, with what each of these processes takes besides.
    pub needed_bytes: Bytes,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Allocations that failed, although the program freed memory and asked again.
    pub refused: Vec<Refusal>,
    /// Refused allocations that succeeded after the program had freed memory.
    pub made_good: u64,
    /// Refused allocations that the program did not ask for again.
    pub given_up: u64,
    /// The bytes that all its processes held after each change, with the number of driver calls until then.
    pub curve: Vec<(u64, Bytes)>,
}

impl Journal {
    /// Reads the journal at `path`; it is empty if no process has loaded the driver.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a line is not one of a journal.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).context("the journal of the counting CUDA driver"),
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        // A killed process may leave an incomplete line.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut end = 0;
        let lines = whole.lines().map(|line| {
            end += line.len() as u64 + 1;
            Entry::parse(line, end)
                .with_context(|| format!("`{line}` is no line of a driver's journal"))
        });
        Ok(Self {
            entries: lines.collect::<anyhow::Result<_>>()?,
        })
    }

    /// Allocations that processes requested after the journal had `begin` bytes.
    pub fn requests(&self, begin: u64) -> u64 {
        let requests = self.entries.iter().filter(|entry| entry.end > begin);
        requests
            .filter(|entry| matches!(entry.event, Event::Allocate | Event::Refuse))
            .count() as u64
    }

    /// The most bytes that a process held on `card` within each of `spans`, which follow each other, beside what it
    /// held when the first began.
    pub fn peaks_within(
        &self,
        card: usize,
        spans: impl IntoIterator<Item = JournalSpan>,
    ) -> Vec<Bytes> {
        let mut entries = self.entries.iter().filter(|entry| entry.card == card);
        let mut entry = entries.next();
        // What is held at `end`, and the most since the last call.
        let mut until = |end, mut used: Bytes| {
            let mut peak = used;
            while let Some(here) = entry.filter(|entry| entry.end <= end) {
                used = here.used;
                peak = peak.max(used);
                entry = entries.next();
            }
            (used, peak)
        };
        let mut spans = spans.into_iter().peekable();
        let begin = spans.peek().map_or(0, |span| span.begin);
        let (before, _) = until(begin, Bytes::ZERO);
        let mut used = before;
        spans
            .map(|span| {
                (used, _) = until(span.begin, used);
                let peak;
                (used, peak) = until(span.end, used);
                peak.saturating_sub(before)
            })
            .collect()
    }

    /// The memory taken of `card`, on which each process takes `overhead` besides; none if no process used it.
    pub fn usage(&self, card: usize, overhead: Bytes) -> Option<Usage> {
        let entries = self.entries.iter().filter(|entry| entry.card == card);
        let mut entries = entries.peekable();
        entries.peek()?;
        let mut counter = UsageCounter::default();
        entries.for_each(|entry| counter.add(entry, overhead));
        Some(Usage {
            cut_short: counter.alive.len() as u64,
            given_up: counter.usage.given_up + counter.refused_once.len() as u64,
            ..counter.usage
        })
    }
}

/// Adds up the entries of one card.
#[derive(Default)]
struct UsageCounter {
    usage: Usage,
    /// The driver calls of each process, and the bytes that it holds.
    processes: HashMap<u64, (u64, Bytes)>,
    /// The processes that use the card and have not ended.
    alive: HashSet<u64>,
    /// When the driver refuses an allocation, CubeCL frees what it can and asks once more. By process and thread: the
    /// request that was refused once.
    refused_once: HashMap<(u64, u64), (Bytes, u64)>,
}

impl UsageCounter {
    /// Adds `entry` of a process that takes `overhead` besides.
    fn add(&mut self, entry: &Entry, overhead: Bytes) {
        let held = (entry.moment.calls, entry.used);
        self.processes.insert(entry.process, held);
        let used: Bytes = self.processes.values().map(|(_, used)| *used).sum();
        let calls: u64 = self.processes.values().map(|(calls, _)| *calls).sum();
        match entry.event {
            Event::Context | Event::Free => {}
            // `end_bytes` stays what the process held when it ended.
            Event::Exit => {
                self.alive.remove(&entry.process);
                self.usage.curve.push((calls, used));
                return;
            }
            Event::Allocate => self.allocate(entry),
            Event::Refuse => {
                self.refuse(entry);
                return;
            }
        }
        self.alive.insert(entry.process);
        let at_once = self.alive.len() as u64;
        let usage = &mut self.usage;
        usage.processes = usage.processes.max(at_once);
        usage.needed_bytes = usage.needed_bytes.max(used + overhead * at_once);
        if used > usage.peak_bytes {
            usage.peak_bytes = used;
            usage.peak_at = entry.moment;
        }
        usage.end_bytes = used;
        usage.curve.push((calls, used));
    }

    /// Counts an allocation, with which the driver may make good what it had refused.
    fn allocate(&mut self, entry: &Entry) {
        self.usage.allocations += 1;
        let first = self.refused_once.get(&entry.asker());
        if first.is_some_and(|first| first.0 == entry.bytes) {
            self.refused_once.remove(&entry.asker());
            self.usage.made_good += 1;
        }
    }

    /// Counts a refusal: the first of a request waits for the second, or for its success.
    fn refuse(&mut self, entry: &Entry) {
        let request = (entry.bytes, entry.launched);
        match self.refused_once.remove(&entry.asker()) {
            Some(first) if first == request => self.usage.refused.push(Refusal {
                bytes: entry.bytes,
                used_bytes: entry.used,
                moment: entry.moment,
            }),
            first => {
                self.usage.given_up += u64::from(first.is_some());
                self.refused_once.insert(entry.asker(), request);
            }
        }
    }
}

impl Entry {
    /// The process and the thread that made the call.
    fn asker(&self) -> (u64, u64) {
        (self.process, self.thread)
    }

    fn parse(line: &str, end: u64) -> Option<Self> {
        let mut fields = line.split(' ');
        let event = fields.next()?.parse().ok()?;
        let mut next = || fields.next()?.parse::<u64>().ok();
        Some(Self {
            event,
            process: next()?,
            thread: next()?,
            card: next()? as usize,
            moment: CallPosition {
                calls: next()?,
                launches: next()?,
                milliseconds: next()?,
            },
            bytes: Bytes(next()?),
            used: Bytes(next()?),
            launched: next()?,
            end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_over_all_processes_and_of_one_card() {
        let text = "context 7 0 0 1 0 0 0 0 0\nallocate 7 0 0 2 0 1 100 100 0\n\
                    allocate 8 0 0 3 1 2 50 50 1\nfree 7 0 0 4 2 3 100 0 2\n\
                    allocate 7 0 1 5 3 4 999 999 3\nallocate 7 0 0 6 3";
        let usage = Journal::parse(text).unwrap().usage(0, Bytes::ZERO).unwrap();
        assert_eq!(usage.peak_bytes, Bytes(150));
        assert_eq!(usage.peak_at.calls, 3);
        assert_eq!(usage.end_bytes, Bytes(50));
        assert_eq!(usage.allocations, 2);
        assert!(usage.refused.is_empty());
        assert_eq!(Journal::parse(text).unwrap().usage(2, Bytes::ZERO), None);
        assert!(Journal::parse("allocate 1 2\n").is_err());
    }

    #[test]
    fn a_process_that_ended_holds_nothing_while_the_next_runs() {
        let text = "allocate 7 0 0 2 0 1 100 100 0\nexit 7 0 0 2 0 1 100 0 0\n\
                    allocate 8 0 0 3 1 2 60 60 1\nexit 8 0 0 3 1 2 60 0 1\n";
        let usage = Journal::parse(text).unwrap().usage(0, Bytes::ZERO).unwrap();
        assert_eq!((usage.peak_bytes, usage.end_bytes), (Bytes(100), Bytes(60)));
        let last = usage.curve.last().unwrap();
        assert_eq!(last.1, Bytes::ZERO);
    }

    #[test]
    fn the_most_within_a_part_begins_with_what_was_there() {
        let lines = [
            "allocate 7 0 0 2 0 1 100 100 0\n",
            "allocate 7 0 0 3 0 1 50 150 0\n",
            "free 7 0 0 4 0 1 150 0 0\n",
            "allocate 7 0 1 5 0 1 999 999 0\n",
            "allocate 7 0 0 6 0 1 20 20 0\n",
        ];
        let journal = Journal::parse(&lines.concat()).unwrap();
        let length = |lines: &[&str]| lines.concat().len() as u64;
        let ends = [
            0,
            length(&lines[..1]),
            length(&lines[..1]),
            length(&lines[..3]),
            length(&lines),
        ];
        let spans = |ends: &[u64]| -> Vec<JournalSpan> {
            let pairs = ends.windows(2);
            pairs
                .map(|pair| JournalSpan {
                    begin: pair[0],
                    end: pair[1],
                })
                .collect()
        };
        let peaks = |ends: &[u64]| journal.peaks_within(0, spans(ends));
        assert_eq!(peaks(&ends), [100, 100, 150, 20].map(Bytes));
        // What was there before the first part does not count.
        assert_eq!(peaks(&ends[3..]), [20].map(Bytes));
        assert_eq!(peaks(&ends[1..]), [0, 50, 0].map(Bytes));
    }

    #[test]
    fn what_is_refused_twice_in_a_row_is_lost() {
        // A request that is refused again after a free, one that a free makes good, two that are refused
        // twice, the last on a card whose thread waits while another one launches.
        let text = "refuse 7 0 0 1 5 0 10 90 5\nfree 7 0 0 2 5 0 20 70 5\nrefuse 7 0 0 3 5 0 10 90 5\n\
                    refuse 7 0 0 4 6 0 10 90 6\nfree 7 0 0 5 6 0 20 70 6\nallocate 7 0 0 6 6 0 10 80 6\n\
                    refuse 7 0 0 7 9 0 10 90 9\nrefuse 7 0 0 8 9 0 10 90 9\n\
                    refuse 7 0 0 9 9 0 10 90 9\nrefuse 7 0 0 10 12 0 10 90 9\n";
        let usage = Journal::parse(text).unwrap().usage(0, Bytes::ZERO).unwrap();
        assert_eq!(usage.refused.len(), 3);
        assert_eq!(usage.refused[0].moment.calls, 3);
        assert_eq!((usage.made_good, usage.given_up), (1, 0));
    }

    /// A program that frees memory and asks for less, and one that ends after the refusal.
    #[test]
    fn what_is_refused_and_not_asked_for_again_is_given_up() {
        for text in [
            "refuse 7 0 0 1 5 0 10 90 5\nfree 7 0 0 2 5 0 20 70 5\nallocate 7 0 0 3 5 0 5 75 5\n",
            "allocate 7 0 0 1 5 0 90 90 5\nrefuse 7 0 0 2 5 0 20 90 5\n",
        ] {
            let usage = Journal::parse(text).unwrap().usage(0, Bytes::ZERO).unwrap();
            assert_eq!((usage.made_good, usage.given_up), (0, 1), "{text}");
            assert!(usage.refused.is_empty());
        }
    }
}
