//! Answers CubeCL's probes of a card's peak throughput. burn's tuner ends a search early when a candidate
//! comes close to the peak. On a simulated card no candidate ever does, so the tuner tries each.
//!
//! CubeCL measures peaks with clocks of its own, again and again until the results agree; on a card that
//! computes nothing they never would. So this module puts the answers where CubeCL keeps its measurements.
//! The answer for launches is there before CubeCL asks. The probes of memory and arithmetic get theirs at
//! their first launch, because the start of a probe affects memory: memory probes take buffers of a gigabyte,
//! and CubeCL cleans up the pools after each probe.

use cubecl_core::prelude::{ExecutionMode, KernelLauncher, KernelSettings};
use cubecl_ir::settings::Dim3;
use cubecl_ir::{AddressType, DeviceProperties, ElemType, FloatKind, IntKind, UIntKind};
use cubecl_server::id::KernelId;
use cubecl_server::kernel::CubeKernel;
use cubecl_server::throughput::{
    CmmaDims, ComputeCmmaConfig, MemoryAccess, MemorySpec, ThroughputCache, ThroughputKey,
    ThroughputMode, ThroughputValue, sweep_size,
};

use crate::upstream;

/// A throughput that no kernel reaches.
const BEYOND_REACH: ThroughputValue = ThroughputValue {
    ops_count: 1 << 50,
    duration: std::time::Duration::from_nanos(1),
};

/// The throughput probes of one card.
#[derive(Clone, Debug)]
pub(crate) struct ThroughputProbes {
    name: &'static str,
    properties: DeviceProperties,
    /// What the last launch probed, if it belonged to a probe, and how many launches of that probe there were. A probe
    /// of 16-bit arithmetic launches the 32-bit kernels too, without measuring their peak.
    probing: Option<(Probed, usize)>,
}

/// The quantity that a probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probed {
    Memory,
    Arithmetic,
    MatrixUnits,
}

/// A kernel with which CubeCL measures a peak, by its id.
#[derive(Debug)]
pub(crate) struct Probe(KernelId);

impl Probe {
    /// `kernel` as a probe, if it is one.
    pub fn of(kernel: &dyn CubeKernel) -> Option<Self> {
        let name = kernel.name();
        name.starts_with(upstream::THROUGHPUT_KERNELS)
            .then(|| Self(kernel.id()))
    }
}

impl ThroughputProbes {
    /// The probes of a card with these `properties` that CubeCL knows by `name`. Stores the answer for
    /// launches at once.
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

    /// Notes that what the last launch probed is over: a kernel is launched that is no probe.
    pub fn end(&mut self) {
        self.probing = None;
    }

    /// Notes that CubeCL cleans up the pools, as it does after each probe, on the thread that launched the probe.
    ///
    /// On a card that computes nothing, the last launch of a probe of arithmetic panics
    /// ([`upstream::is_probe_overflow`]) when its output is registered already. CubeCL would pass that output to the
    /// next launch of this thread as well (`INFO` of `cubecl-core` 0.11.3, `src/compute/launcher.rs`). On a real
    /// device no launch of a probe panics.
    pub fn clean_up(&mut self) {
        if self.probing.take().is_some() {
            let one = Dim3 { x: 1, y: 1, z: 1 };
            let none = KernelSettings::new(one, ExecutionMode::Unchecked, AddressType::U32);
            KernelLauncher::new(none).discard();
        }
    }

    /// Whether the last launch was one of a probe of arithmetic, which allocates a buffer for each launch.
    pub fn is_computing(&self) -> bool {
        matches!(
            self.probing,
            Some((Probed::Arithmetic | Probed::MatrixUnits, _))
        )
    }

    /// Whether the last launch has the scalars that it has on every card. A probe of memory fills a buffer, runs once,
    /// then as many times as its window takes to move through the buffer; a probe of arithmetic runs once. How many
    /// times they run after that depends on how fast the card is.
    pub fn is_certain(&self) -> bool {
        match self.probing {
            None => true,
            Some((Probed::Memory, launches)) => launches <= 2,
            Some((Probed::Arithmetic | Probed::MatrixUnits, launches)) => launches == 1,
        }
    }

    /// Whether the last launch was one of a probe.
    pub fn is_probing(&self) -> bool {
        self.probing.is_some()
    }

    /// Stores the answer to a probe that was launched with `scalars`.
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
        match &mut self.probing {
            Some((last, launches)) if *last == probed => {
                *launches += 1;
                return;
            }
            probing => *probing = Some((probed, 1)),
        }
        if let (Some((_, access)), Some(first)) = (access, scalars.first()) {
            // `memory_direct_throughput` and the other memory probes of `cubecl-std` 0.11.3 first take the
            // number of 16-byte lines in a window, in the width of an address.
            let lines = match id.address_type {
                AddressType::U32 => *first & u64::from(u32::MAX),
                AddressType::U64 => *first,
            };
            let bytes = sweep_size(lines * 16 * access.buffers());
            let spec = MemorySpec::new(*access, bytes);
            self.set(ThroughputMode::Memory(spec), BEYOND_REACH);
            return;
        }
        // Only the arguments that a kernel is compiled with name its types.
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
                self.answer_matrix_units(*dtype, *accumulator, &arguments);
            }
            _ => {}
        }
    }

    /// Stores the answer to a probe of matrix units with these types and the dimensions in `arguments`, if the card has
    /// such units.
    fn answer_matrix_units(&self, dtype: ElemType, accumulator_type: ElemType, arguments: &str) {
        for form in &self.properties.features.matmul.cmma {
            let cmma_dims = CmmaDims {
                m: form.m as usize,
                n: form.n as usize,
                k: form.k as usize,
            };
            if form.a_type == dtype
                && form.cd_type == accumulator_type
                && arguments.contains(&format!("{cmma_dims:?}"))
            {
                let config = ComputeCmmaConfig {
                    accumulator_type,
                    cmma_dims,
                };
                self.set(ThroughputMode::ComputeCmma { dtype, config }, BEYOND_REACH);
            }
        }
    }

    fn set(&self, mode: ThroughputMode, value: ThroughputValue) {
        let known = ThroughputCache::get_for_device(self.name, &self.properties);
        known.lock().insert(ThroughputKey { mode }, value);
    }
}

/// The types that `text` names (`dtype: Float(F32)`), in the order in which they appear.
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
