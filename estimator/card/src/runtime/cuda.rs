//! The rules of CubeCL's CUDA runtime for a simulated card.

use std::sync::Arc;

use cubecl_common::device::ServiceId;
use cubecl_common::profile::TimingMethod;
use cubecl_cpp::cuda::arch::CudaArchitecture;
use cubecl_cpp::cuda::mma::CudaCmmaCompiler;
use cubecl_cpp::cuda::mma::manual::contiguous_elements_cuda;
use cubecl_cpp::cuda::supported_mma_combinations;
use cubecl_cpp::register_supported_types;
use cubecl_cpp::shared::{register_mma_features, register_wmma_features};
use cubecl_ir::features::{AtomicUsage, Plane, TypeUsage};
use cubecl_ir::types::MatrixLayout;
use cubecl_ir::{
    ContiguousElements, DeviceProperties, ElemType, FloatKind, HardwareProperties, IntKind,
    MemoryDeviceProperties, MmaProperties, TargetProperties, Type, UIntKind, VectorSize,
};
use cubecl_server::allocator::PitchedMemoryLayoutPolicy;
use cubecl_server::logging::ServerLogger;
use cubecl_server::server::{DeviceCaptures, MemoryLayoutPolicy};
use cubecl_zspace::striding::has_pitched_row_major_strides;
use cubecl_zspace::{Shape, Strides};
use recording::Bytes;

use super::cuda_memory::CudaMemory;
use super::{RuntimeRules, identity};
use crate::card_spec::CardSpec;
use crate::memory::CardMemory;
use crate::storage::MemoryBudget;

/// CubeCL's CUDA runtime: `cubecl-cuda` 0.11.3.
#[derive(Debug)]
pub(super) struct Cuda;

/// Alignment of buffers in bytes: `mem_alignment` of `src/runtime.rs`.
const ALIGNMENT: u64 = 512;

impl RuntimeRules for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn drives(&self, vendor: &str) -> bool {
        vendor == "NVIDIA"
    }

    fn properties(&self, card: &CardSpec) -> DeviceProperties {
        properties(card, self.memory_properties(card))
    }

    fn memory_properties(&self, card: &CardSpec) -> MemoryDeviceProperties {
        let memory = MemoryDeviceProperties::new(self.largest_page(card).0, ALIGNMENT);
        match card.total {
            Some(total) => memory.with_max_memory(total.0),
            None => memory,
        }
    }

    /// `target_properties` of `src/runtime.rs`.
    fn target(&self) -> TargetProperties {
        TargetProperties {
            mma: MmaProperties {
                register_size_bits: 32,
                const_plane_size: 32,
                register_layout_a: MatrixLayout::RowMajor,
                register_layout_b: MatrixLayout::ColMajor,
                register_layout_acc: MatrixLayout::RowMajor,
                register_duplication_a: 1,
                register_duplication_b: 1,
                register_duplication_acc: 1,
                contiguous_elements: ContiguousElements::new(contiguous_elements_cuda),
            },
        }
    }

    fn memory(
        &self,
        card: &CardSpec,
        budget: Arc<MemoryBudget>,
        service: ServiceId,
        logger: Arc<ServerLogger>,
        captures: DeviceCaptures,
    ) -> Box<dyn CardMemory> {
        let properties = self.memory_properties(card);
        Box::new(CudaMemory::new(
            passes_arguments_by_constant(card.compute_capability),
            budget,
            service,
            properties,
            logger,
            captures,
        ))
    }

    fn layout(&self, alignment: usize) -> Box<dyn MemoryLayoutPolicy> {
        Box::new(PitchedMemoryLayoutPolicy::new(alignment))
    }

    /// `max_memory / 4` of `src/runtime.rs`.
    fn largest_page(&self, card: &CardSpec) -> Bytes {
        match card.total {
            Some(total) => total / 4,
            None => Bytes(u64::MAX / 8),
        }
    }

    fn binds_whole_buffers(&self) -> bool {
        false
    }

    fn submits_on_sync(&self) -> bool {
        false
    }

    fn reduces_between_cards(&self) -> bool {
        true
    }

    /// `can_read_tensor` of `src/runtime.rs`.
    fn can_read(&self, shape: &Shape, strides: &Strides) -> bool {
        has_pitched_row_major_strides(shape, strides)
    }

    fn bool_bytes(&self) -> usize {
        1
    }
}

