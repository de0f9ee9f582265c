//! The configuration: a text file of `key value` lines that describes the cards, so that no parser has to be
//! linked.
//!
//! ```text
//! journal /tmp/run/journal
//! extra-room /tmp/run/extra-room
//! card NVIDIA GeForce RTX 3090
//! compute-capability 86
//! multiprocessors 82
//! shared-memory-per-block 101376
//! total-bytes 25296896000
//! overhead-bytes 515899392
//! ```
//!
//! Each `card` line begins another card. Unknown keys are errors: the program that carries this driver writes
//! the file, and both have the same version.

use std::path::PathBuf;
use std::time::Duration;

/// The environment variable that names the file.
pub(crate) const VARIABLE: &str = "FIT_CHECK_COUNTING_DRIVER";

/// The content of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    /// The path of the journal; without one, the driver writes no journal.
    pub journal: Option<PathBuf>,
    /// A file with a number of bytes, which every card has room for beyond its memory; none if there is no file.
    /// It is read again whenever a card is full, and for each request if some are refused although there is room.
    /// The number `u64::MAX` lifts the limit: nothing is refused then.
    pub extra_room: Option<PathBuf>,
    /// How long each launch blocks the thread that makes it. Zero, except in experiments on how far a program
    /// runs ahead of that thread.
    pub launch_delay: Duration,
    /// The number of the first allocation that the driver refuses although the card has room, counted from 1
    /// over all cards; 0 if there is none.
    pub first_refused: u64,
    /// How many allocations it refuses from that one on.
    pub refused: u64,
    /// The cards, in the order of their indices.
    pub cards: Vec<CardConfig>,
}

/// One card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CardConfig {
    /// The name that the driver reports.
    pub name: String,
    /// Compute capability times ten.
    pub compute_capability: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of shared memory that a block may opt in to.
    pub shared_memory_per_block: u32,
    /// Bytes of memory.
    pub total_bytes: u64,
    /// Bytes of it that others occupy: contexts, other processes, a display.
    pub overhead_bytes: u64,
}

impl Config {
    /// Reads the configuration from the file that the environment variable names.
    ///
    /// # Errors
    ///
    /// The variable names no file, or the file cannot be read or parsed.
    pub fn from_environment() -> Result<Self, String> {
        let path = std::env::var_os(VARIABLE).ok_or(format!("{VARIABLE} names no file"))?;
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    /// Parses the text of the file.
    ///
    /// # Errors
    ///
    /// A line has an unknown key or a wrong value, or the text describes no card.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut config = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let wrong =
                || format!("`{line}` is not a valid line of a counting driver's configuration");
            let (key, value) = line.split_once(' ').ok_or_else(wrong)?;
            let number = || value.parse::<u64>().map_err(|_| wrong());
            let small = || value.parse::<u32>().map_err(|_| wrong());
            match key {
                "journal" => config.journal = Some(value.into()),
                "extra-room" => config.extra_room = Some(value.into()),
                "launch-delay-us" => config.launch_delay = Duration::from_micros(number()?),
                "first-refused" => config.first_refused = number()?,
                "refused" => config.refused = number()?,
                "card" => config.cards.push(CardConfig {
                    name: value.into(),
                    ..CardConfig::default()
                }),
                _ => {
                    let card = config.cards.last_mut().ok_or_else(wrong)?;
                    match key {
                        "compute-capability" => card.compute_capability = small()?,
                        "multiprocessors" => card.multiprocessors = small()?,
                        "shared-memory-per-block" => card.shared_memory_per_block = small()?,
                        "total-bytes" => card.total_bytes = number()?,
                        "overhead-bytes" => card.overhead_bytes = number()?,
                        _ => return Err(wrong()),
                    }
                }
            }
        }
        match config.cards.is_empty() {
            true => Err("no card is configured".into()),
            false => Ok(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cards_are_read() {
        let text = "journal /tmp/a b\nextra-room /tmp/c\nlaunch-delay-us 5\nfirst-refused 7\nrefused 2\n\ncard One 1\ncompute-capability 86\n\
                    multiprocessors 82\nshared-memory-per-block 101376\ntotal-bytes 100\n\
                    overhead-bytes 10\ncard Two\ntotal-bytes 200\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.journal, Some("/tmp/a b".into()));
        assert_eq!(config.extra_room, Some("/tmp/c".into()));
        assert_eq!(config.launch_delay, Duration::from_micros(5));
        assert_eq!((config.first_refused, config.refused), (7, 2));
        assert_eq!(config.cards.len(), 2);
        assert_eq!(config.cards[0].name, "One 1");
        assert_eq!(config.cards[0].overhead_bytes, 10);
        assert_eq!(config.cards[1].total_bytes, 200);
    }

    #[test]
    fn a_line_that_says_nothing_is_refused() {
        for text in [
            "",
            "card",
            "total-bytes 5",
            "card a\ntotal-bytes many",
            "card a\nsize 5",
        ] {
            assert!(Config::parse(text).is_err(), "{text}");
        }
    }
}
