//! A card of the catalogue, and how a row of `data/gpus.csv` becomes one.

use recording::Bytes;
use serde::{Deserialize, Serialize};

/// The source of a card's usable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// The lowest total that a driver has reported in public logs.
    Reported,
    /// Computed from the fitted memory, or from another figure of the card: no driver's total is known.
    Derived,
}

/// One card of the catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// The product name.
    pub name: String,
    /// Other names that people type for it.
    pub aliases: Vec<String>,
    /// The vendor.
    pub vendor: String,
    /// The GPU generation.
    pub architecture: String,
    /// CUDA compute capability times ten; none for other vendors.
    pub compute_capability: Option<u32>,
    /// Streaming multiprocessors, compute units, Xe cores or GPU cores.
    pub multiprocessors: Option<u32>,
    /// The advertised memory in GB.
    pub marketed_gb: f64,
    /// The fitted memory, minus ECC if it is on by default.
    pub physical_bytes: Option<Bytes>,
    /// The memory that can be allocated: the least value that is known.
    pub usable_bytes: Bytes,
    /// The kind of source of `usable_bytes`.
    pub provenance: Provenance,
    /// The source of `usable_bytes`: a driver query, an error message, a log, or what it is derived from.
    pub source: String,
    /// Year of its launch.
    pub launch_year: Option<u32>,
    /// Memory bandwidth in GB/s; vendor data, not read again from a source.
    pub bandwidth_gb_s: Option<f64>,
    /// US launch list price.
    pub launch_price_usd: Option<f64>,
    /// Peculiarities of the card.
    pub note: String,
}

/// A row of `data/gpus.csv`.
#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    name: String,
    aliases: String,
    vendor: String,
    architecture: String,
    compute_capability: Option<f64>,
    sm_count: Option<u32>,
    marketed_gb: f64,
    physical_mib: Option<u64>,
    cuda_total_mib: Option<u64>,
    cuda_total_source: String,
    launch_year: Option<u32>,
    memory_bandwidth_gb_s: Option<f64>,
    launch_price_usd: Option<f64>,
    cuda_total_min_mib: Option<u64>,
    note: String,
}

/// What the data has in place of a source if a row's total was computed by hand, as its note tells.
const COMPUTED: &str = "derived";

/// The usable MiB of a card of `vendor` whose usable memory nobody has reported, and from what they are derived.
///
/// A Mac shares its memory with its GPU, and Metal recommends a limit (`recommendedMaxWorkingSetSize`): two thirds on Macs
/// with up to 32 GB (10,922 of 16,384 MiB: ise-uiuc/magicoder, issue 19; 21,845 of 32,768: ollama/ollama, issue 434), three
/// quarters on larger ones (49,152 of 65,536: ggml-org/llama.cpp, issue 1870; 73,728 of 98,304: its issue 3213).
///
/// Of an Intel card with 16,384 MiB torch reports 15,473, which is 5.6 % less (the row of the Arc A770).
///
/// Drivers of other cards keep memory for themselves. The larger of 520 MiB and 1.9 % of the fitted memory promises
/// too much for none of the 62 listed NVIDIA cards from 2017 on (except the Quadro RTX 5000 with ECC switched on).
fn derived(vendor: &str, physical_mib: u64) -> (u64, &'static str) {
    match vendor {
        "Apple" if physical_mib <= 32 << 10 => (
            physical_mib * 2 / 3,
            "two thirds of the memory, which Metal recommends on Macs with up to 32 GB",
        ),
        "Apple" => (
            physical_mib * 3 / 4,
            "three quarters of the memory, which Metal recommends on larger Macs",
        ),
        "Intel" => (
            physical_mib * 944 / 1000,
            "fitted memory less what torch lacks on an Arc A770",
        ),
        _ => (
            physical_mib - 520.max(physical_mib * 19 / 1000),
            "fitted memory less what NVIDIA's drivers keep",
        ),
    }
}

impl Row {
    /// The usable MiB, and where that figure is from.
    fn usable(&self) -> (u64, Provenance, String) {
        match self.cuda_total_min_mib.or(self.cuda_total_mib) {
            Some(mib) if self.cuda_total_source == COMPUTED => {
                let source = "from the figure in the note";
                (mib, Provenance::Derived, source.into())
            }
            Some(mib) => (mib, Provenance::Reported, self.cuda_total_source.clone()),
            None => {
                let sold = (self.marketed_gb * 1024.0) as u64;
                let (mib, source) = derived(&self.vendor, self.physical_mib.unwrap_or(sold));
                (mib, Provenance::Derived, source.into())
            }
        }
    }

    /// The card of the row.
    pub fn gpu(self) -> Gpu {
        let (usable_mib, provenance, source) = self.usable();
        Gpu {
            name: self.name,
            aliases: self.aliases.split(';').map(str::to_string).collect(),
            vendor: self.vendor,
            architecture: self.architecture,
            compute_capability: self.compute_capability.map(|cc| (cc * 10.0).round() as u32),
            multiprocessors: self.sm_count,
            marketed_gb: self.marketed_gb,
            physical_bytes: self.physical_mib.map(Bytes::mib),
            usable_bytes: Bytes::mib(usable_mib),
            provenance,
            source,
            launch_year: self.launch_year,
            bandwidth_gb_s: self.memory_bandwidth_gb_s,
            launch_price_usd: self.launch_price_usd,
            note: self.note,
        }
    }
}