/// Whether kernels get shapes and strides as constants of the grid: `grid_constants` of `src/runtime.rs`.
fn passes_arguments_by_constant(compute_capability: u32) -> bool {
    compute_capability >= 70
}

/// Whether a CUDA card has tensor cores; some cards of the same compute capability have none.
fn has_matrix_units(card: &CardSpec) -> bool {
    CudaArchitecture::has_tensor_cores(card.compute_capability, &card.name)
}

/// The properties that `DeviceService::init` of `cubecl-cuda` 0.11.3, `src/runtime.rs`, registers for a card
/// of this compute capability, narrowed to what its default compiler lowers (`restrict_features` of
/// `cubecl-llvm` 0.11.3, `src/shared/lowered_features.rs`).
fn properties(card: &CardSpec, memory: MemoryDeviceProperties) -> DeviceProperties {
    let version = card.compute_capability;
    let arch = CudaArchitecture {
        version,
        tensor_cores: has_matrix_units(card),
    };
    let wmma = CudaCmmaCompiler::Cpp.supported_cmma_combinations(&arch);
    let mut properties = DeviceProperties::new(
        Default::default(),
        memory,
        hardware(card, !wmma.is_empty()),
        TimingMethod::Device,
        identity(card, format!("ptx_sm{version}")),
    );
    register_supported_types(&mut properties);
    register_types_since(version, &mut properties);
    let features = &mut properties.features;
    features.memory_reinterpret = true;
    features.alignment = true;
    features.device_memory_scope = true;
    features.plane.insert(Plane::Ops);
    features.plane.insert(Plane::NonUniformControlFlow);
    register_wmma_features(wmma, &mut properties);
    register_mma_features(supported_mma_combinations(&arch), &mut properties);
    keep_what_llvm_lowers(&mut properties);
    properties
}

/// What a kernel can use of the hardware; `has_wmma` says whether the compiler has forms of matrix products for it.
fn hardware(card: &CardSpec, has_wmma: bool) -> HardwareProperties {
    let version = card.compute_capability;
    HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: 32,
        plane_size_max: 32,
        max_bindings: 1024,
        max_shared_memory_size: shared_memory(version),
        // CUDA C++ Programming Guide, table "Technical Specifications per Compute
        // Capability": grid and block dimensions are the same for all since 3.0.
        max_cube_count: (i32::MAX as u32, 65_535, 65_535),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: Some(card.multiprocessors),
        // `tensor_cores_per_sm` of `runtime.rs`.
        num_tensor_cores: match (has_matrix_units(card), version) {
            (true, 70 | 75) => Some(8),
            (true, 80 | 86 | 89 | 90 | 91 | 92 | 100) => Some(4),
            _ => None,
        },
        min_tensor_cores_dim: has_wmma.then_some(8),
        num_cpu_cores: None,
        last_level_cache_size: None,
        max_vector_size: VectorSize::MAX,
        cube_mma_reserved_shared_memory: 0,
    }
}

/// Registers the types, and what kernels do with them, that came with compute capabilities up to `version`. It leaves
/// out the atomics of vectors and of bf16, which `restrict_common` of `cubecl-llvm` 0.11.3 removes again.
fn register_types_since(version: u32, properties: &mut DeviceProperties) {
    let float = |kind| ElemType::Float(kind);
    let add_and_exchange = AtomicUsage::Add | AtomicUsage::LoadStore | AtomicUsage::Exchange;
    if version >= 60 {
        let double = Type::atomic(float(FloatKind::F64));
        properties.register_atomic_type_usage(double, add_and_exchange);
    }
    if version >= 70 {
        let half = Type::atomic(float(FloatKind::F16));
        properties.register_atomic_type_usage(half, AtomicUsage::Add);
        properties.features.plane.insert(Plane::Sync);
    }
    if version >= 75 {
        for kind in [FloatKind::F16, FloatKind::BF16] {
            properties.features.matmul.ldmatrix.insert(float(kind));
        }
    }
    if version >= 80 {
        properties.register_type_usage(float(FloatKind::TF32), TypeUsage::Conversion);
    }
    if version >= 90 {
        for kind in [FloatKind::F16, FloatKind::BF16] {
            properties.features.matmul.stmatrix.insert(float(kind));
        }
    }
    if matches!(version / 10, 10..=12) {
        properties.register_type_usage(float(FloatKind::E2M1), TypeUsage::Conversion);
        for kind in [
            FloatKind::E2M1x2,
            FloatKind::E2M3,
            FloatKind::E3M2,
            FloatKind::UE8M0,
        ] {
            let usage = TypeUsage::Conversion | TypeUsage::Buffer;
            properties.register_type_usage(float(kind), usage);
        }
    }
}

