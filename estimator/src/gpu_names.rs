//! Finds the card that a name means: as people type it, as drivers print it, and as clouds call a machine that has it.

use std::sync::LazyLock;

use recording::Bytes;
use serde::Deserialize;

use crate::gpu::Gpu;

/// The card that a name means.
#[derive(Clone, Debug)]
pub struct NamedGpu {
    /// The card.
    pub gpu: &'static Gpu,
    /// Cards with other memory that have the same name. `gpu` leaves a job the least of them.
    pub others: Vec<&'static Gpu>,
    /// The machine of a cloud, if the name is one.
    pub instance: Option<&'static Instance>,
}

/// A machine of a cloud with GPUs: a row of `data/instances.csv`.
#[derive(Clone, Debug, Deserialize)]
pub struct Instance {
    /// The cloud's name for it.
    pub name: String,
    /// The cloud.
    pub provider: String,
    /// An alias of its GPUs.
    gpu: String,
    /// The number of GPUs.
    pub gpus: u32,
    /// The page that says so.
    pub source: String,
}

static INSTANCES: LazyLock<Vec<Instance>> = LazyLock::new(|| {
    let rows = include_str!("../data/instances.csv").as_bytes();
    let mut rows = csv::Reader::from_reader(rows);
    rows.deserialize()
        .map(|row| row.expect("data/instances.csv is read by a test"))
        .collect()
});

impl Instance {
    /// Every machine, in the order of the data file.
    pub fn all() -> &'static [Self] {
        &INSTANCES
    }

    /// The machine with this name, whatever the capitals and separators, and without Azure's `Standard_`.
    fn named(name: &str) -> Option<&'static Self> {
        let plain = |name: &str| -> String {
            let lower = name.to_lowercase();
            words(lower.strip_prefix("standard_").unwrap_or(&lower)).collect()
        };
        let wanted = plain(name);
        Self::all()
            .iter()
            .find(|known| plain(&known.name) == wanted)
    }
}

/// A name that means no card.
#[derive(Clone, Debug, thiserror::Error)]
#[error("unknown card `{name}`")]
pub struct UnknownGpu {
    /// The name that was looked up.
    pub name: String,
    /// What it may mean.
    pub meaning: Meaning,
}

/// What a name may mean that is no card's.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// The names nearest to it; there may be none.
    Nearest(Vec<String>),
    /// A card of the catalogue with other memory than it is sold with.
    OtherSize(&'static Gpu),
    /// A part of a card that drivers present as one: NVIDIA's multi-instance GPU (MIG) or vGPU.
    Slice,
    /// A device of this machine, by its number.
    Device,
    /// A processor whose GPU has no memory of its own.
    SharedMemory,
}

impl Gpu {
    /// Finds the card that `name` means, whatever the capitals and separators: a name or alias of the catalogue, a
    /// name that a driver prints, either with the memory that the card is sold with, or a machine of a cloud. Several
    /// cards may have the name; the one that leaves a job the least memory is meant. For a class such as `24GB`,
    /// returns the card with the least usable memory sold with that size.
    ///
    /// # Errors
    ///
    /// No card has this name; the error says what it may mean.
    ///
    /// # Examples
    ///
    /// ```
    /// use estimator::Gpu;
    ///
    /// assert_eq!(Gpu::find("NVIDIA GeForce RTX 3090")?.name, "GeForce RTX 3090");
    /// assert_eq!(Gpu::find("24GB")?.marketed_gb, 24.0);
    /// assert_eq!(Gpu::find("p4d.24xlarge")?.name, "A100 40GB");
    /// # Ok::<(), estimator::UnknownGpu>(())
    /// ```
    pub fn find(name: &str) -> Result<&'static Gpu, UnknownGpu> {
        Self::named(name).map(|named| named.gpu)
    }

    /// [`Self::find`], with what else the name means.
    ///
    /// # Errors
    ///
    /// As of [`Self::find`].
    pub fn named(name: &str) -> Result<NamedGpu, UnknownGpu> {
        let class = size(name.trim()).and_then(least_of);
        let found = match (class, Instance::named(name)) {
            (Some(least), _) => NamedGpu::of(vec![least]),
            (None, Some(instance)) => {
                let gpu = NamedGpu::of(called(&plain(&instance.gpu)));
                gpu.map(|named| NamedGpu {
                    instance: Some(instance),
                    ..named
                })
            }
            (None, None) => {
                NamedGpu::of(called(&plain(name))).or_else(|| NamedGpu::of(called_with_size(name)))
            }
        };
        found.ok_or_else(|| UnknownGpu {
            name: name.into(),
            meaning: meaning(name),
        })
    }

    /// The memory that it leaves to a job.
    fn available(&self) -> Bytes {
        self.usable_bytes
            .saturating_sub(self.overhead().cautious_bytes)
    }
}

