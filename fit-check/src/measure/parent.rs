//! The parent process: it starts the child that trains, waits, and collects its messages.

use std::io::Read;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use estimator::{Bytes, Runtime, Tuning, upstream};

use super::cold_database::ColdDatabase;
use super::{
    DeviceKind, DeviceName, Found, Mark, Measurement, Message, Mode, Opened, Outcome, TUNES_APART,
    Task, Training,
};
use crate::child_process;
use crate::counting_driver::CountingDriver;
use crate::interrupt;
use crate::user_error::UserError;

/// How long a process may take to end after its last message.
const EXIT_GRACE: Duration = Duration::from_secs(10);

/// The time between two looks at whether the user interrupts.
const INTERVAL: Duration = Duration::from_millis(100);

/// Every device that this program can measure on.
///
/// # Errors
///
/// The devices could not be listed within `timeout`.
pub fn list(timeout: Duration) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    let ending = Process::start(&Task::List, timeout, None)?.on_message(&mut |message| {
        if let Message::Found(devices) = message {
            found = devices;
        }
    });
    match ending {
        Outcome::Trained => Ok(found),
        _ => Err(
            UserError::new(format!("the process that lists the devices {ending}"))
                .hint(match ending {
                    Outcome::TimedOut(_) => "--timeout SECONDS gives it longer",
                    _ => "`vulkaninfo` or `nvidia-smi` shows whether the driver of your GPU works",
                })
                .into(),
        ),
    }
}

/// A device, and how the processes that use it are started.
#[derive(Debug)]
pub struct Setup {
    /// The device.
    pub device: DeviceName,
    /// How long a process may run.
    pub timeout: Duration,
    /// The counting driver, in place of NVIDIA's driver under CUDA's runtime.
    pub counting: Option<CountingDriver>,
}

impl Setup {
    /// Opens the device and describes it.
    ///
    /// # Errors
    ///
    /// The device does not exist, or could not be opened in time.
    pub fn probe(&self) -> anyhow::Result<Opened> {
        Ok(self.find()?.ok_or_else(|| self.device.missing())?)
    }

    /// Opens the device and describes it; none if it or its driver is missing.
    ///
    /// # Errors
    ///
    /// The device could not be opened in time.
    pub fn find(&self) -> anyhow::Result<Option<Opened>> {
        let found = self.try_run(&Task::Probe(self.device), &mut |_| {})?;
        Ok(found.map(|measurement| measurement.device))
    }

    /// Trains on the device as `training` says, and calls `on_mark` at the end of every phase.
    ///
    /// # Errors
    ///
    /// The device does not exist. Failures on the device are part of the [`Measurement`].
    pub fn measure(
        &self,
        training: Training,
        on_mark: &mut dyn FnMut(&Mark),
    ) -> anyhow::Result<Measurement> {
        if self.tunes_apart(&training) {
            let task = Task::Tune(self.device, Box::new(training.clone()));
            let tuned = self.run(&task, &mut |_| {})?;
            if tuned.ending != Outcome::Trained {
                return Ok(tuned);
            }
        }
        self.measure_again(training, on_mark)
    }

    /// [`Setup::measure`] for a step that this setup has measured before: a process of its own, which tuned the
    /// kernels for it, is not started again.
    ///
    /// # Errors
    ///
    /// The device does not exist. Failures on the device are part of the [`Measurement`].
    pub fn measure_again(
        &self,
        training: Training,
        on_mark: &mut dyn FnMut(&Mark),
    ) -> anyhow::Result<Measurement> {
        let tuned_before = self.tunes_apart(&training);
        let training = Box::new(training);
        let task = match tuned_before {
            true => Task::TrainTuned(self.device, training),
            false => Task::Train(self.device, training),
        };
        self.run(&task, on_mark)
    }

    /// Whether a process of its own tunes the kernels of `training`.
    fn tunes_apart(&self, training: &Training) -> bool {
        TUNES_APART && training.tuning == Tuning::Warm && self.counting.is_some()
    }

    /// Makes another process hold so much memory of the device that only `left` of it is free.
    ///
    /// # Errors
    ///
    /// The device does not exist, has less memory, or its driver does not report free memory.
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

    fn run(&self, task: &Task, on_mark: &mut dyn FnMut(&Mark)) -> anyhow::Result<Measurement> {
        let run = self.try_run(task, on_mark)?;
        Ok(run.ok_or_else(|| self.device.missing())?)
    }

