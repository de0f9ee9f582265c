//! The catalogue of GPUs that people rent, buy or queue for.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::Bytes;
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
    /// The overhead on a card with this many multiprocessors.
    ///
    /// Source: 26 public out-of-memory messages of PyTorch processes, 2023 to 2026, on ten kinds of NVIDIA
    /// card from the T4 (40 SMs, 104 to 147 MiB) to the RTX PRO 6000 Blackwell (188 SMs, 696 MiB). The
    /// least-squares line is 22 + 3.43 MiB for each multiprocessor (root mean square error 72 MiB, worst 183
    /// MiB), and 6 MiB for each covers all of them. burn's own processes have not been measured on a GPU yet.
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

/// A name that is not in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown card `{name}`")]
pub struct UnknownGpu {
    /// The name that was looked up.
    pub name: String,
    /// The names nearest to it.
    pub nearest: Vec<String>,
}

impl Gpu {
    /// Every card, in the order of the data file.
    pub fn all() -> &'static [Gpu] {
        &GPUS
    }

    /// Finds the card with this name or alias, whatever the capitals and separators. For a class such as
    /// `24GB`, returns the card with the least usable memory sold with that size.
    ///
    /// # Errors
    ///
    /// No card has this name; the error has the nearest names.
    ///
    /// # Examples
    ///
    /// ```
    /// use estimator::Gpu;
    ///
    /// assert_eq!(Gpu::find("RTX 3090")?.name, "GeForce RTX 3090");
    /// assert_eq!(Gpu::find("24GB")?.marketed_gb, 24.0);
    /// # Ok::<(), estimator::UnknownGpu>(())
    /// ```
    pub fn find(name: &str) -> Result<&'static Gpu, UnknownGpu> {
        if let Some(size) = class(name)
            && let Some(least) = Self::least_of(size)
        {
            return Ok(least);
        }
        let wanted = plain(name);
        let called = |gpu: &&Gpu| gpu.names().any(|known| plain(known) == wanted);
        Self::all().iter().find(called).ok_or_else(|| UnknownGpu {
            name: name.into(),
            nearest: nearest(&wanted),
        })
    }

    /// The card with the least usable memory sold with `gb` GB. Macs are left out, because they share their
    /// memory with everything else.
    fn least_of(gb: f64) -> Option<&'static Gpu> {
        Self::all()
            .iter()
            .filter(|gpu| gpu.marketed_gb == gb && gpu.vendor != "Apple")
            .min_by_key(|gpu| gpu.usable_bytes)
    }

    /// The card's first alias, for command lines.
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
        // If the count is not known, use that of the largest card in the fit.
        Overhead::of(self.multiprocessors.unwrap_or(188))
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

    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

/// The size of a class in GB: `24GB`, `24gb` and `24 GB` are classes, `24GiB` and `3080-12gb` are not.
fn class(name: &str) -> Option<f64> {
    let lower = name.trim().to_ascii_lowercase();
    lower.strip_suffix("gb")?.trim().parse().ok()
}