impl NamedGpu {
    /// The one of `cards` that leaves a job the least memory; none if there are no cards.
    fn of(cards: Vec<&'static Gpu>) -> Option<Self> {
        let gpu: &'static Gpu = cards.iter().min_by_key(|gpu| gpu.available())?;
        let mut others = cards;
        others.retain(|other| other.marketed_gb != gpu.marketed_gb);
        Some(Self {
            gpu,
            others,
            instance: None,
        })
    }
}

/// The card with the least usable memory sold with `gb` GB. Macs are left out, because they share their
/// memory with everything else.
fn least_of(gb: f64) -> Option<&'static Gpu> {
    Gpu::all()
        .iter()
        .filter(|gpu| gpu.marketed_gb == gb && gpu.vendor != "Apple")
        .min_by_key(|gpu| gpu.usable_bytes)
}

/// The GB of a size: `24GB`, `24 gb` and `24G`, and `24GiB` too, since a card with 24 GB has 24 GiB of memory; `24`
/// and `3080-12gb` are no sizes.
fn size(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let number = ["gib", "gb", "g"]
        .iter()
        .find_map(|unit| lower.strip_suffix(unit))?;
    number.trim_end().parse().ok()
}

/// The cards with the name or alias `wanted`, which is [`plain`].
fn called(wanted: &str) -> Vec<&'static Gpu> {
    let called = |gpu: &&Gpu| gpu.names().any(|known| plain(known) == wanted);
    Gpu::all().iter().filter(called).collect()
}

/// The cards that `name` means without the size at its end, sold with that size: `RTX 4090 24GB`.
fn called_with_size(name: &str) -> Vec<&'static Gpu> {
    let Some((base, gb)) = split_size(name) else {
        return Vec::new();
    };
    let mut cards = called(&plain(&base));
    cards.retain(|gpu| gpu.marketed_gb == gb);
    cards
}

/// `A100 80G` as `A100` and 80.
fn split_size(name: &str) -> Option<(String, f64)> {
    let name = name.to_lowercase();
    let mut words: Vec<&str> = words(&name).collect();
    let last = words.pop()?;
    let size = match last {
        // The number is a word of its own.
        "g" | "gb" | "gib" => words.pop()?.parse().ok()?,
        _ => size(last)?,
    };
    Some((words.join(" "), size))
}

/// Words that drivers and people add to a name and that tell no two cards of the catalogue apart.
const ADDED: [&str; 17] = [
    "generation",
    "edition",
    "workstation",
    "server",
    "with",
    "design",
    "gpu",
    "graphics",
    "card",
    "hbm2",
    "hbm2e",
    "hbm3",
    "hbm3e",
    "gddr5",
    "gddr6",
    "gddr6x",
    "gddr7",
];

/// Brands, which people leave out. NVIDIA's smaller chips (Max-Q) have the same memory and multiprocessors.
const BRANDS: [&str; 8] = [
    "nvidia", "geforce", "tesla", "amd", "radeon", "intel", "apple", "max-q",
];

/// `name` without what people leave out or type differently.
fn plain(name: &str) -> String {
    let lower = name.to_lowercase();
    let kept = BRANDS
        .iter()
        .fold(lower, |name, brand| name.replace(brand, ""));
    let kept = words(&kept).filter(|word| !ADDED.contains(word));
    kept.map(|word| if word == "mobile" { "laptop" } else { word })
        .collect()
}

/// The words of `name`, between whatever is neither a letter nor a digit.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
}

