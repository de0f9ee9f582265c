//! The peaks that burn's tuner asks of a card, to end a search early when a candidate is close to
//! one. No candidate of a simulated card ever is, so each is tried.
//!
//! CubeCL measures peaks with clocks of its own, again and again until they agree; on a card that
//! computes nothing they would never. So the answers are put where CubeCL keeps what it has
//! measured. For launches that is done before it asks. The probes of a card's memory take buffers
//! of a gigabyte, and after each probe the pools are tidied up, so those of memory and of arithmetic
//! do begin, and are answered with their first launch.

use cubecl_ir::{AddressType, DeviceProperties, ElemType, FloatKind, IntKind, UIntKind};
use cubecl_server::id::KernelId;
use cubecl_server::kernel::CubeKernel;
use cubecl_server::throughput::{
    CmmaDims, ComputeCmmaConfig, MemoryAccess, MemorySpec, ThroughputCache, ThroughputKey,
    ThroughputMode, ThroughputValue, sweep_size,
};

use crate::upstream;

/// More than any kernel reaches.
const BEYOND_REACH: ThroughputValue = ThroughputValue {
    ops_count: 1 << 50,
    duration: std::time::Duration::from_nanos(1),
};

/// The peaks of one card.
#[derive(Clone, Debug)]
pub(crate) struct ThroughputProbes {
    name: &'static str,
    properties: DeviceProperties,
    /// What was probed by the last launch, if it was one of a probe. A probe of arithmetic on 16-bit
    /// numbers launches the kernels of 32 bits too, whose peak is not known after it.
    probing: Option<Probed>,
}

/// What a probe finds the peak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probed {
    Memory,
    Arithmetic,
    MatrixUnits,
}

/// A kernel with which CubeCL measures a peak: how it was made.
#[derive(Debug)]
pub(crate) struct Probe(KernelId);

impl Probe {
    /// `kernel`, if it is one.
    pub fn of(kernel: &dyn CubeKernel) -> Option<Self> {
        let name = kernel.name();
        name.starts_with(upstream::THROUGHPUT_KERNELS)
            .then(|| Self(kernel.id()))
    }
}

impl ThroughputProbes {
    /// Those of a card with these `properties` that CubeCL knows by `name`; that of launches is known
    /// from here on.
    pub fn new(name: &'static str, properties: &DeviceProperties) -> Self {
        let throughput_probes = Self {
            name,
            properties: properties.clone(),
            probing: None,
        };
        let free = ThroughputValue {
            ops_count: 1,
            ..ThroughputValue::ZERO
        };
        throughput_probes.set(ThroughputMode::Launch, free);
        throughput_probes
    }

    /// A kernel was launched that probes nothing.
    pub fn passed_by(&mut self) {
        self.probing = None;
    }

    /// `probe` was launched with `scalars`: the peak that it measures is known from here on.
    pub fn answer(&mut self, Probe(id): &Probe, scalars: &[u64]) {
        let kernel = id.type_name();
        let accesses = [
            ("memory_direct", MemoryAccess::Copy),
            ("memory_read", MemoryAccess::Read),
            ("memory_write", MemoryAccess::Write),
        ];
        let access = accesses.iter().find(|(name, _)| kernel.contains(name));
        let probed = match access {
            Some(_) => Probed::Memory,
            None if kernel.contains("compute_direct") => Probed::Arithmetic,
            None if kernel.contains("compute_cmma") => Probed::MatrixUnits,
            None => return,
        };
        if self.probing.replace(probed) == Some(probed) {
            return;
        }
        if let (Some((_, access)), Some(first)) = (access, scalars.first()) {
            // `memory_direct_throughput` and its like of `cubecl-std` 0.11.3 take the lines of
            // 16 bytes of a window first, in the width of an address.
            let lines = match id.address_type {
                AddressType::U32 => *first & u64::from(u32::MAX),
                AddressType::U64 => *first,
            };
            let bytes = sweep_size(lines * 16 * access.buffers());
            let spec = MemorySpec::new(*access, bytes);
            self.set(ThroughputMode::Memory(spec), BEYOND_REACH);
            return;
        }
        // The types are among the arguments that a kernel is compiled with, and nowhere else.
        let arguments = id.stable_format();
        let types = types_in(&arguments);
        match (probed, &types[..]) {
            (Probed::Arithmetic, [dtype, ..]) => {
                self.set(
                    ThroughputMode::ComputeDirect { dtype: *dtype },
                    BEYOND_REACH,
                );
            }
            (Probed::MatrixUnits, [dtype, accumulator, ..]) => {
                for form in &self.properties.features.matmul.cmma {
                    let cmma_dims = CmmaDims {
                        m: form.m as usize,
                        n: form.n as usize,
                        k: form.k as usize,
                    };
                    if form.a_type == *dtype
                        && form.cd_type == *accumulator
                        && arguments.contains(&format!("{cmma_dims:?}"))
                    {
                        let config = ComputeCmmaConfig {
                            accumulator_type: form.cd_type,
                            cmma_dims,
                        };
                        let dtype = form.a_type;
                        self.set(ThroughputMode::ComputeCmma { dtype, config }, BEYOND_REACH);
                    }
                }
            }
            _ => {}
        }
    }

    fn set(&self, mode: ThroughputMode, value: ThroughputValue) {
        let known = ThroughputCache::get_for_device(self.name, &self.properties);
        known.lock().insert(ThroughputKey { mode }, value);
    }
}

/// The types that `text` names, in their order: `dtype: Float(F32)`.
fn types_in(text: &str) -> Vec<ElemType> {
    let mut found: Vec<(usize, ElemType)> = TYPES
        .into_iter()
        .flat_map(|dtype| {
            let name = format!(": {dtype:?}");
            let places = text
                .match_indices(&name)
                .map(move |(place, _)| (place, dtype));
            places.collect::<Vec<_>>()
        })
        .collect();
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, dtype)| dtype).collect()
}

/// Types that kernels compute with.
const TYPES: [ElemType; 11] = [
    ElemType::Float(FloatKind::F16),
    ElemType::Float(FloatKind::BF16),
    ElemType::Float(FloatKind::Flex32),
    ElemType::Float(FloatKind::F32),
    ElemType::Float(FloatKind::TF32),
    ElemType::Float(FloatKind::F64),
    ElemType::Int(IntKind::I8),
    ElemType::Int(IntKind::I32),
    ElemType::Int(IntKind::I64),
    ElemType::UInt(UIntKind::U8),
    ElemType::UInt(UIntKind::U32),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_in_their_order() {
        let text = "CmmaInfo { cmm_dims: CmmaDims { m: 16, n: 16, k: 8 }, dtype: Float(TF32), acc: Float(F32) }";
        let [tf32, single] = [FloatKind::TF32, FloatKind::F32].map(ElemType::Float);
        assert_eq!(types_in(text), [tf32, single]);
    }
}
