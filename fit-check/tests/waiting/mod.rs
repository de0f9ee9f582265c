//! Waits for what other processes do.

use std::time::{Duration, Instant};

/// Waits until `holds`, which is `what`, for at most `limit`.
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The command lines of all processes; a zero byte ends each argument.
pub fn command_lines() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.map(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).into_owned()
    });
    lines.collect()
}
