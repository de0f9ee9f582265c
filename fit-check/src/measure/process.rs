//! The host memory of this process: a software device has no other.

use estimator::Bytes;

/// What the process has taken of the host for itself, if the system says: private writable
/// memory, of which no page need have been touched.
pub(super) fn memory() -> Option<Bytes> {
    // Linux: `VmData` is what `RLIMIT_DATA` counts (proc(5), getrlimit(2)).
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmData:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib << 10))
}

/// Lets the process take `bytes` of the host in all, and no more.
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
