//! The recorder in the program's own Python: its files, how a process finds them, and the socket to which it writes.
//!
//! The recorder is a package of Python (`recorder/`), which this crate carries. It is written into a private temporary
//! folder that stands first in `PYTHONPATH`; `sitecustomize.py` there is the first file that Python runs.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use serde::Serialize;
use tempfile::TempDir;

use crate::allocator::AllocatorConfig;
use crate::stream::{self, Recording, StreamError};

/// The files of the recorder: path and text.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/recorder_files.rs"));

/// The variable with the recorder's settings.
const VARIABLE: &str = "FIT_CHECK_RECORDER";

/// The variable with the folders in which Python looks for modules first.
const PYTHON_PATH: &str = "PYTHONPATH";

/// The card that the program finds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Card {
    /// Its product name.
    pub name: String,
    /// Its compute capability: `[8, 6]`.
    pub capability: [u32; 2],
    /// Its memory, as `torch.cuda.get_device_properties` says.
    pub total_bytes: u64,
    /// Its streaming multiprocessors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiprocessors: Option<u32>,
}

/// What the recorder has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// The card.
    pub device: Card,
    /// How many of them the program finds.
    pub devices: u32,
    /// After how many optimizer steps it ends; none: as soon as two steps make the same calls.
    pub steps: Option<usize>,
    /// The configuration of the allocator, as PyTorch's variable has it.
    pub allocator_conf: String,
    /// Whether the program runs on a real GPU, where PyTorch's own counters are read and nothing is recorded.
    pub measure: bool,
}

/// The recorder for one run of a program.
#[derive(Debug)]
pub struct Recorder {
    folder: Arc<TempDir>,
    socket: PathBuf,
    settings: String,
    connections: Arc<Connections>,
    accepting: Option<JoinHandle<()>>,
}

/// A process's socket, and the thread that reads its recording.
type Connection = (UnixStream, JoinHandle<Result<Recording, StreamError>>);

#[derive(Debug, Default)]
struct Connections {
    done: AtomicBool,
    open: Mutex<Vec<Connection>>,
    /// How many processes one training has, as those that have ended say.
    world_size: Arc<AtomicU32>,
}

