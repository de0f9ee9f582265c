//! What happened, line by line, so that a process which is killed leaves everything until then.
//!
//! A line is `EVENT process thread card calls launches milliseconds bytes used`: numbers separated
//! by spaces. `calls` and `launches` count those of the process until then, `milliseconds` are since the
//! driver was loaded, `used` is what the process has of the card afterwards. Events: `context` (the
//! process uses a card), `allocate`, `free`, `refuse`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What a line is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The process uses a card.
    Context,
    /// The process was given memory.
    Allocate,
    /// The process gave memory back.
    Free,
    /// There was no room for what the process asked for.
    Refuse,
}

/// The file, and what is counted without a line.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Option<Mutex<File>>,
    started: Instant,
    calls: AtomicU64,
    launches: AtomicU64,
}

impl Journal {
    /// Appends to `path`; writes nothing if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn open(path: Option<&Path>) -> std::io::Result<Self> {
        let file = path.map(|path| OpenOptions::new().append(true).create(true).open(path));
        Ok(Self {
            file: file.transpose()?.map(Mutex::new),
            started: Instant::now(),
            calls: AtomicU64::new(0),
            launches: AtomicU64::new(0),
        })
    }

    /// A function of the driver was called.
    pub fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// A kernel was launched.
    pub fn launched(&self) {
        self.launches.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a line: `event` with `bytes` on `card`, of which the process now has `used`.
    pub fn write(&self, event: Event, card: usize, bytes: u64, used: u64) {
        let Some(file) = &self.file else {
            return;
        };
        let name = match event {
            Event::Context => "context",
            Event::Allocate => "allocate",
            Event::Free => "free",
            Event::Refuse => "refuse",
        };
        let line = format!(
            "{name} {} {} {card} {} {} {} {bytes} {used}\n",
            std::process::id(),
            thread_number(),
            self.calls.load(Ordering::Relaxed),
            self.launches.load(Ordering::Relaxed),
            self.started.elapsed().as_millis(),
        );
        if let Ok(mut file) = file.lock() {
            // A full disk costs the journal its end, and not the program its run.
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// Numbers the threads that called, in the order in which they first did.
fn thread_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