/// What `name` may mean, which is no card's.
fn meaning(name: &str) -> Meaning {
    let lower = name.trim().to_lowercase();
    let words: Vec<&str> = words(&lower).collect();
    // `MIG 3g.20gb`, `1g.10gb`; `GRID V100DX-16Q`, `A10-24Q`: vGPU types end in the size and a letter.
    let vgpu = words.last().and_then(|word| word.strip_suffix(['q', 'c']));
    let vgpu = vgpu.is_some_and(|size| size.parse::<u32>().is_ok());
    if words.contains(&"mig") || words.contains(&"grid") || vgpu && words.len() > 1 {
        return Meaning::Slice;
    }
    let of_compute = |word: &&str| {
        word.strip_suffix('g')
            .is_some_and(|n| n.parse::<u8>().is_ok())
    };
    if words.len() == 2 && of_compute(&words[0]) && words[1].ends_with("gb") {
        return Meaning::Slice;
    }
    if matches!(words.first(), Some(&"cuda" | &"gpu")) && words.len() == 2 {
        return Meaning::Device;
    }
    let is_mac = |word: &&str| {
        let number = word.strip_prefix('m').map(str::parse::<u8>);
        matches!(number, Some(Ok(1..=9)))
    };
    let shares = ["jetson", "orin", "apple", "mac", "macbook", "strix"];
    if words.iter().take(2).any(is_mac) || words.iter().any(|word| shares.contains(word)) {
        return Meaning::SharedMemory;
    }
    let without_size = split_size(name).and_then(|(base, _)| NamedGpu::of(called(&plain(&base))));
    match without_size {
        Some(known) => Meaning::OtherSize(known.gpu),
        None => Meaning::Nearest(nearest(&plain(name))),
    }
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
        && least_of(gb).is_some()
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
    names.map(|(_, gpu)| suggested(gpu)).collect()
}

