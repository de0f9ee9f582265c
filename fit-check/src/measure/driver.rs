//! The figures that the driver reports about the whole device.

use burn::tensor::{Device, PciAddress};
use estimator::Bytes;
use nvml_wrapper::Nvml;
use nvml_wrapper::struct_wrappers::device::PciInfo;

use crate::counting_driver;

/// NVIDIA's management library, which is loaded at run time, and the memory in use on each device before this
/// process used one.
#[derive(Debug)]
pub(super) struct Driver {
    nvml: Nvml,
    before: Vec<Bytes>,
}

/// What tells a device from the others of the library.
#[derive(Clone, Debug)]
pub(super) struct DeviceKey {
    /// The name that its runtime reports.
    name: String,
    /// Its place on the bus, if its runtime reports it.
    address: Option<PciAddress>,
}

impl DeviceKey {
    /// The key of `device`; none if its runtime does not say which one it is.
    pub(super) fn of(device: &Device) -> Option<Self> {
        let identity = device.identity()?;
        Some(Self {
            name: identity.name,
            address: identity.physical.and_then(|card| card.pci_address),
        })
    }
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

    /// The memory in use on the device `key`, less what was in use `before`.
    pub(super) fn used(&self, key: &DeviceKey) -> Option<Bytes> {
        let index = self.index(key)?;
        Some(used(&self.nvml, index as u32)?.saturating_sub(self.before[index]))
    }

    /// The memory of the device `key` that no process holds.
    pub(super) fn free(&self, key: &DeviceKey) -> Option<Bytes> {
        let device = self.nvml.device_by_index(self.index(key)? as u32).ok()?;
        Some(Bytes(device.memory_info().ok()?.free))
    }

    /// The index of the device with the name of `key`; of several, the one with its address, or the one that this
    /// process uses. `None` if that is not known. A part of a GPU (MIG) has the address of the whole, whose memory is
    /// not its own, and another name: it is not known.
    fn index(&self, key: &DeviceKey) -> Option<usize> {
        let device = |index: usize| self.nvml.device_by_index(index as u32);
        let is_called = |index: &usize| {
            let found = device(*index).and_then(|device| device.name());
            found.is_ok_and(|found| found == key.name)
        };
        let is_there = |index: &usize| {
            let found = device(*index).and_then(|device| device.pci_info());
            let found = found.ok().zip(key.address);
            found.is_some_and(|(found, address)| is_at(&found, address))
        };
        let is_used = |index: &usize| {
            let processes = device(*index).and_then(|device| device.running_compute_processes());
            let mut pids = processes.into_iter().flatten().map(|process| process.pid);
            pids.any(|pid| pid == std::process::id())
        };
        let called_so: Vec<_> = (0..self.before.len()).filter(is_called).collect();
        match called_so.as_slice() {
            [only] => Some(*only),
            several => {
                let mut indices = several.iter().copied();
                let by_address = indices.clone().find(is_there);
                by_address.or_else(|| indices.find(is_used))
            }
        }
    }

    /// The driver's version.
    pub(super) fn version(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }
}

/// Whether the device that the library describes so is at `address`.
fn is_at(found: &PciInfo, address: PciAddress) -> bool {
    found.domain == address.domain
        && found.bus == u32::from(address.bus)
        && found.device == u32::from(address.device)
}

/// Memory in use on the whole device, by every process.
fn used(nvml: &Nvml, index: u32) -> Option<Bytes> {
    let device = nvml.device_by_index(index).ok()?;
    Some(Bytes(device.memory_info().ok()?.used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_gpus_of_one_name_are_told_apart_by_their_places() {
        let found = PciInfo {
            bus: 0x65,
            bus_id: "00000000:65:00.0".into(),
            device: 0,
            domain: 0,
            pci_device_id: 0,
            pci_sub_system_id: None,
        };
        let address = |text: &str| text.parse::<PciAddress>().unwrap();
        assert!(is_at(&found, address("0000:65:00.0")));
        assert!(!is_at(&found, address("0000:66:00.0")));
        assert!(!is_at(&found, address("0001:65:00.0")));
    }
}
