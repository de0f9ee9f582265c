//! Starts this program again, for a task in a process of its own.

use std::io::{BufRead, Read, Write};
use std::process::{Child, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The command `fit-check NAME`, which reads a task from stdin and writes messages to stdout.
///
/// # Errors
///
/// The system does not report the path of this program.
pub(crate) fn command(name: &str) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Sends `child` its task. The child runs for as long as its stdin stays open.
///
/// # Errors
///
/// The task cannot be written as JSON.
pub(crate) fn send_task(child: &mut Child, task: &impl Serialize) -> serde_json::Result<()> {
    let task = serde_json::to_string(task)?;
    if let Some(stdin) = &mut child.stdin {
        // A child that no longer reads has ended; its exit status is what the caller reports.
        let _ = writeln!(stdin, "{task}");
    }
    Ok(())
}

/// In the child process: reads the task from stdin. The process ends when its parent does.
///
/// # Errors
///
/// There is no task on stdin.
pub(crate) fn task<T: DeserializeOwned>() -> anyhow::Result<T> {
    let mut line = String::new();
    let mut stdin = std::io::stdin();
    stdin.lock().read_line(&mut line)?;
    let task = serde_json::from_str(&line)?;
    // Stdin closes when the parent process ends.
    std::thread::spawn(move || {
        let _ = stdin.read(&mut [0]);
        std::process::exit(1);
    });
    Ok(task)
}
