//! The process that asks: it starts the one that trains, waits, and collects.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use estimator::Bytes;

use super::{DeviceName, Ending, Found, Mark, Measurement, Opened, Said, Task, Training};
use crate::again;
use crate::trouble::Trouble;

/// How long a process that is done may take to end.
const FAREWELL: Duration = Duration::from_secs(10);

/// Every device that this program can measure on.
///
/// # Errors
///
/// They could not be listed within `patience`.
pub fn list(patience: Duration) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    let ending = run(&Task::List, patience, &mut |said| {
        if let Said::Found(devices) = said {
            found = devices;
        }
    })?;
    match ending {
        Ending::Trained => Ok(found),
        _ => anyhow::bail!("the process that lists the devices {ending}"),
    }
}

/// Opens `device` and describes it.
///
/// # Errors
///
/// It is not there, or it could not be opened within `patience`.
pub fn probe(device: DeviceName, patience: Duration) -> anyhow::Result<Opened> {
    Ok(on_device(device, &Task::Probe(device), patience, &mut |_| {})?.device)
}

/// Trains on `device` as `training` says; `each` hears of every phase as it ends.
///
/// # Errors
///
/// The device is not there. What goes wrong on it is a [`Measurement`] too.
pub fn measure(
    device: DeviceName,
    training: Training,
    patience: Duration,
    each: &mut dyn FnMut(&Mark),
) -> anyhow::Result<Measurement> {
    on_device(
        device,
        &Task::Train(device, Box::new(training)),
        patience,
        each,
    )
}

fn on_device(
    device: DeviceName,
    task: &Task,
    patience: Duration,
    each: &mut dyn FnMut(&Mark),
) -> anyhow::Result<Measurement> {
    let (mut opened, mut marks, mut missing) = (None, Vec::new(), false);
    let ending = run(task, patience, &mut |said| match said {
        Said::Device(device) => opened = Some(*device),
        Said::Mark(mark) => {
            each(&mark);
            marks.push(*mark);
        }
        Said::NoDevice => missing = true,
        _ => {}
    })?;
    match opened {
        Some(device) => Ok(Measurement {
            device,
            marks,
            ending,
        }),
        None if missing => Err(device.missing().into()),
        None => Err(Trouble::new(format!(
            "the device for --device {device} could not be opened: its process {ending}"
        ))
        .hint("`fit-check verify --list` shows what was found")
        .into()),
    }
}

/// Has another process do `task`; `hear` what it says but for how it ends.
fn run(task: &Task, patience: Duration, hear: &mut dyn FnMut(Said)) -> anyhow::Result<Ending> {
    let mut process = Process::start(task, patience)?;
    loop {
        match process.next() {
            Ok(said) => hear(said),
            Err(ending) => return Ok(ending),
        }
    }
}

/// Memory of a device that another process holds until this is dropped.
pub struct Held {
    _process: Process,
}

/// Has another process hold so much of `device` that no more than `left` of it is free.
///
/// # Errors
///
/// The device is not there, does not have so much, or its driver does not say what is free.
pub fn hold(device: DeviceName, left: Bytes, patience: Duration) -> anyhow::Result<Held> {
    let mut process = Process::start(&Task::Hold(device, left), patience)?;
    loop {
        match process.next() {
            Ok(Said::Holding) => return Ok(Held { _process: process }),
            Ok(Said::NoDevice) => return Err(device.missing().into()),
            Ok(_) => {}
            Err(ending) => anyhow::bail!("the process that holds memory of {device} {ending}"),
        }
    }
}

/// The other process. It does not outlive this value.
struct Process {
    child: Child,
    said: Receiver<Said>,
    complaints: Option<std::thread::JoinHandle<String>>,
    /// How long it may take in all, and until when that is.
    patience: Duration,
    until: Instant,
    /// Why it failed, in its own words.
    failed: Option<String>,
    /// Whether it said that it came to its end.
    done: bool,
}

impl Process {
    fn start(task: &Task, patience: Duration) -> anyhow::Result<Self> {
        let mut child = again::command("measure")?
            .stderr(Stdio::piped())
            // One heap: another for each thread would count as memory of the job.
            .env("MALLOC_ARENA_MAX", "1")
            .spawn()?;
        again::give(&mut child, task)?;
        let (tell, said) = channel();
        let stdout = child.stdout.take();
        std::thread::spawn(move || {
            let lines = stdout
                .into_iter()
                .flat_map(|out| BufReader::new(out).lines());
            for line in lines.map_while(Result::ok) {
                // Drivers write to stdout too.
                if let Ok(said) = serde_json::from_str(&line)
                    && tell.send(said).is_err()
                {
                    return;
                }
            }
        });
        let stderr = child.stderr.take();
        let complaints = std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self {
            child,
            said,
            complaints: Some(complaints),
            patience,
            until: Instant::now() + patience,
            failed: None,
            done: false,
        })
    }

    /// What it says next, or how it ended.
    fn next(&mut self) -> Result<Said, Ending> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                // What is said first is the cause.
                Ok(Said::Failed(what)) => {
                    self.failed.get_or_insert(what);
                }
                Ok(Said::Done) => self.done = true,
                Ok(said) => return Ok(said),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Ending::TimedOut(self.patience.as_secs()));
                }
                // It says no more: it has ended, or is about to.
                Err(RecvTimeoutError::Disconnected) => return Err(self.ending()),
            }
        }
    }

    /// How it ended, once it says no more.
    fn ending(&mut self) -> Ending {
        let status = wait_timeout::ChildExt::wait_timeout(&mut self.child, FAREWELL);
        let mut complaints = || {
            let text = self.complaints.take().and_then(|thread| thread.join().ok());
            let text = text.unwrap_or_default();
            let lines: Vec<_> = text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .collect();
            lines[lines.len().saturating_sub(3)..].join(" ")
        };
        match (self.failed.take(), self.done, status) {
            (Some(what), _, _) => failure(what),
            (None, true, Ok(Some(_) | None)) => Ending::Trained,
            (None, _, Ok(Some(status))) => {
                // The process may only end after its stderr does.
                match (signal(status), complaints()) {
                    (_, text) if out_of_memory(&text) => Ending::OutOfMemory(text),
                    (Some(signal), _) => Ending::Killed(signal),
                    (None, text) if !text.is_empty() => Ending::Failed(text),
                    (None, _) => Ending::Exited(status.code().unwrap_or_default()),
                }
            }
            (None, _, _) => Ending::TimedOut(FAREWELL.as_secs()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failure(what: String) -> Ending {
    match out_of_memory(&what) {
        true => Ending::OutOfMemory(what),
        false => Ending::Failed(what),
    }
}

/// How wgpu, Vulkan, CUDA, CubeCL, Rust and C++ say that there is no memory left.
const NO_MEMORY: [&str; 7] = [
    "out of memory",
    "not enough memory",
    "out_of_memory",
    "outofmemory",
    "out_of_device_memory",
    "memory allocation of",
    "bad_alloc",
];

fn out_of_memory(text: &str) -> bool {
    let text = text.to_lowercase();
    NO_MEMORY.iter().any(|words| text.contains(words))
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}
