//! What a card tells burn about itself: what the runtime of such a card registers.

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
    AddressType, ContiguousElements, DeviceIdentity, DeviceProperties, ElemType, FloatKind,
    HardwareProperties, IntKind, MemoryDeviceProperties, MmaProperties, TargetProperties, Type,
    UIntKind, VectorSize,
};

use crate::shaders::Shaders;
use crate::spec::{CardSpec, Runtime};

/// The properties of a card like `spec`.
pub(crate) fn of(spec: &CardSpec) -> DeviceProperties {
    match spec.runtime {
        Runtime::Cuda => cuda(spec),
        Runtime::Vulkan | Runtime::Wgpu => wgpu(spec),
    }
}

/// The part of the properties that the pools are made from.
pub(crate) fn memory(spec: &CardSpec) -> MemoryDeviceProperties {
    match spec.runtime {
        Runtime::Cuda => {
            let largest = spec.largest_page().0;
            let memory = MemoryDeviceProperties::new(largest, CardSpec::CUDA_ALIGNMENT);
            match spec.total {
                Some(total) => memory.with_max_memory(total.0),
                None => memory,
            }
        }
        // WebGPU states no capacity (`src/runtime.rs`); SPIR-V on Vulkan does
        // (`src/backend/vulkan.rs`).
        Runtime::Wgpu => MemoryDeviceProperties::new(spec.largest_binding.0, spec.alignment),
        Runtime::Vulkan => {
            let memory = MemoryDeviceProperties::new(spec.largest_binding.0, spec.alignment);
            match spec.total {
                Some(total) => memory.with_max_memory(total.0),
                None => memory,
            }
        }
    }
}

/// What the compiler's target guarantees.
pub(crate) fn target(spec: &CardSpec) -> TargetProperties {
    match spec.runtime {
        // `target_properties` of `cubecl-cuda` 0.11.3, `src/runtime.rs`.
        Runtime::Cuda => TargetProperties {
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
        },
        // The same of `cubecl-wgpu` 0.11.3.
        Runtime::Vulkan | Runtime::Wgpu => TargetProperties::default(),
    }
}

/// Whether a CUDA card has tensor cores: some of one compute capability have none.
pub(crate) fn has_matrix_units(spec: &CardSpec) -> bool {
    CudaArchitecture::has_tensor_cores(spec.compute_capability, &spec.name)
}

fn identity(spec: &CardSpec, fingerprint: String) -> DeviceIdentity {
    DeviceIdentity {
        name: spec.name.clone(),
        fingerprint,
        physical: None,
    }
}

