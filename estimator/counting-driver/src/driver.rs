//! The driver as a whole: its cards, its journal, and the card that each thread has chosen.

use std::cell::Cell;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::card::{CardMemory, OutOfMemory};
use crate::config::{CardConfig, Config};
use crate::journal::{Event, Journal};
use crate::kernel::Kernel;

/// A simulated card.
#[derive(Debug)]
pub(crate) struct Card {
    /// The description of the card.
    pub config: CardConfig,
    memory: Mutex<CardMemory>,
    /// Whether the process uses the card.
    in_use: AtomicBool,
}

/// The cards and the journal of this process.
#[derive(Debug)]
pub(crate) struct Driver {
    /// The cards, in the order of their indices.
    pub cards: Vec<Card>,
    /// The journal of what happens on the cards.
    pub journal: Journal,
    launch_delay: Duration,
    /// The file with the bytes that a card has room for beyond its memory.
    extra_room: Option<PathBuf>,
    /// The allocations that are refused although there is room, by their numbers.
    refused: Range<u64>,
    /// Allocations that were requested until now, if any is to be refused.
    requests: AtomicU64,
    /// Whether a kernel with which CubeCL probes a card was launched since a thread last waited.
    probed: AtomicBool,
}

/// The driver of this process.
static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();

thread_local! {
    /// The card whose context is current on this thread.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Driver {
    /// The driver of this process, loaded once; `None` if its configuration cannot be read.
    pub fn get() -> Option<&'static Self> {
        DRIVER
            .get_or_init(|| match Self::load() {
                Ok(driver) => Some(driver),
                Err(reason) => {
                    eprintln!("fit-check's counting CUDA driver: {reason}");
                    None
                }
            })
            .as_ref()
    }

    /// The driver of this process, if a function of it was called.
    pub fn loaded() -> Option<&'static Self> {
        DRIVER.get()?.as_ref()
    }

    fn load() -> Result<Self, String> {
        Self::new(Config::from_environment()?)
    }

    /// A driver with the cards of `config`.
    ///
    /// # Errors
    ///
    /// The journal cannot be written.
    pub fn new(config: Config) -> Result<Self, String> {
        let journal =
            Journal::open(config.journal.as_deref()).map_err(|error| error.to_string())?;
        let cards = config.cards.into_iter().enumerate();
        Ok(Self {
            cards: cards
                .map(|(index, config)| Card {
                    memory: Mutex::new(CardMemory::new(index, &config)),
                    in_use: AtomicBool::new(false),
                    config,
                })
                .collect(),
            journal,
            launch_delay: config.launch_delay,
            extra_room: config.extra_room,
            refused: config.first_refused..config.first_refused.saturating_add(config.refused),
            requests: AtomicU64::new(0),
            probed: AtomicBool::new(false),
        })
    }

    /// The index of the card that this thread has chosen.
    pub fn current() -> Option<usize> {
        CURRENT.get()
    }

    /// Sets the card of this thread, or none.
    pub fn set_current(card: Option<usize>) {
        CURRENT.set(card);
    }

    /// Notes in the journal that the process begins to use `card`.
    pub fn retain(&self, card: usize) {
        self.cards[card].in_use.store(true, Ordering::Relaxed);
        let used = self.memory(card).used();
        self.journal.write(Event::Context, card, 0, used);
    }

    /// Notes in the journal that the process ends, on each card that it uses, and what it still holds there.
    pub fn exits(&self) {
        self.journal.end();
        for (index, card) in self.cards.iter().enumerate() {
            if card.in_use.load(Ordering::Relaxed) {
                let held = self.memory(index).used();
                self.journal.write(Event::Exit, index, held, 0);
            }
        }
    }

    /// The memory of the card with this index, which is one of [`Self::cards`].
    pub fn memory(&self, card: usize) -> MutexGuard<'_, CardMemory> {
        let memory = &self.cards[card].memory;
        memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `bytes` on `card`.
    ///
    /// # Errors
    ///
    /// The card has no room for them, or the configuration says that this allocation is refused.
    pub fn allocate(&self, card: usize, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut memory = self.memory(card);
        let outcome = match self.refuses() {
            true => Err(OutOfMemory),
            false => memory.allocate(bytes, || self.extra_room()),
        };
        let event = match outcome {
            Ok(_) => Event::Allocate,
            Err(OutOfMemory) => Event::Refuse,
        };
        self.journal.write(event, card, bytes, memory.used());
        outcome
    }

    /// Whether the allocation that is requested now is one of those that are refused although there is room. None
    /// is, and none is counted, while the limit of the card is lifted.
    fn refuses(&self) -> bool {
        if self.refused.is_empty() || self.extra_room() == u64::MAX {
            return false;
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        self.refused.contains(&number)
    }

    /// The bytes that a card has room for beyond its memory; `u64::MAX` if its limit is lifted.
    fn extra_room(&self) -> u64 {
        let bytes = self.extra_room.as_ref();
        let bytes = bytes.and_then(|file| std::fs::read_to_string(file).ok());
        bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    }

    /// Frees the allocation at `address`; returns whether there was one.
    pub fn release(&self, address: u64) -> bool {
        let card = CardMemory::card_of(address).filter(|card| *card < self.cards.len());
        let Some(card) = card else {
            return false;
        };
        let mut memory = self.memory(card);
        let Some(bytes) = memory.release(address) else {
            return false;
        };
        self.journal.write(Event::Free, card, bytes, memory.used());
        true
    }

    /// Counts a launch of `kernel`; returns how long its stream takes for it.
    pub fn launch(&self, kernel: &Kernel) -> Duration {
        self.journal.launched();
        if !self.launch_delay.is_zero() {
            std::thread::sleep(self.launch_delay);
        }
        if kernel.is_probe {
            self.probed.store(true, Ordering::Relaxed);
        }
        kernel.time
    }

    /// Waits for what the thread launched. Nothing runs, so there is nothing to wait for. But CubeCL's probes
    /// of a card's throughput time their kernels by the host's clock, and increase the work until that clock
    /// shows something, so after a probe this sleeps.
    pub fn wait(&self) {
        if self.probed.swap(false, Ordering::Relaxed) {
            std::thread::sleep(crate::launch_time::PROBE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_refused_while_the_limit_is_lifted() {
        let extra_room = std::env::temp_dir().join(format!("fit-check-{}", std::process::id()));
        let text = format!(
            "extra-room {}\nfirst-refused 2\nrefused 9\ncard One\ntotal-bytes 10\n",
            extra_room.display()
        );
        let driver = Driver::new(Config::parse(&text).unwrap()).unwrap();
        let allocate = |room: u64| {
            std::fs::write(&extra_room, room.to_string()).unwrap();
            driver.allocate(0, 1).is_ok()
        };
        // The requests before the last two are not counted, so the last one is the second.
        let outcomes = [u64::MAX, u64::MAX, u64::MAX, 0, 0].map(allocate);
        std::fs::remove_file(&extra_room).unwrap();
        assert_eq!(outcomes, [true, true, true, true, false]);
    }
}
