//! Answers a question of the page: runs this program, and sends on what it says, one JSON object a line.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::question::{Command, Question};
use crate::child_process;

/// How often the page hears of a question that is not answered yet. It is also how soon a closed connection is noticed:
/// nothing can be written to it.
const BETWEEN_SIGNS: Duration = Duration::from_millis(500);

/// The head of an answer whose length is not known: it comes in chunks (RFC 9112, section 7.1).
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson; charset=utf-8\r\n\
                    Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";

/// The chunk that ends it.
const LAST_CHUNK: &str = "0\r\n\r\n";

/// A program that ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // An error: it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes one chunk with a line for each message: `working` while the program runs, then `answer` and `svg`, or `error` and `hint`.
///
/// # Errors
///
/// The connection is closed, or the program cannot be started.
pub fn stream(
    mut page: impl Write,
    command: Command,
    question: Question,
    folder: &Path,
) -> std::io::Result<()> {
    let files = tempfile::tempdir_in(folder)?;
    let chart = files.path().join("chart.svg");
    let model = match &question.config {
        Some(config) => {
            let path = files.path().join("config.json");
            std::fs::write(&path, config)?;
            path.display().to_string()
        }
        None => question.model.clone(),
    };
    let mut program = std::process::Command::new(std::env::current_exe()?);
    program
        .args(question.arguments(command, &model, &chart))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    child_process::end_with_parent(&mut program);
    let mut running = Running(program.spawn()?);
    let said = lines(running.0.stderr.take());
    let stdout = running.0.stdout.take();
    let answer = std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.map(|mut stdout| stdout.read_to_string(&mut text));
        read.and_then(Result::ok).map(|_| text)
    });
    write!(page, "{HEAD}")?;
    let complaints = wait(&mut page, &said)?;
    let answer = answer.join().ok().flatten().unwrap_or_default();
    running.0.wait()?;
    let message = match serde_json::from_str::<Value>(&answer) {
        Ok(answer) => json!({"answer": answer, "svg": std::fs::read_to_string(&chart).ok()}),
        Err(_) => error(&complaints),
    };
    send(&mut page, &message)?;
    write!(page, "{LAST_CHUNK}")?;
    page.flush()
}

/// Tells the page that the program works, until it closes its stderr. Returns what it said there.
fn wait(page: &mut impl Write, said: &Receiver<String>) -> std::io::Result<Vec<String>> {
    let start = Instant::now();
    let mut all: Vec<String> = Vec::new();
    let mut next_sign = start;
    loop {
        match said.recv_timeout(next_sign.saturating_duration_since(Instant::now())) {
            Ok(line) => all.push(line),
            Err(RecvTimeoutError::Disconnected) => return Ok(all),
            Err(RecvTimeoutError::Timeout) => {
                let seconds = start.elapsed().as_secs();
                // A line of progress ends with how far it is, in brackets.
                let last = all.last().and_then(|line| line.split(" (").next());
                send(
                    page,
                    &json!({"working": {"seconds": seconds, "said": last}}),
                )?;
                next_sign += BETWEEN_SIGNS;
            }
        }
    }
}

fn send(page: &mut impl Write, message: &Value) -> std::io::Result<()> {
    let line = format!("{message}\n");
    write!(page, "{:x}\r\n{line}\r\n", line.len())?;
    page.flush()
}

/// The lines of `stderr`. The receiver is disconnected at its end.
fn lines(stderr: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (to, from) = channel();
    std::thread::spawn(move || {
        let lines = stderr
            .into_iter()
            .flat_map(|err| BufReader::new(err).lines());
        lines
            .map_while(Result::ok)
            .try_for_each(|line| to.send(line))
    });
    from
}

/// What the program said went wrong: the first `error:`, and its `hint:`.
fn error(complaints: &[String]) -> Value {
    let said = |label: &str| {
        let mut lines = complaints.iter();
        lines.find_map(|line| line.strip_prefix(label))
    };
    let error = said("error: ").unwrap_or("fit-check ended without an answer");
    json!({"error": error, "hint": said("hint: ")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_with_its_hint() {
        let lines = [
            "a note",
            "error: unknown model `x`",
            "hint: `fit-check models` lists all",
        ];
        let complaints = lines.map(String::from);
        assert_eq!(
            error(&complaints),
            json!({"error": "unknown model `x`", "hint": "`fit-check models` lists all"})
        );
        assert_eq!(error(&[])["error"], "fit-check ended without an answer");
    }

    #[test]
    fn a_closed_connection_ends_the_wait() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (_open, said) = channel();
        assert!(wait(&mut Closed, &said).is_err());
    }
}
