//! The process that asks: it starts the one that trains, waits, and collects.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use estimator::Bytes;

use super::{
    DeviceKind, DeviceName, Ending, Found, Mark, Measurement, Opened, Said, Task, Training,
};
use crate::again;
use crate::counting_driver::CountingDriver;
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
    let ending = Process::start(&Task::List, patience, None)?.hear(&mut |said| {
        if let Said::Found(devices) = said {
            found = devices;
        }
    });
    match ending {
        Ending::Trained => Ok(found),
        _ => anyhow::bail!("the process that lists the devices {ending}"),
    }
}

/// A device, and how the processes that use it are started.
#[derive(Debug)]
pub struct Setup {
    /// The device.
    pub device: DeviceName,
    /// How long a process may take.
    pub timeout: Duration,
    /// Under CUDA's runtime, in the place of NVIDIA's driver.
    pub counting: Option<CountingDriver>,
}

impl Setup {
    /// Opens the device and describes it.
    ///
    /// # Errors
    ///
    /// It is not there, or it could not be opened in time.
    pub fn probe(&self) -> anyhow::Result<Opened> {
        Ok(self.run(&Task::Probe(self.device), &mut |_| {})?.device)
    }

    /// Trains on the device as `training` says; `each` hears of every phase as it ends.
    ///
    /// # Errors
    ///
    /// The device is not there. What goes wrong on it is a [`Measurement`] too.
    pub fn measure(
        &self,
        training: Training,
        each: &mut dyn FnMut(&Mark),
    ) -> anyhow::Result<Measurement> {
        self.run(&Task::Train(self.device, Box::new(training)), each)
    }

    /// Has another process hold so much of the device that no more than `left` of it is free.
    ///
    /// # Errors
    ///
    /// The device is not there, does not have so much, or its driver does not say what is free.
    pub fn hold(&self, left: Bytes) -> anyhow::Result<Held> {
        let device = self.device;
        let mut process = self.start(&Task::Hold(device, left))?;
        loop {
            match process.next() {
                Ok(Said::Holding) => return Ok(Held { _process: process }),
                Ok(Said::NoDevice) => return Err(device.missing().into()),
                Ok(_) => {}
                Err(ending) => anyhow::bail!("the process that holds memory of {device} {ending}"),
            }
        }
    }

    fn start(&self, task: &Task) -> anyhow::Result<Process> {
        Process::start(task, self.timeout, self.counting.as_ref())
    }

    fn run(&self, task: &Task, each: &mut dyn FnMut(&Mark)) -> anyhow::Result<Measurement> {
        let (mut opened, mut marks, mut missing) = (None, Vec::new(), false);
        if let Some(driver) = &self.counting {
            driver.forget()?;
        }
        let ending = self.start(task)?.hear(&mut |said| match said {
            Said::Device(device) => opened = Some(*device),
            Said::Mark(mark) => {
                each(&mark);
                marks.push(*mark);
            }
            Said::NoDevice => missing = true,
            _ => {}
        });
        let device = self.device;
        match opened {
            Some(opened) => Ok(Measurement {
                device: self.described(opened),
                marks,
                peak_reserved: self.peak_reserved()?,
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

    /// What the process that was run last had of the device at most, where its driver counts it.
    fn peak_reserved(&self) -> anyhow::Result<Option<Bytes>> {
        let Some(driver) = &self.counting else {
            return Ok(None);
        };
        let usage = driver.journal()?.usage(self.device.index);
        Ok(usage.map(|usage| usage.peak_bytes))
    }

    /// `opened` as what it is: its process does not know which driver it found.
    fn described(&self, mut opened: Opened) -> Opened {
        if let Some(driver) = &self.counting {
            opened.report.kind = DeviceKind::Counting;
            opened.free = driver.free(self.device.index);
        }
        opened
    }
}

/// Memory of a device that another process holds until this is dropped.
pub struct Held {
    _process: Process,
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
    fn start(
        task: &Task,
        patience: Duration,
        counting: Option<&CountingDriver>,
    ) -> anyhow::Result<Self> {
        let mut command = again::command("measure")?;
        command
            .stderr(Stdio::piped())
            // One heap: another for each thread would count as memory of the job.
            .env("MALLOC_ARENA_MAX", "1");
        if let Some(driver) = counting {
            driver.apply(&mut command);
        }
        let mut child = command.spawn()?;
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

    /// Hears what it says to its end, and how it ended.
    fn hear(mut self, hear: &mut dyn FnMut(Said)) -> Ending {
        loop {
            match self.next() {
                Ok(said) => hear(said),
                Err(ending) => return ending,
            }
        }
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
const NO_MEMORY: [&str; 8] = [
    "out of memory",
    "not enough memory",
    "out_of_memory",
    "outofmemory",
    "out_of_device_memory",
    "out of device memory",
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