/// `name` without what people leave out or type differently.
fn plain(name: &str) -> String {
    let lower = name.to_lowercase();
    let words = ["nvidia", "geforce", "tesla", "amd", "radeon"];
    let kept: String = words
        .iter()
        .fold(lower, |name, word| name.replace(word, ""));
    kept.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// How similar a name must be to what was typed to be suggested (Jaro-Winkler, of 1), and how many are suggested at
/// most. Both are chosen.
const SIMILAR: f64 = 0.75;
const MAX_SUGGESTIONS: usize = 4;

/// The names nearest to `wanted`, which is [`plain`]: the class of a size without its unit, or with another one, or
/// else cards.
fn nearest(wanted: &str) -> Vec<String> {
    let size = wanted.trim_end_matches(|c: char| c.is_ascii_lowercase());
    if let Ok(gb) = size.parse()
        && Gpu::least_of(gb).is_some()
    {
        return vec![format!("{gb}GB")];
    }
    let mut near: Vec<_> = Gpu::all()
        .iter()
        .filter_map(|gpu| {
            let best = gpu
                .names()
                .map(|name| strsim::jaro_winkler(&plain(name), wanted))
                .max_by(f64::total_cmp)?;
            Some((best, gpu))
        })
        .filter(|(similarity, _)| *similarity > SIMILAR)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let names = near.into_iter().take(MAX_SUGGESTIONS);
    names
        .map(|(_, gpu)| gpu.aliases.last().cloned().unwrap_or(gpu.name.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::gpu::Provenance;

    #[test]
    fn every_row_is_a_card_that_its_aliases_find() {
        assert_eq!(Gpu::all().len(), 103);
        let mut seen = HashMap::new();
        for gpu in Gpu::all() {
            assert!(gpu.usable_bytes <= gpu.physical_bytes.unwrap_or(gpu.usable_bytes));
            for alias in &gpu.aliases {
                let other = seen.insert(plain(alias), &gpu.name);
                assert!(
                    other.is_none_or(|other| *other == gpu.name),
                    "{alias} names two"
                );
                assert_eq!(Gpu::find(alias).unwrap().name, gpu.name);
            }
            assert_eq!(Gpu::find(gpu.short_name()).unwrap().name, gpu.name);
        }
    }

    #[test]
    fn cards_are_found_as_people_type_them() {
        for name in [
            "3090",
            "rtx3090",
            "RTX 3090",
            "geforce rtx 3090",
            "NVIDIA RTX_3090",
        ] {
            assert_eq!(Gpu::find(name).unwrap().name, "GeForce RTX 3090", "{name}");
        }
        assert_eq!(Gpu::find("a100-80gb").unwrap().marketed_gb, 80.0);
    }

    #[test]
    fn a_class_is_its_least_usable_card() {
        // The A10 with ECC on: 22,516 MiB, the lowest of the 24 GB cards in the data.
        assert_eq!(Gpu::find("24GB").unwrap().usable_bytes, Bytes::mib(22_516));
        assert!(Gpu::find("23GB").is_err());
    }

    /// Three quarters of 64 and of 192 GiB, and the 19,069 MB of a log of a Mac with 24 GB.
    #[test]
    fn a_mac_keeps_a_quarter_of_its_memory() {
        let usable = |name| Gpu::find(name).unwrap().usable_bytes;
        assert_eq!(usable("m1-max"), Bytes::mib(48 * 1024));
        assert_eq!(usable("m2-ultra"), Bytes::mib(144 * 1024));
        assert_eq!(usable("apple-24gb"), Bytes::mib(18_186));
    }

    /// Half of 64, 192 and 24 GiB; and what `wgpu-hal` states for cards with Vulkan: 2^31 - 1, in whole words.
    #[test]
    fn a_mac_binds_half_of_its_memory() {
        let binding = |name| {
            let device = Gpu::find(name).unwrap().spec(Runtime::Wgpu);
            device.card.largest_binding
        };
        assert_eq!(binding("m1-max"), Bytes::gib(32));
        assert_eq!(binding("m2-ultra"), Bytes::gib(96));
        assert_eq!(binding("apple-24gb"), Bytes::gib(12));
        for name in ["rtx-3090", "rx-7900-xtx"] {
            assert_eq!(binding(name), Bytes(2_147_483_644), "{name}");
        }
    }

    #[test]
    fn a_total_that_no_driver_reported_is_derived_and_says_from_what() {
        for name in ["l40", "rtx-5000-ada", "apple-24gb", "m1-max", "4070-super"] {
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

    #[test]
    fn unknown_names_get_the_nearest() {
        let unknown = Gpu::find("rtx-3091").unwrap_err();
        assert!(
            unknown.nearest.contains(&"rtx-3090".to_string()),
            "{unknown:?}"
        );
        for size in ["24", "24 GiB", "24g"] {
            assert_eq!(Gpu::find(size).unwrap_err().nearest, ["24GB"], "{size}");
        }
    }
}
