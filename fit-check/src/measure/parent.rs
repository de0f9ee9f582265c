//! The process that asks: it starts the one that trains, waits, and collects.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use estimator::Bytes;

use super::{
    DeviceKind, DeviceName, Found, Mark, Measurement, Message, Opened, Outcome, Task, Training,
};
use crate::child_process;
use crate::counting_driver::CountingDriver;
use crate::user_error::UserError;

/// How long a process that is done may take to end.
const EXIT_GRACE: Duration = Duration::from_secs(10);

/// Every device that this program can measure on.
///
/// # Errors
///
/// They could not be listed within `timeout`.
pub fn list(timeout: Duration) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    let ending = Process::start(&Task::List, timeout, None)?.on_message(&mut |said| {
        if let Message::Found(devices) = said {
            found = devices;
        }
    });
    match ending {
        Outcome::Trained => Ok(found),
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
    pub fn hold(&self, left: Bytes) -> anyhow::Result<MemoryHold> {
        let device = self.device;
        let mut process = self.start(&Task::Hold(device, left))?;
        loop {
            match process.next() {
                Ok(Message::Holding) => return Ok(MemoryHold { _process: process }),
                Ok(Message::NoDevice) => return Err(device.missing().into()),
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
        let ending = self.start(task)?.on_message(&mut |said| match said {
            Message::Device(device) => opened = Some(*device),
            Message::Mark(mark) => {
                each(&mark);
                marks.push(*mark);
            }
            Message::NoDevice => missing = true,
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
            None => Err(UserError::new(format!(
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
pub struct MemoryHold {
    _process: Process,
}

/// The other process. It does not outlive this value.
struct Process {
    child: Child,
    said: Receiver<Message>,
    complaints: Option<std::thread::JoinHandle<String>>,
    /// How long it may take in all, and until when that is.
    timeout: Duration,
    until: Instant,
    /// Why it failed, in its own words.
    failed: Option<String>,
    /// Whether it said that it came to its end.
    done: bool,
}

impl Process {
    fn start(
        task: &Task,
        timeout: Duration,
        counting: Option<&CountingDriver>,
    ) -> anyhow::Result<Self> {
        let mut command = child_process::command("measure")?;
        command
            .stderr(Stdio::piped())
            // One heap: another for each thread would count as memory of the job.
            .env("MALLOC_ARENA_MAX", "1");
        if let Some(driver) = counting {
            driver.apply(&mut command);
        }
        let mut child = command.spawn()?;
        child_process::send_task(&mut child, task)?;
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
            timeout,
            until: Instant::now() + timeout,
            failed: None,
            done: false,
        })
    }

    /// Hears what it says to its end, and how it ended.
    fn on_message(mut self, on_message: &mut dyn FnMut(Message)) -> Outcome {
        loop {
            match self.next() {
                Ok(said) => on_message(said),
                Err(ending) => return ending,
            }
        }
    }

    /// What it says next, or how it ended.
    fn next(&mut self) -> Result<Message, Outcome> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                // What is said first is the cause.
                Ok(Message::Failed(what)) => {
                    self.failed.get_or_insert(what);
                }
                Ok(Message::Done) => self.done = true,
                Ok(said) => return Ok(said),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Outcome::TimedOut(self.timeout.as_secs()));
                }
                // It says no more: it has ended, or is about to.
                Err(RecvTimeoutError::Disconnected) => return Err(self.ending()),
            }
        }
    }

    /// How it ended, once it says no more.
    fn ending(&mut self) -> Outcome {
        let status = wait_timeout::ChildExt::wait_timeout(&mut self.child, EXIT_GRACE);
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
            (None, true, Ok(Some(_) | None)) => Outcome::Trained,
            (None, _, Ok(Some(status))) => {
                // The process may only end after its stderr does.
                match (signal(status), complaints()) {
                    (_, text) if out_of_memory(&text) => Outcome::OutOfMemory(text),
                    (Some(signal), _) => Outcome::Killed(signal),
                    (None, text) if !text.is_empty() => Outcome::Failed(text),
                    (None, _) => Outcome::Exited(status.code().unwrap_or_default()),
                }
            }
            (None, _, _) => Outcome::TimedOut(EXIT_GRACE.as_secs()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failure(what: String) -> Outcome {
    match out_of_memory(&what) {
        true => Outcome::OutOfMemory(what),
        false => Outcome::Failed(what),
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