impl Recorder {
    /// Writes the recorder's files and waits for its streams.
    ///
    /// # Errors
    ///
    /// The temporary folder cannot be written.
    pub fn new(settings: &Settings) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("fit-check-").tempdir()?;
        for (name, text) in FILES {
            let path = folder.path().join(name);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(path, text)?;
        }
        Self::listen(Arc::new(folder), settings)
    }

    /// The recorder for another run, of a process that has the files of this one.
    ///
    /// # Errors
    ///
    /// The temporary folder cannot be written.
    pub fn another(&self, settings: &Settings) -> io::Result<Self> {
        Self::listen(self.folder.clone(), settings)
    }

    /// Waits for the streams of processes with these settings.
    fn listen(folder: Arc<TempDir>, settings: &Settings) -> io::Result<Self> {
        static SOCKETS: AtomicU32 = AtomicU32::new(0);
        let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
        let socket = folder.path().join(format!("socket-{number}"));
        let listener = UnixListener::bind(&socket)?;
        #[derive(Serialize)]
        struct WithSocket<'a> {
            socket: &'a Path,
            #[serde(flatten)]
            settings: &'a Settings,
        }
        let settings = serde_json::to_string(&WithSocket {
            socket: &socket,
            settings,
        })?;
        let connections = Arc::new(Connections::default());
        let accepting = thread::spawn({
            let connections = connections.clone();
            move || connections.accept(&listener)
        });
        Ok(Self {
            folder,
            socket,
            settings,
            connections,
            accepting: Some(accepting),
        })
    }

    /// The settings, and where the lines go, as the recorder reads them.
    pub fn settings(&self) -> &str {
        &self.settings
    }

    /// The folder of the recorder's files, which is removed when this is dropped, and every other one for it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the Python that `command` starts, or that its processes start, find the recorder.
    pub fn apply(&self, command: &mut Command) {
        let mut folders = OsString::from(self.folder.path());
        // An empty value would be the current folder.
        if let Some(usual) = std::env::var_os(PYTHON_PATH).filter(|usual| !usual.is_empty()) {
            folders.push(":");
            folders.push(usual);
        }
        command
            .env(PYTHON_PATH, folders)
            .env(VARIABLE, &self.settings);
    }

    /// Whether a process uses PyTorch's CUDA.
    pub fn is_used(&self) -> bool {
        !self.connections.lock().is_empty()
    }

    /// Whether every process that used PyTorch's CUDA has ended, or its stream. One process of a training can come to its end
    /// before another one comes to its first use, which is waited for.
    pub fn has_ended(&self) -> bool {
        let open = self.connections.lock();
        let ended = !open.is_empty() && open.iter().all(|(_, reader)| reader.is_finished());
        ended && open.len() >= self.connections.world_size.load(Ordering::SeqCst) as usize
    }

    /// What the processes sent, by rank. The processes should have ended: what one of them sends later is lost.
    ///
    /// # Errors
    ///
    /// A stream is not understood.
    pub fn finish(mut self) -> Result<Vec<Recording>, StreamError> {
        self.stop();
        let mut recordings = Vec::new();
        for (_, reader) in std::mem::take(&mut *self.connections.lock()) {
            let recording = reader
                .join()
                .map_err(|_| io::Error::other("its reader failed"))??;
            // The connection that woke the thread above says nothing.
            if recording.process.version > 0 {
                recordings.push(recording);
            }
        }
        recordings.sort_by_key(|recording| (recording.process.rank, recording.process.pid));
        Ok(recordings)
    }

    /// Accepts and reads no more.
    fn stop(&mut self) {
        let Some(accepting) = self.accepting.take() else {
            return;
        };
        self.connections.done.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for a connection.
        let _ = UnixStream::connect(&self.socket);
        let _ = accepting.join();
        for (stream, reader) in self.connections.lock().iter() {
            if !reader.is_finished() {
                let _ = stream.shutdown(Shutdown::Read);
            }
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Connections {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads each connection on a thread of its own. Processes that have ended may still wait to be accepted when nobody waits any
    /// more, so what is there then is accepted too.
    fn accept(&self, listener: &UnixListener) {
        while let Ok((stream, _)) = listener.accept() {
            let last = self.done.load(Ordering::Relaxed);
            if last && listener.set_nonblocking(true).is_err() {
                return;
            }
            // Without a second handle the reader could not be stopped.
            let Ok(lines) = stream.try_clone() else {
                continue;
            };
            let lines = BufReader::with_capacity(1 << 16, lines);
            let world_size = self.world_size.clone();
            let reader = thread::spawn(move || {
                let recording = stream::read(lines);
                if let Ok(recording) = &recording {
                    world_size.fetch_max(recording.process.world_size, Ordering::SeqCst);
                }
                recording
            });
            self.lock().push((stream, reader));
        }
    }
}

/// The configuration of the allocator that a program started from here has: the text of the variable that PyTorch
/// reads.
pub fn allocator_variable() -> Option<String> {
    let mut variables = AllocatorConfig::VARIABLES.into_iter();
    variables.find_map(|variable| std::env::var(variable).ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn settings() -> Settings {
        Settings {
            device: Card {
                name: "A card".into(),
                capability: [8, 6],
                total_bytes: 24 << 30,
                multiprocessors: None,
            },
            devices: 1,
            steps: None,
            allocator_conf: String::new(),
            measure: false,
        }
    }

    /// As a process of Python does: it reads its settings from the environment, and connects.
    fn connect(recorder: &Recorder) -> UnixStream {
        let mut command = Command::new("true");
        recorder.apply(&mut command);
        let variable = |name: &str| {
            let mut set = command.get_envs();
            let (_, value) = set.find(|(key, _)| *key == name).unwrap();
            value.unwrap().to_str().unwrap().to_string()
        };
        assert!(variable(PYTHON_PATH).starts_with(recorder.folder().to_str().unwrap()));
        let settings: serde_json::Value = serde_json::from_str(&variable(VARIABLE)).unwrap();
        assert_eq!(settings["device"]["capability"], serde_json::json!([8, 6]));
        UnixStream::connect(settings["socket"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn each_process_is_a_recording() {
        let recorder = Recorder::new(&settings()).unwrap();
        let folder = recorder.folder().to_path_buf();
        assert!(folder.join("sitecustomize.py").is_file());
        assert!(folder.join("fit_check_recorder/__init__.py").is_file());
        assert!(!recorder.is_used());
        for rank in [1, 0] {
            let mut process = connect(&recorder);
            writeln!(process, "[\"hello\", {{\"version\": 1, \"rank\": {rank}}}]").unwrap();
            writeln!(process, "[\"bye\", {{\"reason\": \"exit\", \"steps\": 0}}]").unwrap();
        }
        while !(recorder.has_ended() && recorder.connections.lock().len() == 2) {
            thread::yield_now();
        }
        let recordings = recorder.finish().unwrap();
        let ranks: Vec<_> = recordings
            .iter()
            .map(|recording| recording.process.rank)
            .collect();
        assert_eq!(ranks, [0, 1]);
        assert!(!folder.exists());
    }

    #[test]
    fn another_run_has_a_socket_of_its_own() {
        let recorder = Recorder::new(&settings()).unwrap();
        let other = recorder.another(&settings()).unwrap();
        assert_eq!(recorder.folder(), other.folder());
        let mut process = connect(&other);
        writeln!(process, "[\"hello\", {{\"version\": 1}}]").unwrap();
        drop(process);
        assert_eq!(other.finish().unwrap().len(), 1);
        assert!(recorder.folder().exists());
        assert!(recorder.finish().unwrap().is_empty());
    }

    #[test]
    fn a_process_that_comes_late_is_waited_for() {
        let recorder = Recorder::new(&settings()).unwrap();
        let record = |rank: u32| {
            let mut process = connect(&recorder);
            writeln!(
                process,
                "[\"hello\", {{\"version\": 1, \"rank\": {rank}, \"world_size\": 2}}]"
            )
            .unwrap();
        };
        let ended = |count: usize| {
            let open = recorder.connections.lock();
            open.len() == count && open.iter().all(|(_, reader)| reader.is_finished())
        };
        record(0);
        while !ended(1) {
            thread::yield_now();
        }
        assert!(!recorder.has_ended());
        record(1);
        while !ended(2) {
            thread::yield_now();
        }
        assert!(recorder.has_ended());
    }

    #[test]
    fn a_process_that_has_ended_is_heard_all_the_same() {
        for _ in 0..50 {
            let recorder = Recorder::new(&settings()).unwrap();
            let mut process = connect(&recorder);
            writeln!(process, "[\"hello\", {{\"version\": 1}}]").unwrap();
            drop(process);
            assert_eq!(recorder.finish().unwrap().len(), 1);
        }
    }

    #[test]
    fn a_process_that_stays_does_not_hold_up_the_answer() {
        let recorder = Recorder::new(&settings()).unwrap();
        let mut process = connect(&recorder);
        writeln!(process, "[\"hello\", {{\"version\": 1}}]").unwrap();
        while !recorder.is_used() {
            thread::yield_now();
        }
        let recordings = recorder.finish().unwrap();
        assert_eq!(recordings[0].ended, None);
        drop(process);
    }
}