    /// [`Setup::run`], or none if there is no such device.
    fn try_run(
        &self,
        task: &Task,
        on_mark: &mut dyn FnMut(&Mark),
    ) -> anyhow::Result<Option<Measurement>> {
        let (mut opened, mut marks, mut missing) = (None, Vec::new(), false);
        if let Some(driver) = &self.counting {
            driver.forget()?;
        }
        let ending = self.start(task)?.on_message(&mut |message| match message {
            Message::Device(device) => opened = Some(*device),
            Message::Mark(mark) => {
                on_mark(&mark);
                marks.push(*mark);
            }
            Message::NoDevice => missing = true,
            _ => {}
        });
        let device = self.device;
        match opened {
            Some(opened) => {
                let (peak, phase_peaks) = match task {
                    // CubeCL takes a page from the driver when a launch uses it, and in a dry run only burn's tuner
                    // launches kernels. So what the driver counts is not what the step takes.
                    Task::Train(_, training) if training.mode == Mode::DryRun => (None, Vec::new()),
                    _ => self.peaks(&marks)?,
                };
                // What a run took in which burn only tuned its kernels does not count.
                let peak_reserved = match task {
                    Task::Train(_, training) if training.tuning == Tuning::Warm => {
                        phase_peaks.iter().max().copied()
                    }
                    _ => peak,
                };
                Ok(Some(Measurement {
                    device: self.described(opened),
                    marks,
                    peak_reserved,
                    phase_peaks,
                    ending,
                }))
            }
            None if missing => Ok(None),
            None => Err(UserError::new(format!(
                "the device for --device {device} could not be opened: its process {ending}"
            ))
            .hint(match (device.driven.runtime(), &self.counting) {
                (Runtime::Cuda, None) => {
                    "`fit-check verify --list` shows what was found; with --driver counting the step needs no GPU"
                }
                _ => "`fit-check verify --list` shows what was found",
            })
            .into()),
        }
    }

    /// The most bytes that the last process held on the device, and the most within each phase that ended at
    /// a mark, if its driver counts them.
    fn peaks(&self, marks: &[Mark]) -> anyhow::Result<(Option<Bytes>, Vec<Bytes>)> {
        let Some(driver) = &self.counting else {
            return Ok((None, Vec::new()));
        };
        let journal = driver.journal()?;
        let card = self.device.index;
        let usage = journal.usage(card, Bytes::ZERO);
        let peak = usage.map(|usage| usage.peak_bytes);
        let spans = marks.iter().filter_map(|mark| mark.journal);
        Ok((peak, journal.peaks_within(card, spans)))
    }

    /// `opened`, corrected by the driver that was used: the child does not know it.
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

/// The child process. It does not outlive this value.
struct Process {
    child: Child,
    messages: Receiver<Message>,
    stderr: Option<std::thread::JoinHandle<String>>,
    /// How long the process may run in all; it has to end by `until`.
    timeout: Duration,
    until: Instant,
    /// Its first message about a failure.
    failed: Option<String>,
    /// Whether its task is complete.
    done: bool,
    /// The database of a cold step, which is removed after the process has ended.
    _database: Option<ColdDatabase>,
}

/// Whether `task` is a cold step in a build in which CubeCL keeps what it tunes, so that it may know the kernels.
fn is_cold(task: &Task) -> bool {
    cfg!(feature = "persistence")
        && matches!(task, Task::Train(_, training) if training.tuning == Tuning::Cold)
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
            // One heap: with one for each thread, the other heaps would count as memory of the job.
            .env("MALLOC_ARENA_MAX", "1");
        if let Some(driver) = counting {
            driver.apply(&mut command);
        }
        // On the counting driver a cold step forgets what earlier processes measured (`forget_measurements`).
        let database = (counting.is_none() && is_cold(task)).then(ColdDatabase::new);
        if let Some(database) = &database {
            database.apply(&mut command);
        }
        let mut child = command.spawn()?;
        child_process::send_task(&mut child, task)?;
        let (sender, messages) = channel();
        let stdout = child.stdout.take();
        std::thread::spawn(move || {
            for message in child_process::messages(stdout) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stderr = child.stderr.take();
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self {
            child,
            messages,
            stderr: Some(stderr),
            timeout,
            until: Instant::now() + timeout,
            failed: None,
            done: false,
            _database: database,
        })
    }

    /// Passes all messages to `on_message`, and returns how the process ended.
    fn on_message(mut self, on_message: &mut dyn FnMut(Message)) -> Outcome {
        loop {
            match self.next() {
                Ok(message) => on_message(message),
                Err(ending) => return ending,
            }
        }
    }

    /// The next message, or how the process ended.
    fn next(&mut self) -> Result<Message, Outcome> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left.min(INTERVAL)) {
                // A terminal sends Ctrl-C to the child as well, whose end is not its own then.
                _ if interrupt::requested() => return Err(Outcome::Interrupted),
                // The first failure is the cause.
                Ok(Message::Failed(what)) => {
                    self.failed.get_or_insert(what);
                }
                Ok(Message::Done) => self.done = true,
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Timeout) if left > INTERVAL => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Outcome::TimedOut(self.timeout.as_secs()));
                }
                // There are no more messages: the process has ended, or is about to.
                Err(RecvTimeoutError::Disconnected) => return Err(self.ending()),
            }
        }
    }

    /// How the process ended, once it has closed stdout.
    fn ending(&mut self) -> Outcome {
        let status = wait_timeout::ChildExt::wait_timeout(&mut self.child, EXIT_GRACE);
        let mut stderr = || {
            let text = self.stderr.take().and_then(|thread| thread.join().ok());
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
                // The process has ended, so its stderr ends too.
                match (signal(status), stderr()) {
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

/// The texts with which wgpu, Vulkan, CUDA, CubeCL, Rust and C++ report that there is no memory left.
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
    let lower = text.to_lowercase();
    upstream::is_unallocated(text) || NO_MEMORY.iter().any(|words| lower.contains(words))
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}
