//! What a simulation may take of this machine. burn computes some tensors in the memory of the host, and simulates each call of a step:
//! with huge sizes that takes many gigabytes, or hours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exit_status::UNKNOWN;
use crate::interrupt;
use crate::user_error::UserError;

/// The most memory of the process. Chosen: the largest networks of the zoo take a quarter of it.
const MEMORY: u64 = 1 << 30;

/// The most processor time of one estimate. Chosen: the slowest network of the zoo takes a sixth of it.
const TIME: Duration = Duration::from_secs(60);

/// How often it is looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// What an answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// One step.
    Estimate,
    /// Many steps, for which it is known how long one takes.
    Search,
}

/// While this lives, the program is watched.
#[derive(Debug)]
#[must_use = "a watch ends when it is dropped"]
pub struct Watch(Arc<AtomicBool>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// As long as the result lives, the program ends with an error that names the sizes of the `job` if it takes too much of this
/// machine from now on.
pub fn watch(job: &str, work: Work) -> Watch {
    let job = job.to_string();
    let over = Arc::new(AtomicBool::new(false));
    let watch = Watch(over.clone());
    let before = processor_time().unwrap_or_default();
    std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(INTERVAL);
            let Some(excess) = excess(work, before) else {
                continue;
            };
            let error = UserError::new(format!("the simulation of {job} takes more than {excess}"))
                .hint("make --image, --seq, --batch or --accumulate smaller, or the configuration less deep");
            interrupt::disarm();
            anstream::eprintln!("{error}");
            std::process::exit(i32::from(UNKNOWN));
        }
    });
    watch
}

/// What the process takes too much of, if it had taken so much processor time `before`.
fn excess(work: Work, before: Duration) -> Option<&'static str> {
    if resident().is_some_and(|bytes| bytes > MEMORY) {
        return Some("1 GiB of this machine's memory");
    }
    let too_long = |time: Duration| time.saturating_sub(before) > TIME;
    let long = work == Work::Estimate && processor_time().is_some_and(too_long);
    long.then_some("60 s of processor time")
}

/// The memory of this process that is in the machine's memory; none if the system does not say (`/proc/self/statm` in proc(5)).
fn resident() -> Option<u64> {
    const PAGE: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

/// The processor time of this process.
#[cfg(unix)]
fn processor_time() -> Option<Duration> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let (user, system) = (usage.user_time(), usage.system_time());
    Some(Duration::from_secs(
        (user.tv_sec() + system.tv_sec()) as u64,
    ))
}

#[cfg(not(unix))]
fn processor_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn what_this_process_takes_is_known_and_not_too_much() {
        let held = vec![1u8; 64 << 20];
        assert!(resident().is_some_and(|bytes| bytes > held.len() as u64));
        assert!(processor_time().is_some());
        assert_eq!(excess(Work::Search, Duration::ZERO), None);
    }
}
