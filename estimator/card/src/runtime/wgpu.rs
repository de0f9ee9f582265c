//! The rules of CubeCL's wgpu runtime for a simulated card: with kernels in WGSL, and with kernels in SPIR-V
//! on Vulkan.

use std::sync::Arc;

use cubecl_common::device::ServiceId;
use cubecl_common::profile::TimingMethod;
use cubecl_ir::features::{AtomicUsage, Plane, TypeUsage};
use cubecl_ir::{
    AddressType, DeviceProperties, ElemType, FloatKind, HardwareProperties, IntKind,
    MemoryDeviceProperties, TargetProperties, Type, UIntKind,
};
use cubecl_server::allocator::ContiguousMemoryLayoutPolicy;
use cubecl_server::logging::ServerLogger;
use cubecl_server::server::{DeviceCaptures, MemoryLayoutPolicy};
use cubecl_zspace::striding::row_major_contiguous_strides;
use cubecl_zspace::{Shape, Strides};
use recording::Bytes;

use super::wgpu_memory::WgpuMemory;
use super::{RuntimeRules, identity};
use crate::card_spec::CardSpec;
use crate::memory::CardMemory;
use crate::shaders::Shaders;
use crate::storage::MemoryBudget;

/// CubeCL's wgpu runtime: `cubecl-wgpu` 0.11.3.
#[derive(Debug)]
pub(super) enum Wgpu {
    /// The runtime with kernels in WGSL.
    Wgsl,
    /// The runtime with kernels in SPIR-V, on Vulkan.
    Spirv,
}

impl RuntimeRules for Wgpu {
    fn name(&self) -> &'static str {
        match self {
            Self::Wgsl => "wgpu<wgsl>",
            Self::Spirv => "wgpu<spirv>",
        }
    }

    /// Apple's cards have no Vulkan driver.
    fn drives(&self, vendor: &str) -> bool {
        match self {
            Self::Wgsl => true,
            Self::Spirv => vendor != "Apple",
        }
    }

    fn properties(&self, card: &CardSpec) -> DeviceProperties {
        let mut properties = properties(card, self.memory_properties(card));
        if let Self::Spirv = self {
            register_spirv_types(&mut properties);
        }
        properties
    }

    /// WebGPU states no capacity (`src/runtime.rs`); SPIR-V on Vulkan does (`src/backend/vulkan.rs`).
    fn memory_properties(&self, card: &CardSpec) -> MemoryDeviceProperties {
        let memory = MemoryDeviceProperties::new(card.largest_binding.0, card.alignment);
        match (self, card.total) {
            (Self::Spirv, Some(total)) => memory.with_max_memory(total.0),
            _ => memory,
        }
    }

    fn target(&self) -> TargetProperties {
        TargetProperties::default()
    }

    fn memory(
        &self,
        card: &CardSpec,
        budget: Arc<MemoryBudget>,
        _service: ServiceId,
        logger: Arc<ServerLogger>,
        _captures: DeviceCaptures,
    ) -> Box<dyn CardMemory> {
        let properties = self.memory_properties(card);
        Box::new(WgpuMemory::new(budget, properties, logger))
    }

    fn layout(&self, alignment: usize) -> Box<dyn MemoryLayoutPolicy> {
        Box::new(ContiguousMemoryLayoutPolicy::new(alignment))
    }

    fn largest_page(&self, card: &CardSpec) -> Bytes {
        card.largest_binding
    }

    fn binds_whole_buffers(&self) -> bool {
        true
    }

    /// `sync`, `start_profile` and `end_profile` of `src/compute/server.rs` run and submit the scheduler's queued tasks.
    fn submits_on_sync(&self) -> bool {
        true
    }

    /// `can_read_tensor` of `src/runtime.rs`.
    fn can_read(&self, shape: &Shape, strides: &Strides) -> bool {
        shape.is_empty() || *strides == row_major_contiguous_strides(shape)
    }

    fn bool_bytes(&self) -> usize {
        match self {
            // WGSL has no one-byte type.
            Self::Wgsl => 4,
            Self::Spirv => 1,
        }
    }
}

/// The limits of a card without the description of a real device: subgroups of 32, 16-bit floats, and the
/// limits that NVIDIA's Vulkan driver states.
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

/// The properties that `try_create_server` of `cubecl-wgpu` 0.11.3, `src/runtime.rs`, and `register_types` of
/// its `src/backend/wgsl.rs` register.
fn properties(card: &CardSpec, memory: MemoryDeviceProperties) -> DeviceProperties {
    let shaders = card.shaders.unwrap_or(ADAPTER);
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
        memory,
        hardware,
        TimingMethod::Device,
        identity(card, "spirv_simulated".into()),
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
    properties
}

/// Adds some of what `src/backend/vulkan.rs` registers for SPIR-V: bfloat16, and small integers, with which burn stores
/// a bool in one byte.
///
/// Many drivers also offer cooperative matrices and 64-bit indexing. Simulated cards have neither: burn's tuner tries
/// only kernels without matrix units on them, and [`CardSpec::largest_binding`] limits each buffer.
fn register_spirv_types(properties: &mut DeviceProperties) {
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