/// Applies `keep_nvptx_matrix_forms` and `restrict_common` of `cubecl-llvm` 0.11.3. That crate links LLVM, so
/// this function repeats its rules.
fn keep_what_llvm_lowers(properties: &mut DeviceProperties) {
    let half = ElemType::Float(FloatKind::F16);
    let bf16 = ElemType::Float(FloatKind::BF16);
    let tf32 = ElemType::Float(FloatKind::TF32);
    let single = ElemType::Float(FloatKind::F32);
    let byte = |ty| {
        matches!(
            ty,
            ElemType::Int(IntKind::I8) | ElemType::UInt(UIntKind::U8)
        )
    };
    let matmul = &mut properties.features.matmul;
    matmul.cmma.retain(|form| {
        let (a, b, cd) = (form.a_type, form.b_type, form.cd_type);
        (a == half && b == half && (cd == half || cd == single))
            || (a == bf16 && b == bf16 && cd == single)
            || (a == tf32 && b == tf32 && cd == single && (form.m, form.n, form.k) == (16, 16, 8))
    });
    matmul.mma.retain(|form| {
        let (a, b, cd) = (form.a_type, form.b_type, form.cd_type);
        ((a == half || a == bf16) && b == a && cd == single)
            || (byte(a) && byte(b) && cd == ElemType::Int(IntKind::I32))
            || (a == tf32
                && b == tf32
                && cd == single
                && form.m == 16
                && form.n == 8
                && matches!(form.k, 4 | 8))
    });
    if matmul.cmma.is_empty() && matmul.mma.is_empty() {
        properties.hardware.num_tensor_cores = None;
        properties.hardware.min_tensor_cores_dim = None;
    }
}

/// The most bytes of shared memory that a block may opt in to: CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability", maximum per thread block.
pub(crate) fn shared_memory(version: u32) -> usize {
    let kib = match version {
        ..70 => 48,
        70 | 72 => 96,
        75 => 64,
        80 | 87 => 163,
        86 | 89 => 99,
        90 | 100 | 103 | 110 => 227,
        _ => 99,
    };
    kib << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generations() -> impl Iterator<Item = (u32, DeviceProperties)> {
        let generations = [52, 61, 70, 75, 80, 86, 90, 100, 120];
        generations.into_iter().map(|compute_capability| {
            let card = CardSpec {
                compute_capability,
                ..CardSpec::unlimited()
            };
            (compute_capability, Cuda.properties(&card))
        })
    }

    /// `KernelGroup::of_any_generation` relies on it: burn's fusers ask for the bindings, and the types of floats of a device
    /// are set once.
    #[test]
    fn every_generation_has_the_same_bindings_and_types_of_floats() {
        let relied_on = |properties: &DeviceProperties| {
            let kinds = [
                FloatKind::F16,
                FloatKind::BF16,
                FloatKind::F32,
                FloatKind::F64,
            ];
            let usage = kinds.map(|kind| properties.type_usage(ElemType::Float(kind)));
            (
                properties.hardware.max_bindings,
                properties.memory.alignment,
                usage,
            )
        };
        let all: Vec<_> = generations()
            .map(|(_, properties)| relied_on(&properties))
            .collect();
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    }

    /// `DeviceSpec::kernel_group` compares properties alone.
    #[test]
    fn generations_that_pass_arguments_otherwise_offer_other_features() {
        for (compute_capability, properties) in generations() {
            let by_constant = passes_arguments_by_constant(compute_capability);
            assert_eq!(properties.features.plane.contains(Plane::Sync), by_constant);
        }
    }

    /// `restrict_common` of `cubecl-llvm` 0.11.3 removes them on every card.
    #[test]
    fn no_card_has_atomics_of_vectors_or_of_bf16() {
        let bf16 = ElemType::Float(FloatKind::BF16);
        for (compute_capability, properties) in generations() {
            let atomics = properties.features.types.atomic;
            assert!(!atomics.is_empty());
            for ty in atomics.keys() {
                assert_eq!(ty.vector_size(), 1, "{compute_capability}: {ty:?}");
                assert_ne!(ty.elem_type(), bf16, "{compute_capability}: {ty:?}");
            }
        }
    }
}
