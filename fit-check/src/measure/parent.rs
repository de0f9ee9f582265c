//! The parent process: it starts the child that trains, waits, and collects its messages.

use std::io::Read;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use estimator::upstream;

use super::{Message, Outcome, Task};
use crate::child_process;
use crate::counting_driver::CountingDriver;
use crate::interrupt;

/// How long a process may take to end after its last message.
const EXIT_GRACE: Duration = Duration::from_secs(10);

/// The time between two looks at whether the user interrupts.
const INTERVAL: Duration = Duration::from_millis(100);

/// The child process. It does not outlive this value.
pub(super) struct Process {
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
}

impl Process {
    /// Starts the process and sends it `task`; `counting` is the driver in place of NVIDIA's.
    pub(super) fn start(
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
        })
    }

    /// Passes all messages to `on_message`, and returns how the process ended.
    pub(super) fn on_message(mut self, on_message: &mut dyn FnMut(Message)) -> Outcome {
        loop {
            match self.next() {
                Ok(message) => on_message(message),
                Err(ending) => return ending,
            }
        }
    }

    /// The next message, or how the process ended.
    pub(super) fn next(&mut self) -> Result<Message, Outcome> {
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