/// `DeviceService::init` of `cubecl-cuda` 0.11.3, `src/runtime.rs`, for a card of this
/// compute capability, narrowed to what its default compiler lowers
/// (`restrict_features` of `cubecl-llvm` 0.11.3, `src/shared/lowered_features.rs`).
fn cuda(spec: &CardSpec) -> DeviceProperties {
    let version = spec.compute_capability;
    let arch = CudaArchitecture {
        version,
        tensor_cores: has_matrix_units(spec),
    };
    let wmma = CudaCmmaCompiler::Cpp.supported_cmma_combinations(&arch);
    let hardware = HardwareProperties {
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
        num_streaming_multiprocessors: Some(spec.multiprocessors),
        // `tensor_cores_per_sm` of `runtime.rs`.
        num_tensor_cores: match (arch.tensor_cores, version) {
            (true, 70 | 75) => Some(8),
            (true, 80 | 86 | 89 | 90 | 91 | 92 | 100) => Some(4),
            _ => None,
        },
        min_tensor_cores_dim: (!wmma.is_empty()).then_some(8),
        num_cpu_cores: None,
        last_level_cache_size: None,
        max_vector_size: VectorSize::MAX,
        cube_mma_reserved_shared_memory: 0,
    };
    let mut properties = DeviceProperties::new(
        Default::default(),
        memory(spec),
        hardware,
        TimingMethod::Device,
        identity(spec, format!("ptx_sm{version}")),
    );
    register_supported_types(&mut properties);
    let float = |kind| ElemType::Float(kind);
    let add_and_exchange = AtomicUsage::Add | AtomicUsage::LoadStore | AtomicUsage::Exchange;
    if version >= 60 {
        let double = Type::atomic(float(FloatKind::F64));
        properties.register_atomic_type_usage(double, add_and_exchange);
    }
    if version >= 70 {
        let half = Type::new(float(FloatKind::F16));
        properties.register_atomic_type_usage(Type::atomic(half), AtomicUsage::Add);
        let pair = Type::atomic(half.with_vector_size(2));
        properties.register_atomic_type_usage(pair, add_and_exchange);
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
        for width in [2, 4, 8] {
            let halves = Type::atomic(Type::new(FloatKind::F16).with_vector_size(width));
            properties.register_atomic_type_usage(halves, add_and_exchange);
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
    properties.features.memory_reinterpret = true;
    properties.features.alignment = true;
    properties.features.device_memory_scope = true;
    properties.features.plane.insert(Plane::Ops);
    properties
        .features
        .plane
        .insert(Plane::NonUniformControlFlow);
    register_wmma_features(wmma, &mut properties);
    register_mma_features(supported_mma_combinations(&arch), &mut properties);
    keep_what_llvm_lowers(&mut properties);
    properties
}

/// `keep_nvptx_matrix_forms` and `restrict_common` of `cubecl-llvm` 0.11.3. That crate links
/// LLVM, so its rules are repeated here.
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

/// Most bytes of shared memory that a block may opt in to: CUDA C++ Programming Guide,
/// "Technical Specifications per Compute Capability", maximum per thread block.
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

/// Where no real device is known: subgroups of 32 and 16-bit floats, and the limits that
/// NVIDIA's Vulkan driver states.
const ADAPTER: Shaders = Shaders {
    plane_size_min: 32,
    plane_size_max: 32,
    plane_operations: true,
    max_bindings: 1024,
    max_shared_memory: 48 << 10,
    max_cube_count: (65_535, 65_535, 65_535),
    max_units_per_cube: 1024,
    max_cube_dim: (1024, 1024, 64),
    half: true,
    float_atomics: false,
};

/// `try_create_server` of `cubecl-wgpu` 0.11.3, `src/runtime.rs`, and `register_types` of its
/// `src/backend/wgsl.rs`.
fn wgpu(spec: &CardSpec) -> DeviceProperties {
    let shaders = spec.shaders.unwrap_or(ADAPTER);
    let hardware = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: shaders.plane_size_min,
        plane_size_max: shaders.plane_size_max,
        max_bindings: shaders.max_bindings,
        max_shared_memory_size: shaders.max_shared_memory as usize,
        max_cube_count: shaders.max_cube_count,
        max_units_per_cube: shaders.max_units_per_cube,
        max_cube_dim: shaders.max_cube_dim,
        num_streaming_multiprocessors: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        max_vector_size: 4,
        cube_mma_reserved_shared_memory: 0,
    };
    let mut properties = DeviceProperties::new(
        Default::default(),
        memory(spec),
        hardware,
        TimingMethod::Device,
        identity(spec, "spirv_simulated".into()),
    );
    properties.register_address_type(AddressType::U32);
    for ty in [
        ElemType::Index,
        ElemType::UInt(UIntKind::U32),
        ElemType::UInt(UIntKind::U64),
        ElemType::Int(IntKind::I32),
        ElemType::Int(IntKind::I64),
        ElemType::Float(FloatKind::F32),
        ElemType::Float(FloatKind::Flex32),
        ElemType::Bool,
    ] {
        properties.register_type_usage(ty, TypeUsage::all());
    }
    if shaders.half {
        properties.register_type_usage(ElemType::Float(FloatKind::F16), TypeUsage::all());
    }
    for kind in [FloatKind::E4M3, FloatKind::E5M2, FloatKind::UE8M0] {
        properties.register_type_usage(ElemType::Float(kind), TypeUsage::Conversion);
    }
    let float = ElemType::Float(FloatKind::F32);
    let integers = [ElemType::Int(IntKind::I32), ElemType::UInt(UIntKind::U32)];
    let floats = shaders.float_atomics.then_some(float);
    for ty in integers.into_iter().chain(floats) {
        let usage = AtomicUsage::LoadStore | AtomicUsage::Exchange | AtomicUsage::Add;
        properties.register_atomic_type_usage(Type::atomic(ty), usage);
    }
    if shaders.plane_operations {
        properties.features.plane.insert(Plane::Ops);
    }
    if spec.runtime == Runtime::Vulkan {
        // What `src/backend/vulkan.rs` adds for SPIR-V and matters to memory: bfloat16, and
        // small integers, for which burn stores a bool in one byte.
        for ty in [
            ElemType::Float(FloatKind::BF16),
            ElemType::UInt(UIntKind::U8),
            ElemType::UInt(UIntKind::U16),
            ElemType::Int(IntKind::I8),
            ElemType::Int(IntKind::I16),
        ] {
            properties.register_type_usage(ty, TypeUsage::all());
        }
        properties
            .features
            .plane
            .insert(Plane::NonUniformControlFlow);
    }
    properties
}
