//! The description of a real device, from which a card like it can be simulated.

use burn::backend::DispatchDevice;
use burn::tensor::Device;
use cubecl_ir::features::{AtomicUsage, Plane, TypeUsage};
use cubecl_ir::{ElemType, FloatKind, Type};
use recording::{Bytes, Pools};
use serde::{Deserialize, Serialize};
use simulated_card::upstream;

use crate::Shaders;
use crate::card::{CardSpec, DeviceSpec, Runtime};

/// A real device, as CubeCL's runtime describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// The name that the device reports.
    pub name: String,
    /// The target that kernels are compiled for.
    pub target: String,
    /// Alignment of buffers in bytes.
    pub alignment: u64,
    /// The largest single allocation.
    pub largest_page: Bytes,
    /// Total memory, if the runtime knows it.
    pub memory: Option<Bytes>,
    /// Number of streaming multiprocessors, if the runtime knows it.
    pub multiprocessors: Option<u32>,
    /// Limits and features of its kernels.
    pub shaders: Shaders,
}

impl DeviceDescription {
    /// Opens `device` and describes it; `None` if CubeCL does not drive it.
    pub fn of(device: &Device) -> Option<Self> {
        let DispatchDevice::Cube(device) = device.as_dispatch().clone().inner() else {
            return None;
        };
        let client = device.client();
        let properties = client.properties();
        let hardware = &properties.hardware;
        let half = ElemType::Float(FloatKind::F16);
        let float = Type::atomic(ElemType::Float(FloatKind::F32));
        Some(Self {
            name: properties.identity.name.clone(),
            target: properties.identity.fingerprint.clone(),
            alignment: properties.memory.alignment,
            largest_page: Bytes(properties.memory.max_page_size),
            memory: properties.memory.max_memory().map(Bytes),
            multiprocessors: hardware.num_streaming_multiprocessors,
            shaders: Shaders {
                plane_size_min: hardware.plane_size_min,
                plane_size_max: hardware.plane_size_max,
                plane_operations: properties.features.plane.contains(Plane::Ops),
                max_bindings: hardware.max_bindings,
                max_shared_memory: hardware.max_shared_memory_size as u64,
                max_cube_count: hardware.max_cube_count,
                max_units_per_cube: hardware.max_units_per_cube,
                max_cube_dim: hardware.max_cube_dim,
                half: properties.type_usage(half).contains(TypeUsage::Arithmetic),
                float_atomics: properties
                    .atomic_type_usage(float)
                    .contains(AtomicUsage::Add),
            },
        })
    }

    /// A simulated device like this one. Its memory is unlimited if the runtime does not know the real size.
    pub fn spec(&self, runtime: Runtime) -> DeviceSpec {
        let unlimited = CardSpec::unlimited();
        let card = CardSpec {
            name: self.name.clone(),
            total: self.memory,
            // CUDA names its target after the compute capability: `ptx_sm86`.
            compute_capability: upstream::compute_capability(&self.target)
                .unwrap_or(unlimited.compute_capability),
            multiprocessors: self.multiprocessors.unwrap_or(unlimited.multiprocessors),
            largest_binding: self.largest_page,
            alignment: self.alignment,
            shaders: Some(self.shaders),
            ..unlimited
        };
        DeviceSpec::new(card, runtime)
    }
}

/// Statistics of the pools of `device`, simulated or real; zeros if the device reports none.
pub fn pools_of(device: &Device) -> Pools {
    let usage = device.memory_pool_usage();
    usage.map_or_else(Pools::default, |usage| Pools {
        allocations: usage.number_allocs,
        in_use: Bytes(usage.bytes_in_use),
        reserved: Bytes(usage.bytes_reserved),
    })
}
