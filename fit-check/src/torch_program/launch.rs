//! Starts a program with the recorder in its Python, and with the counting driver where Python is not what starts; or on the
//! GPU of this machine, with what measures it.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use torch_memory::recorder::{self, Recorder, Settings};
use torch_memory::stream::Recording;

use crate::counting_driver::{self, Conditions, CountingDriver, Ended, Journal, ProgramOutput};
use crate::local_gpu::LocalGpu;
use crate::resolve::Card;
use crate::user_error::UserError;
use crate::user_program::Writes;

/// The variable with the GPUs that a process finds.
pub const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// A program to start.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// The cards that it finds, in the order of their indices.
    pub cards: &'a [Card],
    /// The GPU on which it really runs; none: it is recorded.
    pub real: Option<&'a LocalGpu>,
    /// After how many optimizer steps the recorder ends it; none: as soon as two make the same calls.
    pub steps: Option<usize>,
    /// Whether it may change the user's files.
    pub allow_writes: bool,
    /// How long it may run.
    pub timeout: Duration,
}

/// What a program did.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub ended: Ended,
    /// What its processes did with PyTorch's CUDA, by rank.
    pub recordings: Vec<Recording>,
    /// What its processes did with the CUDA driver.
    pub journal: Option<Journal>,
}

impl Launch<'_> {
    /// Runs the program until it ends or the recorder has seen enough. Its output goes to `output`.
    ///
    /// # Errors
    ///
    /// It cannot be started, or what the recorder sent is not understood.
    pub fn run(&self, output: ProgramOutput) -> anyhow::Result<Ran> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| UserError::new("there is no program to run"))?;
        let program = Path::new(program);
        // PyTorch is not to see the counting driver.
        let driver = match is_python(program) || self.real.is_some() {
            true => None,
            false => {
                let cards: Vec<_> = self.cards.iter().map(|card| card.device.clone()).collect();
                Some(CountingDriver::new(&cards, Conditions::default())?)
            }
        };
        let settings = Settings {
            // A program that makes none goes on to its end.
            steps: self.steps.filter(|steps| *steps > 0),
            measure: self.real.is_some(),
            ..settings(self.cards)
        };
        let recorder = Recorder::new(&settings).map_err(|error| unwritable(&error))?;
        let folder = recorder.folder().to_path_buf();
        crate::interrupt::at_end(move || {
            // Gone already, if the program no longer needs it.
            let _ = std::fs::remove_dir_all(folder);
            None
        });
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some(driver) = &driver {
            driver.apply(&mut command);
        }
        recorder.apply(&mut command);
        if let Some(gpu) = self.real {
            command.env(VISIBLE_DEVICES, &gpu.uuid);
        }
        let mut kept = vec![recorder.folder()];
        kept.extend(driver.as_ref().map(CountingDriver::folder));
        let writes = match self.allow_writes {
            true => Writes::Allowed,
            false => Writes::Only(&kept),
        };
        let ended = counting_driver::run(
            command,
            writes,
            || recorder.has_ended(),
            output,
            self.timeout,
        )?;
        Ok(Ran {
            ended,
            recordings: recorder.finish().map_err(|error| not_understood(&error))?,
            journal: driver.map(|driver| driver.journal()).transpose()?,
        })
    }
}

/// What the recorder is told for a program that finds `cards`, of which there is one at least.
pub(super) fn settings(cards: &[Card]) -> Settings {
    // Programs that see several cards see several like the first: PyTorch's kernels are chosen by it.
    let spec = &cards[0].device.card;
    Settings {
        device: recorder::Card {
            name: format!("NVIDIA {}", spec.name),
            capability: [spec.compute_capability / 10, spec.compute_capability % 10],
            total_bytes: spec.total.unwrap_or(counting_driver::UNLIMITED).0,
            multiprocessors: Some(spec.multiprocessors),
        },
        devices: cards.len() as u32,
        steps: None,
        allocator_conf: recorder::allocator_variable().unwrap_or_default(),
        measure: false,
    }
}

pub(super) fn unwritable(error: &std::io::Error) -> UserError {
    let folder = std::env::temp_dir();
    UserError::new(format!(
        "the recorder for PyTorch cannot be written into {}: {error}",
        folder.display()
    ))
    .hint("TMPDIR names another folder for temporary files; its path must be short enough for a socket")
}

pub(super) fn not_understood(error: &torch_memory::stream::StreamError) -> UserError {
    UserError::new(format!("the recorder in PyTorch failed: {error}"))
        .hint("please report this, with the versions of Python and PyTorch")
}

/// Whether Python is what `program` starts: an interpreter, or a script that names one in its first lines.
fn is_python(program: &Path) -> bool {
    let named = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("python") || name.starts_with("pypy")
    };
    if named(program) {
        return true;
    }
    let Some(path) = find(program) else {
        return false;
    };
    if std::fs::canonicalize(&path).is_ok_and(|path| named(&path)) {
        return true;
    }
    let mut start = [0; 512];
    let Ok(read) = std::fs::File::open(path).and_then(|mut file| file.read(&mut start)) else {
        return false;
    };
    // Where the path of the interpreter is too long, pip's scripts start a shell that starts it in their second line.
    let text = String::from_utf8_lossy(&start[..read]);
    let mut lines = text.lines().take(2);
    text.starts_with("#!") && lines.any(|line| line.contains("python"))
}

/// The file that a shell would start for `program`.
pub(super) fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_path_buf());
    }
    let folders = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&folders).map(|folder| folder.join(program));
    candidates.find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_python_are_told_by_their_first_lines() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        assert!(is_python(Path::new("python3.11")));
        assert!(is_python(&script(
            "torchrun",
            "#!/opt/env/bin/python3\nimport torch\n"
        )));
        let long = "#!/bin/sh\n'''exec' \"/a long path/bin/python\" \"$0\" \"$@\"\n' '''\n";
        assert!(is_python(&script("accelerate", long)));
        assert!(!is_python(&script(
            "train.sh",
            "#!/bin/sh\n\npython train.py\n"
        )));
        assert!(!is_python(Path::new("no-such-program")));
        assert!(!is_python(Path::new("/")));
    }
}
