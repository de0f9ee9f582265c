//! The NVIDIA card of this machine, for `--gpu auto`.

use estimator::{Bytes, DeviceSpec, Gpu, NamedGpu, Overhead, Runtime, Tuning};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::card::Card;
use crate::user_error::UserError;

/// The value of `--gpu` that means the card of this machine.
pub const AUTO: &str = "auto";

/// An NVIDIA card of this machine, as NVIDIA's management library (NVML) describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalGpu {
    /// Its name, as the driver prints it.
    pub name: String,
    /// What tells it from all others: `GPU-8932f937-…`.
    pub uuid: String,
    /// The memory that processes can allocate on it: all of it, less what the driver keeps for itself.
    pub usable: Bytes,
    /// The fitted memory, minus ECC if it is on.
    pub total: Bytes,
    /// Its compute capability times ten.
    pub compute_capability: u32,
}

impl LocalGpu {
    /// The card of this machine; of several, the one with the least memory, on which a job fits on all of them.
    ///
    /// # Errors
    ///
    /// There is no NVIDIA driver, or it knows no card.
    pub fn find() -> Result<Self, UserError> {
        let gpus = Self::all().map_err(|error| {
            UserError::new(format!("--gpu auto found no NVIDIA driver: {error}")).hint(
                "name the card: --gpu rtx-3090, or --gpu 24GB; `fit-check gpus` lists the cards",
            )
        })?;
        gpus.into_iter().min_by_key(|gpu| gpu.usable).ok_or_else(|| {
            UserError::new("--gpu auto found no card of NVIDIA's in this machine")
                .hint("name the card: --gpu rtx-3090, or --gpu 24GB; `fit-check gpus` lists the cards")
        })
    }

    /// The cards of this machine, in the order of their indices.
    ///
    /// # Errors
    ///
    /// There is no NVIDIA driver, or it does not answer.
    pub fn all() -> Result<Vec<Self>, NvmlError> {
        let nvml = Nvml::init()?;
        let indices = 0..nvml.device_count()?;
        let gpu = |index| {
            let device = nvml.device_by_index(index)?;
            let memory = device.memory_info()?;
            let capability = device.cuda_compute_capability()?;
            Ok(Self {
                name: device.name()?,
                uuid: device.uuid()?,
                usable: Bytes(memory.total.saturating_sub(memory.reserved)),
                total: Bytes(memory.total),
                compute_capability: (capability.major * 10 + capability.minor).unsigned_abs(),
            })
        };
        indices.map(gpu).collect()
    }

    /// The card of `all` that a program should use: the first that `visible` names, the value of `CUDA_VISIBLE_DEVICES`; without it, the
    /// one with the least memory.
    pub fn chosen(all: Vec<Self>, visible: Option<&str>) -> Option<Self> {
        let mut all = all.into_iter();
        let Some(visible) = visible else {
            return all.min_by_key(|gpu| gpu.usable);
        };
        let first = visible.split(',').next().unwrap_or_default().trim();
        match first.parse() {
            Ok(index) => all.nth(index),
            // CUDA takes the first letters of an id too.
            Err(_) => all.find(|gpu| first.starts_with("GPU-") && gpu.uuid.starts_with(first)),
        }
    }

    /// The catalogue's card with this name and, of several, with the nearest memory.
    pub fn known(&self) -> Option<&'static Gpu> {
        let NamedGpu { gpu, others, .. } = Gpu::named(&self.name).ok()?;
        let off = |gpu: &&Gpu| {
            let sold = gpu.physical_bytes.unwrap_or(gpu.usable_bytes);
            sold.0.abs_diff(self.total.0)
        };
        [gpu].into_iter().chain(others).min_by_key(off)
    }

    /// This card with the memory that its driver reports, driven by `runtime`. Of a card that the catalogue does not know,
    /// a process takes as much besides the pools as of the largest that it knows.
    pub fn card(&self, runtime: Runtime, tuning: Tuning) -> Card {
        let gpu = self.known();
        let device = match gpu {
            Some(gpu) => gpu.spec(runtime),
            None => {
                let mut device = DeviceSpec::unlimited(runtime);
                device.card.name = self.name.clone();
                device.card.compute_capability = self.compute_capability;
                device.card.overhead = Overhead::LARGEST.cautious_bytes;
                device
            }
        };
        let overhead = device.card.overhead;
        let device = device.with_memory(self.usable, overhead);
        Card {
            gpu,
            ..Card::sized(device.with_tuning(tuning))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(name: &str, usable: Bytes, total: Bytes, compute_capability: u32) -> LocalGpu {
        LocalGpu {
            name: name.into(),
            uuid: format!("GPU-{}", total.0),
            usable,
            total,
            compute_capability,
        }
    }

    /// The memory of the two RTX 4060 Ti, for which drivers print one name: `estimator/data/gpus.csv`.
    #[test]
    fn of_two_cards_with_one_name_the_memory_decides() {
        for (mib, gb) in [(8188, 8.0), (16380, 16.0)] {
            let (usable, total) = (Bytes::mib(mib - 400), Bytes::mib(mib));
            let local = local("NVIDIA GeForce RTX 4060 Ti", usable, total, 89);
            let card = local.card(Runtime::Cuda, Tuning::Cold);
            assert_eq!(card.gpu.unwrap().marketed_gb, gb);
            assert_eq!(card.usable(), Bytes::mib(mib - 400));
        }
    }

    #[test]
    fn a_card_that_the_catalogue_does_not_know_has_the_memory_of_its_driver() {
        let local = local("NVIDIA Something", Bytes::gib(30), Bytes::gib(32), 120);
        let card = local.card(Runtime::Cuda, Tuning::Warm);
        assert!(card.gpu.is_none() && card.device.card.compute_capability == 120);
        assert!(card.available() < Bytes::gib(30));
    }

    #[test]
    fn a_program_uses_the_card_that_is_visible() {
        let all =
            || [32, 8, 16].map(|gib| local("NVIDIA Something", Bytes::gib(gib), Bytes(gib), 90));
        let chosen = |visible| {
            let chosen = LocalGpu::chosen(all().into(), visible);
            chosen.map(|gpu| gpu.total.0)
        };
        assert_eq!(chosen(None), Some(8));
        assert_eq!(chosen(Some("2,0")), Some(16));
        assert_eq!(chosen(Some("GPU-3")), Some(32));
        for none in ["", "3", "-1", "MIG-3", "GPU-7"] {
            assert_eq!(chosen(Some(none)), None, "{none}");
        }
    }
}
