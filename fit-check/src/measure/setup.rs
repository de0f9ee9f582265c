//! What the rest of the program asks of a device. A child process answers each time.

use std::time::Duration;

use estimator::{Bytes, Runtime, Tuning};

use super::parent::Process;
use super::{
    DeviceKind, DeviceName, Found, Mark, Measurement, Message, Mode, Opened, Outcome, Task,
    Training,
};
use crate::counting_driver::CountingDriver;
use crate::user_error::UserError;

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
        let task = Task::Train(self.device, Box::new(training));
        self.run(&task, on_mark)
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
