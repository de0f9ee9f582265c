//! The catalogue of GPUs that people rent, buy or queue for.

use std::sync::LazyLock;

use recording::Bytes;
use serde::{Deserialize, Serialize};

use crate::card::{CardSpec, DeviceSpec, Runtime};
use crate::gpu::{Gpu, Row};

/// The memory that a process takes besides the pools: the context, libraries, loaded kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Overhead {
    /// The typical overhead.
    pub typical_bytes: Bytes,
    /// An overhead that none of the 26 processes of [`Overhead::of`] exceeded; verdicts use it.
    pub cautious_bytes: Bytes,
}

impl Overhead {
    /// That of a card whose multiprocessors are not known: the largest card of [`Overhead::of`] has 188.
    pub const LARGEST: Self = Self {
        typical_bytes: Bytes::mib(667),
        cautious_bytes: Bytes::mib(6 * 188),
    };

    /// The overhead on a card with this many multiprocessors.
    ///
    /// Source: 26 public out-of-memory messages of PyTorch processes, 2023 to 2026, on ten kinds of NVIDIA
    /// card from the T4 (40 SMs, 104 to 147 MiB) to the RTX PRO 6000 Blackwell (188 SMs, 696 MiB). The
    /// least-squares line is 22 + 3.43 MiB for each multiprocessor (root mean square error 72 MiB, worst 183
    /// MiB), and 6 MiB for each covers all of them. On an H200 (132 SMs: 475 and 792 MiB) burn's processes took 535 to 668 MiB,
    /// and PyTorch's 748 to 782: `docs/data/h200`.
    pub fn of(multiprocessors: u32) -> Self {
        let count = f64::from(multiprocessors);
        Self {
            typical_bytes: Bytes(((22.0 + 3.43 * count) * 1_048_576.0) as u64),
            cautious_bytes: Bytes::mib(6 * u64::from(multiprocessors)),
        }
    }
}

static GPUS: LazyLock<Vec<Gpu>> = LazyLock::new(|| {
    let mut rows = csv::Reader::from_reader(include_str!("../data/gpus.csv").as_bytes());
    rows.deserialize::<Row>()
        .map(|row| row.expect("data/gpus.csv is read by a test").gpu())
        .collect()
});

impl Gpu {
    /// Every card, in the order of the data file.
    pub fn all() -> &'static [Gpu] {
        &GPUS
    }

    /// The card's first alias, which no other card has, for command lines.
    pub fn alias(&self) -> &str {
        self.aliases.first().unwrap_or(&self.name)
    }

    /// Its name without its product line, for narrow columns: `RTX 3090`.
    pub fn short_name(&self) -> &str {
        ["GeForce ", "Quadro ", "Tesla ", "Radeon "]
            .iter()
            .find_map(|line| self.name.strip_prefix(line))
            .unwrap_or(&self.name)
    }

    /// The memory that a process takes on this card besides the pools.
    pub fn overhead(&self) -> Overhead {
        self.multiprocessors.map_or(Overhead::LARGEST, Overhead::of)
    }

    /// This card as `runtime` sees it, with its usable memory as the total and its cautious overhead.
    pub fn spec(&self, runtime: Runtime) -> DeviceSpec {
        let unlimited = CardSpec::unlimited();
        let card = CardSpec {
            name: self.name.clone(),
            compute_capability: self
                .compute_capability
                .unwrap_or(unlimited.compute_capability),
            multiprocessors: self.multiprocessors.unwrap_or(unlimited.multiprocessors),
            total: Some(self.usable_bytes),
            overhead: self.overhead().cautious_bytes,
            largest_binding: self.largest_binding(),
            ..unlimited
        };
        DeviceSpec::new(card, runtime)
    }

    /// The largest buffer that a shader can bind.
    ///
    /// Metal states a limit of its own (`maxBufferLength`: `wgpu-hal` 30.0.1, `src/metal/adapter.rs`). It is taken to be
    /// half of a Mac's memory: a Mac mini with 8 GB states 4 GiB (<https://github.com/ggml-org/llama.cpp/pull/1706>;
    /// other Macs not verified).
    fn largest_binding(&self) -> Bytes {
        match (self.vendor.as_str(), self.physical_bytes) {
            ("Apple", Some(physical)) => physical / 2,
            _ => CardSpec::LARGEST_BINDING,
        }
    }

    /// Whether `runtime` drives cards of this vendor.
    pub fn is_driven_by(&self, runtime: Runtime) -> bool {
        runtime.rules().drives(&self.vendor)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Provenance;

    /// Three quarters of 64 and of 192 GiB, two thirds of 8 GiB, and the 19,069 MB of a log of a Mac with 24 GB.
    #[test]
    fn a_mac_keeps_a_part_of_its_memory() {
        let usable = |name| Gpu::find(name).unwrap().usable_bytes;
        assert_eq!(usable("m1-max-64gb"), Bytes::mib(48 * 1024));
        assert_eq!(usable("m2-ultra-192gb"), Bytes::mib(144 * 1024));
        assert_eq!(usable("m1-8gb"), Bytes::mib(5461));
        assert_eq!(usable("apple-24gb"), Bytes::mib(18_186));
    }

    /// Half of 64, 192 and 24 GiB; and what `wgpu-hal` states for cards with Vulkan: 2^31 - 1, in whole words.
    #[test]
    fn a_mac_binds_half_of_its_memory() {
        let binding = |name| {
            let device = Gpu::find(name).unwrap().spec(Runtime::Wgpu);
            device.card.largest_binding
        };
        assert_eq!(binding("m1-max-64gb"), Bytes::gib(32));
        assert_eq!(binding("m2-ultra-192gb"), Bytes::gib(96));
        assert_eq!(binding("apple-24gb"), Bytes::gib(12));
        for name in ["rtx-3090", "rx-7900-xtx"] {
            assert_eq!(binding(name), Bytes(2_147_483_644), "{name}");
        }
    }

    #[test]
    fn a_total_that_no_driver_reported_is_derived_and_says_from_what() {
        for name in [
            "l40",
            "rtx-5000-ada",
            "apple-24gb",
            "m2-ultra",
            "4070-super",
        ] {
            let gpu = Gpu::find(name).unwrap();
            assert_eq!(gpu.provenance, Provenance::Derived, "{name}");
            assert!(!gpu.source.is_empty(), "{name}");
            // The source sends its reader there.
            let told = gpu.source.contains("note");
            assert!(!told || !gpu.note.is_empty(), "{name}");
        }
        let reported = Gpu::find("l40s").unwrap();
        assert_eq!(reported.provenance, Provenance::Reported);
        assert_eq!(reported.source, "torch");
    }
}
