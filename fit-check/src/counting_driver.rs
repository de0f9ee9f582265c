//! CUDA's runtime without a GPU: a process that this program starts loads the counting driver
//! (`estimator/counting-driver`), which counts memory, refuses allocations beyond a limit and runs nothing.
//!
//! This program contains the driver and writes it into a temporary folder, in which only that one process
//! looks.

mod journal;
mod program;
mod report;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};
use estimator::{Bytes, DeviceSpec, Refusals};
use tempfile::TempDir;

pub use self::journal::{CallPosition, Journal, JournalSpan, Refusal, Usage};
pub use self::program::{Ended, ProgramOutput, ended, run};
pub use self::report::{CardUsage, ProgramMemoryReport};
use crate::interrupt;
use crate::user_error::UserError;

/// The driver: `estimator/counting-driver`, compiled by `build.rs`.
#[cfg(counting_driver)]
const LIBRARY: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/libcuda.so.1")));
#[cfg(not(counting_driver))]
const LIBRARY: Option<&[u8]> = None;

/// Stands in for libdevice, CUDA's library of mathematical functions, which the compiler links into kernels:
/// the same names, without what they compute.
const LIBDEVICE: &[u8] =
    include_bytes!("../../estimator/counting-driver/libdevice/libdevice.10.bc");

/// The folders in which CubeCL looks for a CUDA toolkit if `CUDA_PATH` names none: `CUDA_ROOTS` of
/// `cubecl-llvm` 0.11.3, `src/nvptx/libdevice.rs`.
const CUDA_ROOTS: [&str; 4] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"];

/// The folder of libdevice in a toolkit.
const LIBDEVICE_FOLDER: &str = "nvvm/libdevice";

/// The variable with the folders in which the system's loader looks first.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The variable that names the database in which CubeCL keeps what it measured: `cubecl-runtime` 0.11.3,
/// `src/config/base.rs`.
const ENVIRONMENT: &str = "CUBECL_ENVIRONMENT";

/// The variable that names the driver's configuration: `config::VARIABLE` of the driver.
const VARIABLE: &str = "FIT_CHECK_COUNTING_DRIVER";

/// The variable with which CUDA hides GPUs from a process: "CUDA environment variables" in CUDA's programming guide.
const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// The begin of the line with the path of the journal.
const JOURNAL_KEY: &str = "journal ";

/// The begin of the line with the path of a file: the bytes that every card has room for beyond its memory.
const EXTRA_ROOM_KEY: &str = "extra-room ";

/// The memory of a card without a limit. A quarter of it, CubeCL's largest page, is more than any step asks
/// for.
pub const UNLIMITED: Bytes = Bytes(1 << 50);

/// How a counting driver behaves besides its cards. The default is how a GPU's driver behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// How long each launch blocks the thread that makes it.
    pub launch_delay: Duration,
    /// Allocations that the driver refuses although the card has room.
    pub refusals: Option<Refusals>,
}

/// A counting driver in a folder of its own, for the processes that load it.
#[derive(Debug)]
pub struct CountingDriver {
    folder: TempDir,
    cards: Vec<DeviceSpec>,
}

impl CountingDriver {
    /// A driver for cards like `cards`.
    ///
    /// # Errors
    ///
    /// The system is not Linux, or the folder cannot be written.
    pub fn new(cards: &[DeviceSpec], conditions: Conditions) -> anyhow::Result<Self> {
        let Some(library) = LIBRARY else {
            return Err(
                UserError::new("CUDA's runtime can be run without a GPU only on Linux")
                    .hint("`fit-check max-batch` and `estimate` answer on every system")
                    .into(),
            );
        };
        let folder = tempfile::Builder::new()
            .prefix("fit-check-")
            .tempdir()
            .map_err(|error| unwritable(&std::env::temp_dir(), &error))?;
        #[cfg(target_os = "linux")]
        check_libraries_load_from(folder.path())?;
        let driver = Self {
            folder,
            cards: cards.to_vec(),
        };
        let path = driver.folder.path().to_path_buf();
        let environment = driver.environment();
        interrupt::at_end(move || {
            // Gone already, if the program no longer needs it.
            let _ = std::fs::remove_dir_all(path);
            remove_environment(&environment);
            None
        });
        let written = driver.write(library, conditions);
        written.map_err(|error| unwritable(driver.folder.path(), &error))?;
        Ok(driver)
    }

