//! The journal of what happened, line by line, so that a process that is killed leaves everything up to then.
//!
//! A line is `EVENT process thread card calls launches milliseconds bytes used launched`, with numbers separated by
//! spaces. `calls` and `launches` are the counts of the process up to then, `milliseconds` the time since the
//! driver was loaded, `used` the bytes that the process has on the card afterwards, `launched` the launches that the
//! thread made. Events: `context` (the process uses a card), `allocate`, `free`, `refuse`, `exit` (the process ends;
//! it did not free `bytes`).

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The event of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The process uses a card.
    Context,
    /// The process allocated memory.
    Allocate,
    /// The process freed memory.
    Free,
    /// The card had no room for an allocation of the process.
    Refuse,
    /// A process that used the card ended.
    Exit,
}

/// The file, and the counts that get no line of their own.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Option<Mutex<File>>,
    started: Instant,
    calls: AtomicU64,
    launches: AtomicU64,
    /// Whether the process ends. Other threads may still free memory then.
    ends: AtomicBool,
}

impl Journal {
    /// Opens the journal at `path` for appending; without a path, the journal writes nothing.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn open(path: Option<&Path>) -> std::io::Result<Self> {
        let file = path.map(|path| OpenOptions::new().append(true).create(true).open(path));
        Ok(Self {
            file: file.transpose()?.map(Mutex::new),
            started: Instant::now(),
            calls: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        })
    }

    /// Counts a call of a driver function.
    pub fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the launch of a kernel.
    pub fn launched(&self) {
        self.launches.fetch_add(1, Ordering::Relaxed);
        LAUNCHED.set(LAUNCHED.get() + 1);
    }

    /// From now on the journal only takes lines about the end of the process.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Writes a line: `event` with `bytes` on `card`, on which the process now has `used` bytes.
    pub fn write(&self, event: Event, card: usize, bytes: u64, used: u64) {
        let Some(file) = &self.file else {
            return;
        };
        let name = match event {
            Event::Context => "context",
            Event::Allocate => "allocate",
            Event::Free => "free",
            Event::Refuse => "refuse",
            Event::Exit => "exit",
        };
        let line = format!(
            "{name} {} {} {card} {} {} {} {bytes} {used} {}\n",
            std::process::id(),
            thread_number(),
            self.calls.load(Ordering::Relaxed),
            self.launches.load(Ordering::Relaxed),
            self.started.elapsed().as_millis(),
            LAUNCHED.get(),
        );
        let Ok(mut file) = file.lock() else {
            return;
        };
        if self.ends.load(Ordering::Relaxed) && !matches!(event, Event::Exit) {
            return;
        }
        if let Err(error) = file.write_all(line.as_bytes()) {
            // A journal without its end would hide refusals.
            eprintln!("fit-check's counting CUDA driver cannot write its journal: {error}");
            std::process::abort();
        }
    }
}

thread_local! {
    /// The launches of this thread.
    static LAUNCHED: Cell<u64> = const { Cell::new(0) };
}

/// The number of this thread, in the order of the threads' first calls.
fn thread_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
