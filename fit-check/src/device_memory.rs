//! The most memory in use on a GPU of this machine while a program runs, as NVIDIA's management library (NVML) reads it.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use estimator::Bytes;
use nvml_wrapper::Nvml;

use crate::local_gpu::LocalGpu;

/// The time between two readings. PyTorch keeps what it reserves, so what a program has in the end was read.
const PAUSE: Duration = Duration::from_millis(10);

/// Reads the memory in use on a GPU, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct DeviceMemory {
    before: Bytes,
    end: Sender<()>,
    thread: JoinHandle<Bytes>,
}

impl DeviceMemory {
    /// Reads the memory of `gpu`; none if the library does not tell it.
    pub fn of(gpu: &LocalGpu) -> Option<Self> {
        let nvml = Nvml::init().ok()?;
        let uuid = gpu.uuid.clone();
        Self::new(move || {
            let device = nvml.device_by_uuid(uuid.as_str()).ok()?;
            Some(Bytes(device.memory_info().ok()?.used))
        })
    }

    /// Reads by `read`, which returns none where it fails; none if it fails at once.
    fn new(mut read: impl FnMut() -> Option<Bytes> + Send + 'static) -> Option<Self> {
        let before = read()?;
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || {
            let mut most = before;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PAUSE) {
                most = most.max(read().unwrap_or_default());
            }
            most
        });
        Some(Self {
            before,
            end,
            thread,
        })
    }

    /// What was in use when this began.
    pub fn before(&self) -> Bytes {
        self.before
    }

    /// The most that was in use until now, beyond [`Self::before`].
    pub fn most(self) -> Option<Bytes> {
        drop(self.end);
        Some(self.thread.join().ok()?.saturating_sub(self.before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_beyond_what_was_there_before() {
        let (read, all) = channel();
        let mut readings = [Some(100), Some(150), None, Some(120)].into_iter();
        let memory = DeviceMemory::new(move || {
            let reading = readings.next();
            if reading.is_none() {
                let _ = read.send(());
            }
            reading.flatten().map(Bytes)
        });
        let memory = memory.unwrap();
        all.recv().unwrap();
        assert_eq!(memory.before(), Bytes(100));
        assert_eq!(memory.most(), Some(Bytes(50)));
        assert!(DeviceMemory::new(|| None).is_none());
    }
}
