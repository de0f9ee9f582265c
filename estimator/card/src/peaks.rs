//! The peaks that burn's tuner asks of a card, to end a search early when a candidate is close to
//! one. No candidate of a simulated card ever is, so each is tried.
//!
//! CubeCL measures peaks with clocks of its own, again and again until they agree; on a card that
//! computes nothing they would never. So the answers are put where CubeCL keeps what it has
//! measured. For arithmetic and launches that is done before it asks. The probes of a card's
//! memory take buffers of a gigabyte, so those do begin, and are answered with their first launch.

use cubecl_ir::{DeviceProperties, ElemType, FloatKind, IntKind, UIntKind};
use cubecl_server::throughput::{
    CmmaDims, ComputeCmmaConfig, MemoryAccess, MemorySpec, ThroughputCache, ThroughputKey,
    ThroughputMode, ThroughputValue, sweep_size,
};

use crate::spec::Runtime;

/// More than any kernel reaches.
const BEYOND_REACH: ThroughputValue = ThroughputValue {
    ops_count: 1 << 50,
    duration: std::time::Duration::from_nanos(1),
};

/// Where the kernels with which CubeCL measures peaks are.
const PROBES: &str = "cubecl_std::throughput::";

/// The peaks of one card.
#[derive(Clone, Debug)]
pub(crate) struct Peaks {
    runtime: Runtime,
    name: &'static str,
    properties: DeviceProperties,
}

impl Peaks {
    /// Those of a card with these `properties` that CubeCL knows by `name`; all but those of its
    /// memory are known from here on.
    pub fn new(runtime: Runtime, name: &'static str, properties: &DeviceProperties) -> Self {
        let peaks = Self {
            runtime,
            name,
            properties: properties.clone(),
        };
        let free = ThroughputValue {
            ops_count: 1,
            ..ThroughputValue::ZERO
        };
        peaks.set(ThroughputMode::Launch, free);
        for dtype in TYPES {
            peaks.set(ThroughputMode::ComputeDirect { dtype }, BEYOND_REACH);
        }
        for form in &properties.features.matmul.cmma {
            let config = ComputeCmmaConfig {
                accumulator_type: form.cd_type,
                cmma_dims: CmmaDims {
                    m: form.m as usize,
                    n: form.n as usize,
                    k: form.k as usize,
                },
            };
            let dtype = form.a_type;
            peaks.set(ThroughputMode::ComputeCmma { dtype, config }, BEYOND_REACH);
        }
        peaks
    }

    /// Whether `kernel` measures a peak. If it is one of memory, that is known from here on:
    /// `scalars` are what it was launched with.
    pub fn answers(&self, kernel: &str, scalars: &[u64]) -> bool {
        let Some(kernel) = kernel.strip_prefix(PROBES) else {
            return false;
        };
        let access = [
            ("memory_direct", MemoryAccess::Copy),
            ("memory_read", MemoryAccess::Read),
            ("memory_write", MemoryAccess::Write),
        ];
        let access = access.iter().find(|(name, _)| kernel.contains(name));
        if let (Some((_, access)), Some(first)) = (access, scalars.first()) {
            // `memory_direct_throughput` and its like of `cubecl-std` 0.11.3 take the lines of
            // 16 bytes of a window first, in the width of an address.
            let lines = match self.runtime {
                Runtime::Cuda => *first,
                Runtime::Vulkan | Runtime::Wgpu => *first & u64::from(u32::MAX),
            };
            let bytes = sweep_size(lines * 16 * access.buffers());
            let spec = MemorySpec::new(*access, bytes);
            self.set(ThroughputMode::Memory(spec), BEYOND_REACH);
        }
        true
    }

    fn set(&self, mode: ThroughputMode, value: ThroughputValue) {
        let known = ThroughputCache::get_for_device(self.name, &self.properties);
        known.lock().insert(ThroughputKey { mode }, value);
    }
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
