//! `PYTORCH_CUDA_ALLOC_CONF`: `c10/core/AllocatorConfig.cpp` and `c10/cuda/CUDAAllocatorConfig.cpp` (PyTorch 2.15).

use std::str::FromStr;

const MIB: u64 = 1 << 20;

/// The intervals of `roundup_power2_divisions`: 1 MiB, 2 MiB, … 32 GiB.
const INTERVALS: usize = 16;

/// The options that decide how the allocator takes memory from the device.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatorConfig {
    /// Whether segments grow page by page (`expandable_segments`).
    pub expandable_segments: bool,
    /// Blocks of this size and above are never split (`max_split_size_mb`); none if all may be.
    pub max_split_bytes: Option<u64>,
    /// How much larger than a request a block may be that is not split (`max_non_split_rounding_mb`).
    pub max_non_split_rounding_bytes: u64,
    /// The segment that blocks between 1 and 10 MiB share (`large_segment_size_mb`).
    pub large_segment_bytes: u64,
    /// The share of the allowed memory above which old cached blocks are given back
    /// (`garbage_collection_threshold`). PyTorch does so only if a share of the device is set below.
    pub garbage_collection_threshold: Option<f64>,
    /// The share of the device that the process may take (`per_process_memory_fraction`); none if all.
    pub memory_fraction: Option<f64>,
    /// For each interval of sizes, into how many parts a power of two is divided for rounding; 0 if it is not
    /// (`roundup_power2_divisions`).
    divisions: [u64; INTERVALS],
}

impl Default for AllocatorConfig {
    fn default() -> Self {
        Self {
            expandable_segments: false,
            max_split_bytes: None,
            max_non_split_rounding_bytes: 20 * MIB,
            large_segment_bytes: 20 * MIB,
            garbage_collection_threshold: None,
            memory_fraction: None,
            divisions: [0; INTERVALS],
        }
    }
}

impl AllocatorConfig {
    /// The variables that PyTorch reads, the first that is set.
    pub const VARIABLES: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

    /// The same configuration with expandable segments.
    pub fn with_expandable_segments(&self) -> Self {
        Self {
            expandable_segments: true,
            ..self.clone()
        }
    }

    /// Into how many parts a power of two is divided when a request of `bytes` is rounded.
    pub(super) fn divisions(&self, bytes: u64) -> u64 {
        let interval = (bytes.ilog2() as usize).saturating_sub(MIB.ilog2() as usize);
        self.divisions[interval.min(INTERVALS - 1)]
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let wrong = || ConfigError::Value {
            key: key.into(),
            value: value.into(),
        };
        let mib = || {
            value
                .parse::<u64>()
                .ok()
                .filter(|mib| *mib >= 20)
                .map(|mib| mib.saturating_mul(MIB))
        };
        let share = || {
            value
                .parse::<f64>()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share))
        };
        match key {
            "expandable_segments" => {
                self.expandable_segments = match value {
                    "True" => true,
                    "False" => false,
                    _ => return Err(wrong()),
                };
            }
            "max_split_size_mb" => self.max_split_bytes = Some(mib().ok_or_else(wrong)?),
            "max_non_split_rounding_mb" => {
                self.max_non_split_rounding_bytes = mib().ok_or_else(wrong)?
            }
            "large_segment_size_mb" => self.large_segment_bytes = mib().ok_or_else(wrong)?,
            "garbage_collection_threshold" => {
                self.garbage_collection_threshold = Some(share().ok_or_else(wrong)?);
            }
            "per_process_memory_fraction" => {
                self.memory_fraction = share()
                    .map(Some)
                    .ok_or_else(wrong)?
                    .filter(|share| *share < 1.0);
            }
            "roundup_power2_divisions" => self.set_divisions(value).ok_or_else(wrong)?,
            "backend" if value == "native" => {}
            "backend" => return Err(ConfigError::Backend(value.into())),
            _ if NO_EFFECT.contains(&key) => {}
            _ => return Err(ConfigError::Key(key.into())),
        }
        Ok(())
    }

    /// Reads `8` or `[256:1,512:2,>:4]`, in which each number before a colon is in MiB.
    fn set_divisions(&mut self, value: &str) -> Option<()> {
        let parse = |text: &str| {
            let divisions: u64 = text.parse().ok()?;
            (divisions == 0 || divisions.is_power_of_two()).then_some(divisions)
        };
        let Some(list) = value.strip_prefix('[') else {
            self.divisions = [parse(value)?; INTERVALS];
            return Some(());
        };
        let mut last = None;
        for entry in list.strip_suffix(']')?.split(',') {
            let (from, divisions) = entry.split_once(':')?;
            let divisions = parse(divisions)?;
            if from == ">" {
                self.divisions[last.unwrap_or(0)..].fill(divisions);
                continue;
            }
            let from: u64 = from.parse().ok()?;
            let index = from
                .is_power_of_two()
                .then_some(from.ilog2() as usize)?
                .min(INTERVALS - 1);
            if last.is_none() {
                self.divisions[..index].fill(divisions);
            }
            self.divisions[index] = divisions;
            last = Some(index);
        }
        Some(())
    }
}

/// Keys that change nothing about how much device memory is taken: they are about pinned memory of the host, locks,
/// address space, graphs and the wording of errors.
const NO_EFFECT: [&str; 11] = [
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_free_catch_all",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
    "release_lock_on_cudamalloc",
    "throw_on_cudamalloc_oom",
    "graph_capture_record_stream_reuse",
    "expandable_segments_reserve",
];

/// Why a text is no configuration of the allocator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// PyTorch has no such key.
    #[error("PyTorch's allocator has no option `{0}`")]
    Key(String),
    /// The key does not take the value.
    #[error("`{value}` is no value of the allocator's option `{key}`")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Another allocator takes the place of PyTorch's.
    #[error("the allocator `{0}` is CUDA's own, which cannot be replayed")]
    Backend(String),
}

impl FromStr for AllocatorConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (key, after) = rest.split_once(':').unwrap_or((rest, ""));
            let end = match after.starts_with('[') {
                true => after.find(']').map_or(after.len(), |end| end + 1),
                false => after.find(',').unwrap_or(after.len()),
            };
            config.set(key, &after[..end])?;
            rest = after[end..].trim_start_matches(',');
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_pytorch_reads_them() {
        let config: AllocatorConfig =
            "max_split_size_mb:100, garbage_collection_threshold:0.5,roundup_power2_divisions:[64:8,256:4,1024:4,>:1],expandable_segments:True"
                .parse()
                .unwrap();
        assert!(config.expandable_segments);
        assert_eq!(config.max_split_bytes, Some(100 * MIB));
        let divisions = [1, 64, 128, 256, 1024, 4096].map(|mib| config.divisions(mib * MIB));
        // The last entry also takes the place of the one before it: `last_index` in `parseRoundUpPower2Divisions`.
        assert_eq!(divisions, [8, 8, 0, 4, 1, 1]);
        assert_eq!("".parse(), Ok(AllocatorConfig::default()));
    }

    #[test]
    fn what_pytorch_refuses_is_refused() {
        for text in [
            "expandable_segments",
            "expandable_segments:true",
            "max_split_size_mb:10",
            "garbage_collection_threshold:2",
            "roundup_power2_divisions:3",
            "expandable_segment:True",
            "backend:cudaMallocAsync",
        ] {
            assert!(text.parse::<AllocatorConfig>().is_err(), "{text}");
        }
    }
}
