//! The figures that the driver reports about the whole device.

use estimator::Bytes;
use nvml_wrapper::Nvml;

/// NVIDIA's management library, which is loaded at run time, and the memory in use on each device before this
/// process used one.
#[derive(Debug)]
pub(super) struct Driver {
    nvml: Nvml,
    before: Vec<Bytes>,
}

impl Driver {
    /// Loads the library, if it exists.
    pub(super) fn load() -> Option<Self> {
        let nvml = Nvml::init().ok()?;
        let devices = 0..nvml.device_count().ok()?;
        let before = devices.map(|index| used(&nvml, index).unwrap_or_default());
        let before = before.collect();
        Some(Self { nvml, before })
    }

    /// The memory in use on the first device called `name`, less what was in use `before`.
    pub(super) fn used(&self, name: &str) -> Option<Bytes> {
        let index = self.index(name)?;
        Some(used(&self.nvml, index as u32)?.saturating_sub(self.before[index]))
    }

    /// The memory of the first device called `name` that no process holds.
    pub(super) fn free(&self, name: &str) -> Option<Bytes> {
        let device = self.nvml.device_by_index(self.index(name)? as u32).ok()?;
        Some(Bytes(device.memory_info().ok()?.free))
    }

    fn index(&self, name: &str) -> Option<usize> {
        (0..self.before.len()).find(|index| {
            let device = self.nvml.device_by_index(*index as u32);
            device
                .and_then(|device| device.name())
                .is_ok_and(|found| found == name)
        })
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