/// The alias that reads best: the last one, if no other card has it too.
fn suggested(gpu: &Gpu) -> String {
    match gpu.aliases.last() {
        Some(last) if called(&plain(last)).len() == 1 => last.clone(),
        _ => gpu.alias().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_card_that_its_aliases_find() {
        assert_eq!(Gpu::all().len(), 148);
        let named = |alias: &str| -> Vec<&str> {
            let cards = Gpu::all()
                .iter()
                .filter(|gpu| gpu.aliases.iter().any(|a| a == alias));
            cards.map(|gpu| gpu.name.as_str()).collect()
        };
        for gpu in Gpu::all() {
            assert!(gpu.usable_bytes <= gpu.physical_bytes.unwrap_or(gpu.usable_bytes));
            assert_eq!(Gpu::find(gpu.alias()).unwrap().name, gpu.name);
            assert_eq!(Gpu::find(gpu.short_name()).unwrap().name, gpu.name);
            for alias in &gpu.aliases {
                let found = Gpu::find(alias).unwrap().name.as_str();
                assert!(named(alias).contains(&found), "{alias}: {found}");
            }
        }
    }

    #[test]
    fn every_instance_has_a_card_and_a_source() {
        for instance in Instance::all() {
            let named = Gpu::named(&instance.name).unwrap();
            assert_eq!(called(&plain(&instance.gpu)), [named.gpu], "{instance:?}");
            assert!(
                instance.gpus > 0 && instance.source.starts_with("https://"),
                "{instance:?}"
            );
        }
        let azure = Gpu::named("NC24ads_A100_v4").unwrap();
        assert_eq!(azure.gpu.name, "A100 80GB PCIe");
        assert_eq!(azure.instance.unwrap().gpus, 1);
        assert_eq!(
            Gpu::named("p4d.24xlarge").unwrap().instance.unwrap().gpus,
            8
        );
    }

    /// As people and drivers write them; the sizes are those in the names, or the vendors'.
    #[test]
    fn cards_are_found_as_people_and_drivers_write_them() {
        for (name, found) in [
            ("3090", "GeForce RTX 3090"),
            ("NVIDIA RTX_3090", "GeForce RTX 3090"),
            ("RTX 4090 24GB", "GeForce RTX 4090"),
            ("4090 24g", "GeForce RTX 4090"),
            ("A100 80G", "A100 80GB SXM"),
            ("a100-80g", "A100 80GB SXM"),
            ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
            ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
            ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
            ("NVIDIA H100 80GB HBM3", "H100 SXM 80GB"),
            ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
            ("NVIDIA H100 NVL", "H100 NVL 94GB"),
            ("NVIDIA GH200 480GB", "GH200 96GB"),
            ("H200 NVL", "H200 SXM"),
            ("NVIDIA B300 SXM6 AC", "B300"),
            ("Tesla V100-SXM3-32GB", "Tesla V100 32GB"),
            ("V100S-PCIE-32GB", "Tesla V100 32GB"),
            ("Tesla P100-PCIE-16GB", "Tesla P100 16GB"),
            ("NVIDIA T4 16GB", "Tesla T4"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
            (
                "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
                "RTX PRO 6000 Blackwell 96GB",
            ),
            (
                "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
                "RTX PRO 6000 Blackwell 96GB",
            ),
            (
                "NVIDIA GeForce RTX 5090 Laptop GPU",
                "GeForce RTX 5090 Laptop",
            ),
            (
                "NVIDIA GeForce RTX 4070 Laptop GPU",
                "GeForce RTX 4070 Laptop",
            ),
            ("RTX 3080 Mobile", "GeForce RTX 3080 Laptop 8GB"),
            ("rtx3060m", "GeForce RTX 3060 Laptop"),
            ("1080 Ti 11GB", "GeForce GTX 1080 Ti"),
            ("AMD Instinct MI300X", "Instinct MI300X"),
            ("Radeon Pro W7900", "Radeon PRO W7900"),
            ("M3 Pro 36GB", "Apple M3 Pro 36GB"),
        ] {
            let gpu = Gpu::find(name).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(gpu.name, found, "{name}");
        }
    }

    /// Of the cards with one name the smallest is meant, and the others are named.
    #[test]
    fn an_ambiguous_name_is_the_smallest_card() {
        for (name, gb, others) in [
            ("RTX 6000", 24.0, &[48.0, 96.0][..]),
            ("5060ti", 8.0, &[16.0]),
            ("NVIDIA GeForce RTX 4060 Ti", 8.0, &[16.0]),
            ("A100", 40.0, &[80.0, 80.0]),
            ("v100", 16.0, &[32.0]),
            ("GH200", 96.0, &[144.0]),
            ("M2 Max", 32.0, &[64.0, 96.0]),
            ("rtx-3090", 24.0, &[]),
        ] {
            let named = Gpu::named(name).unwrap();
            let sizes: Vec<_> = named.others.iter().map(|gpu| gpu.marketed_gb).collect();
            assert_eq!((named.gpu.marketed_gb, &sizes[..]), (gb, others), "{name}");
        }
        // With 94 GB it is sold as the H100 NVL; the two with 80 GB are one size.
        assert_eq!(Gpu::find("h100").unwrap().marketed_gb, 80.0);
    }

    #[test]
    fn a_class_is_its_least_usable_card() {
        // The A10 with ECC on: 22,516 MiB, the lowest of the 24 GB cards in the data.
        for name in ["24GB", "24 gb", "24G", "24GiB"] {
            assert_eq!(
                Gpu::find(name).unwrap().usable_bytes,
                Bytes::mib(22_516),
                "{name}"
            );
        }
        assert!(Gpu::find("23GB").is_err());
    }

    #[test]
    fn what_no_card_is_called_says_what_it_may_mean() {
        let meaning = |name: &str| Gpu::find(name).unwrap_err().meaning;
        for name in ["A100 MIG 3g.20gb", "1g.10gb", "GRID V100DX-16Q", "A10-24Q"] {
            assert!(matches!(meaning(name), Meaning::Slice), "{name}");
        }
        for name in ["3060 6GB", "2080 Ti 22GB"] {
            assert!(matches!(meaning(name), Meaning::OtherSize(_)), "{name}");
        }
        for name in ["Jetson Orin", "Jetson AGX Orin 64GB", "M9 Ultra"] {
            assert!(matches!(meaning(name), Meaning::SharedMemory), "{name}");
        }
        assert!(matches!(meaning("cuda:0"), Meaning::Device));
    }

    #[test]
    fn unknown_names_get_the_nearest() {
        let nearest = |name: &str| match Gpu::find(name).unwrap_err().meaning {
            Meaning::Nearest(names) => names,
            other => panic!("{name}: {other:?}"),
        };
        assert!(nearest("rtx-3091").contains(&"rtx-3090".to_string()));
        assert_eq!(nearest("24"), ["24GB"]);
    }
}