    /// Writes the files of the driver.
    fn write(&self, library: &[u8], conditions: Conditions) -> std::io::Result<()> {
        // CubeCL looks for the first name before the second.
        for name in ["libcuda.so", "libcuda.so.1"] {
            std::fs::write(self.path(name), library)?;
        }
        let toolkit = self.path(LIBDEVICE_FOLDER);
        std::fs::create_dir_all(&toolkit)?;
        std::fs::write(toolkit.join("libdevice.10.bc"), LIBDEVICE)?;
        self.set_conditions(conditions)
    }

    /// Sets how the driver behaves in the processes that load it from now on.
    ///
    /// # Errors
    ///
    /// The folder cannot be written.
    pub fn set_conditions(&self, conditions: Conditions) -> std::io::Result<()> {
        std::fs::write(self.path("config"), self.config(conditions))
    }

    /// The folder of the driver, into which the processes that load it write.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The cards, in the format that the driver's `config.rs` reads.
    fn config(&self, conditions: Conditions) -> String {
        let mut text = format!(
            "{JOURNAL_KEY}{}\n{EXTRA_ROOM_KEY}{}\nlaunch-delay-us {}\n",
            self.path("journal").display(),
            self.path("extra-room").display(),
            conditions.launch_delay.as_micros()
        );
        if let Some(refusals) = conditions.refusals {
            let _ = writeln!(
                text,
                "first-refused {}\nrefused {}",
                refusals.first, refusals.count
            );
        }
        for device in &self.cards {
            let card = &device.card;
            let total = card.total.unwrap_or(UNLIMITED);
            let _ = write!(
                text,
                "card NVIDIA {}\ncompute-capability {}\nmultiprocessors {}\n\
                 shared-memory-per-block {}\ntotal-bytes {}\noverhead-bytes {}\n",
                card.name,
                card.compute_capability,
                card.multiprocessors,
                device.shared_memory_per_block(),
                total.0,
                card.overhead.0
            );
        }
        text
    }

    /// Makes the process that `command` starts load this driver.
    pub fn apply(&self, command: &mut Command) {
        let mut folders = vec![self.folder.path().to_path_buf()];
        if let Some(usual) = std::env::var_os(LIBRARY_PATH) {
            folders.extend(std::env::split_paths(&usual));
        }
        // A folder with a colon in its name cannot be in the list; a temporary folder has none.
        if let Ok(folders) = std::env::join_paths(folders) {
            command.env(LIBRARY_PATH, folders);
        }
        command.env(VARIABLE, self.path("config"));
        // It chooses among the machine's GPUs, and the process is to find the cards that were named.
        command.env_remove(VISIBLE_DEVICES);
        if std::env::var_os(ENVIRONMENT).is_none() {
            command.env(ENVIRONMENT, self.environment());
        }
        if !has_libdevice() {
            command.env("CUDA_PATH", self.folder.path());
        }
    }

    /// The name of a database of CubeCL for the processes on this driver alone, whose clock says nothing about a
    /// GPU.
    fn environment(&self) -> String {
        let folder = self.folder.path().file_name().unwrap_or_default();
        folder.to_string_lossy().into_owned()
    }

    /// The memory of the card with this index that a process may take; none if there is no limit.
    pub fn free(&self, card: usize) -> Option<Bytes> {
        self.cards.get(card)?.available()
    }

