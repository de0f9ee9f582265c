//! The host memory of this process, since a software device has no other memory, and its processor time.

use std::time::Duration;

use estimator::Bytes;

/// The host memory that the process has taken for itself, if the system reports it: private writable memory,
/// whether its pages were touched or not.
pub(super) fn memory() -> Option<Bytes> {
    // Linux: `VmData` is what `RLIMIT_DATA` counts (proc(5), getrlimit(2)).
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmData:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib << 10))
}

/// Limits the host memory of the process to `bytes` in all.
///
/// # Errors
///
/// The system has no such limit.
#[cfg(target_os = "linux")]
pub(super) fn limit(bytes: Bytes) -> anyhow::Result<()> {
    use nix::sys::resource::{Resource, setrlimit};
    Ok(setrlimit(Resource::RLIMIT_DATA, bytes.0, bytes.0)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn limit(_: Bytes) -> anyhow::Result<()> {
    anyhow::bail!("this system cannot limit the memory of a process")
}

/// The processor time of this process, if the system reports it.
#[cfg(unix)]
pub(super) fn processor_time() -> Option<Duration> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let time = usage.user_time() + usage.system_time();
    let (seconds, rest) = (time.tv_sec(), time.tv_usec());
    Some(Duration::new(
        seconds.try_into().ok()?,
        u32::try_from(rest).ok()? * 1000,
    ))
}

#[cfg(not(unix))]
pub(super) fn processor_time() -> Option<Duration> {
    None
}
