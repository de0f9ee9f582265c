//! The figures that the driver reports about the whole device.

use estimator::Bytes;
use nvml_wrapper::Nvml;

use crate::counting_driver;

/// NVIDIA's management library, which is loaded at run time, and the memory in use on each device before this
/// process used one.
#[derive(Debug)]
pub(super) struct Driver {
    nvml: Nvml,
    before: Vec<Bytes>,
}

impl Driver {
    /// Loads the library, if it exists, and this process is not on the counting driver: a card there has the name of a GPU
    /// that may be in the machine too.
    pub(super) fn load() -> Option<Self> {
        if counting_driver::is_loaded() {
            return None;
        }
        let nvml = Nvml::init().ok()?;
        let devices = 0..nvml.device_count().ok()?;
        let before = devices.map(|index| used(&nvml, index).unwrap_or_default());
        let before = before.collect();
        Some(Self { nvml, before })
    }

    /// The memory in use on the device called `name`, less what was in use `before`.
    pub(super) fn used(&self, name: &str) -> Option<Bytes> {
        let index = self.index(name)?;
        Some(used(&self.nvml, index as u32)?.saturating_sub(self.before[index]))
    }

    /// The memory of the device called `name` that no process holds.
    pub(super) fn free(&self, name: &str) -> Option<Bytes> {
        let device = self.nvml.device_by_index(self.index(name)? as u32).ok()?;
        Some(Bytes(device.memory_info().ok()?.free))
    }

    /// The index of the device called `name`; of several, the one that this process uses. `None` if that is not known,
    /// for instance in a container whose processes have other numbers than on the machine.
    fn index(&self, name: &str) -> Option<usize> {
        let device = |index: usize| self.nvml.device_by_index(index as u32);
        let is_called = |index: &usize| {
            let found = device(*index).and_then(|device| device.name());
            found.is_ok_and(|found| found == name)
        };
        let is_used = |index: &usize| {
            let processes = device(*index).and_then(|device| device.running_compute_processes());
            let mut pids = processes.into_iter().flatten().map(|process| process.pid);
            pids.any(|pid| pid == std::process::id())
        };
        let called_so: Vec<_> = (0..self.before.len()).filter(is_called).collect();
        match called_so.as_slice() {
            [only] => Some(*only),
            several => several.iter().copied().find(is_used),
        }
    }

    /// The driver's version.
    pub(super) fn version(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }
}

/// Memory in use on the whole device, by every process.
fn used(nvml: &Nvml, index: u32) -> Option<Bytes> {
    let device = nvml.device_by_index(index).ok()?;
    Some(Bytes(device.memory_info().ok()?.used))
}
