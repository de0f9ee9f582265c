//! A program for tests that says what the recorder in a PyTorch program would say, without Python.
//!
//! `torch_lines FILE [BATCH] [then WORDS…]`: sends the lines of FILE, in which `@N` is N for each sample of BATCH. Then it ends, or does
//! what the words say: `fail` ends with status 3, `stay` goes on for a minute.

#[cfg(unix)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    let arguments: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&arguments[1])?;
    let batch: u64 = arguments
        .get(2)
        .and_then(|batch| batch.parse().ok())
        .unwrap_or(1);
    let settings: serde_json::Value = serde_json::from_str(&std::env::var("FIT_CHECK_RECORDER")?)?;
    let mut socket = UnixStream::connect(settings["socket"].as_str().ok_or("no socket")?)?;
    socket.write_all(with_batch(&text, batch).as_bytes())?;
    drop(socket);
    println!("the program's own output");
    match arguments.last().map(String::as_str) {
        Some("fail") => std::process::exit(3),
        Some("stay") => std::thread::sleep(std::time::Duration::from_secs(60)),
        _ => {}
    }
    Ok(())
}

/// `text` with the bytes of `batch` samples in the place of each `@N`.
#[cfg(unix)]
fn with_batch(text: &str, batch: u64) -> String {
    let mut parts = text.split('@');
    let mut result = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let digits = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        let bytes: u64 = part[..digits].parse().unwrap_or_default();
        result += &(bytes * batch).to_string();
        result += &part[digits..];
    }
    result
}

#[cfg(not(unix))]
fn main() {}
