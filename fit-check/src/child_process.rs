//! Starts this program again, for a task in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The variable in the environment of a process that this program started for a task.
const OWN: &str = "FIT_CHECK_TASK";

/// Whether this is a process that this program started for a task.
pub(crate) fn is_own() -> bool {
    std::env::var_os(OWN).is_some()
}

/// The command `fit-check NAME`, which reads a task from stdin and writes messages to stdout.
///
/// # Errors
///
/// The system does not report the path of this program.
pub(crate) fn command(name: &str) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(name)
        .env(OWN, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    end_with_parent(&mut command);
    Ok(command)
}

/// Makes the process that `command` starts end when this program does, however it ends: a process that the
/// system kills cannot end its children itself. Only Linux can do this.
pub(crate) fn end_with_parent(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::{prctl, signal::Signal};
        use std::os::unix::process::CommandExt;
        let parent = nix::unistd::getpid();
        let ask = move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have ended before that call.
            match nix::unistd::getppid() == parent {
                true => Ok(()),
                false => Err(std::io::ErrorKind::BrokenPipe.into()),
            }
        };
        // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
        unsafe { command.pre_exec(ask) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
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

/// The messages that a child writes to `stdout`, until it closes it. Other lines are left out: drivers write to
/// stdout too.
pub(crate) fn messages<T: DeserializeOwned>(
    stdout: Option<ChildStdout>,
) -> impl Iterator<Item = T> {
    let lines = stdout
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines());
    lines
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_str(&line).ok())
}

/// In the child process: writes a message as one line to stdout, at once, since the process may not live to send
/// another.
pub(crate) fn send(message: &impl Serialize) {
    if let Ok(line) = serde_json::to_string(message) {
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
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