    /// Forgets earlier processes: begins a new journal.
    ///
    /// # Errors
    ///
    /// What they left cannot be removed.
    pub fn forget(&self) -> anyhow::Result<()> {
        for left in ["journal", "extra-room"] {
            match std::fs::remove_file(self.path(left)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The events on its cards until now.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn journal(&self) -> anyhow::Result<Journal> {
        Journal::read(&self.path("journal"))
    }
}

impl Drop for CountingDriver {
    fn drop(&mut self) {
        remove_environment(&self.environment());
    }
}

/// The error if the driver cannot be written into `folder`, which is missing or full, or belongs to another user.
fn unwritable(folder: &Path, error: &std::io::Error) -> UserError {
    UserError::new(format!(
        "the counting CUDA driver cannot be written into {}: {error}",
        folder.display()
    ))
    .hint("TMPDIR names another folder for temporary files; the driver takes some MB")
}

/// Checks that a process may load a library from `folder`.
#[cfg(target_os = "linux")]
fn check_libraries_load_from(folder: &Path) -> Result<(), UserError> {
    use nix::sys::statvfs::{FsFlags, statvfs};
    let flags = statvfs(folder).map_or(FsFlags::empty(), |system| system.flags());
    if !flags.contains(FsFlags::ST_NOEXEC) {
        return Ok(());
    }
    Err(UserError::new(format!(
        "no program can load the counting CUDA driver from {}, which is mounted with `noexec`",
        folder.display()
    ))
    .hint("TMPDIR names another folder for temporary files"))
}

/// Removes the database `name`, if a process has made one where CubeCL keeps databases.
fn remove_environment(name: &str) {
    let root = CubeClRuntimeConfig::from_current_dir()
        .environment
        .path
        .root();
    let Ok(files) = std::fs::read_dir(root) else {
        return;
    };
    for file in files.flatten() {
        if file.file_name().to_string_lossy().starts_with(name) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// Whether this process is on the counting driver.
pub fn is_loaded() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// In a process on the counting driver: the length of the driver's journal in bytes.
pub fn journal_length() -> Option<u64> {
    let journal = configured(JOURNAL_KEY)?;
    Some(std::fs::metadata(journal).map_or(0, |journal| journal.len()))
}

/// In a process on the counting driver: its cards are never full until this is dropped. What the process holds
/// then counts no more.
#[derive(Debug)]
pub struct LiftedLimit {
    /// The file with the bytes that every card has room for beyond its memory.
    extra_room: PathBuf,
    journal: PathBuf,
    card: usize,
}

impl LiftedLimit {
    /// Lifts the limit of the process's only card, the one with this index; none if the process is on another
    /// driver.
    pub fn new(card: usize) -> Option<Self> {
        let lifted = Self {
            extra_room: configured(EXTRA_ROOM_KEY)?,
            journal: configured(JOURNAL_KEY)?,
            card,
        };
        lifted.write(Bytes(u64::MAX));
        Some(lifted)
    }

    fn write(&self, extra: Bytes) {
        // A card that stays full refuses memory, which is reported.
        let _ = std::fs::write(&self.extra_room, extra.0.to_string());
    }
}

impl Drop for LiftedLimit {
    fn drop(&mut self) {
        let journal = Journal::read(&self.journal).unwrap_or_default();
        let held = journal
            .usage(self.card, Bytes::ZERO)
            .map(|usage| usage.end_bytes);
        self.write(held.unwrap_or_default());
    }
}

/// The path in the line of this process's configuration that begins with `key`.
fn configured(key: &str) -> Option<PathBuf> {
    let config = std::fs::read_to_string(std::env::var_os(VARIABLE)?).ok()?;
    let path = config.lines().find_map(|line| line.strip_prefix(key))?;
    Some(path.into())
}

/// Whether CubeCL finds a libdevice of a CUDA toolkit.
fn has_libdevice() -> bool {
    let found = |root: PathBuf| {
        root.join(LIBDEVICE_FOLDER)
            .join("libdevice.10.bc")
            .is_file()
    };
    match std::env::var_os("CUDA_PATH") {
        Some(root) => found(root.into()),
        None => CUDA_ROOTS.into_iter().any(|root| found(root.into())),
    }
}
