//! This program started again, to do a task in a process of its own.

use std::io::{BufRead, Read, Write};
use std::process::{Child, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// `fit-check NAME`, which is to be given its task and says what came of it on stdout.
///
/// # Errors
///
/// The system does not say which program this is.
pub(crate) fn command(name: &str) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Gives `child` its task. It goes on for as long as its stdin stays open.
///
/// # Errors
///
/// The task cannot be written as JSON.
pub(crate) fn send_task(child: &mut Child, task: &impl Serialize) -> serde_json::Result<()> {
    let task = serde_json::to_string(task)?;
    if let Some(stdin) = &mut child.stdin {
        // One that no longer listens has ended, and how it ended is what there is to say.
        let _ = writeln!(stdin, "{task}");
    }
    Ok(())
}

/// In the other process: the task on stdin. The process ends when whoever gave it goes away.
///
/// # Errors
///
/// There is no task.
pub(crate) fn task<T: DeserializeOwned>() -> anyhow::Result<T> {
    let mut line = String::new();
    let mut stdin = std::io::stdin();
    stdin.lock().read_line(&mut line)?;
    let task = serde_json::from_str(&line)?;
    // Stdin ends with the process that holds its other end.
    std::thread::spawn(move || {
        let _ = stdin.read(&mut [0]);
        std::process::exit(1);
    });
    Ok(task)
}
