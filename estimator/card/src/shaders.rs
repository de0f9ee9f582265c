//! What kernels may use on a device behind wgpu.

use serde::{Deserialize, Serialize};

/// What kernels may use on a device behind wgpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Shaders {
    /// Threads in the smallest subgroup.
    pub plane_size_min: u32,
    /// Threads in the largest subgroup.
    pub plane_size_max: u32,
    /// Whether the threads of a subgroup can work together.
    pub plane_operations: bool,
    /// Buffers that a kernel may bind.
    pub max_bindings: u32,
    /// Bytes of memory that the threads of a workgroup share.
    pub max_shared_memory: u64,
    /// Workgroups in a launch.
    pub max_cube_count: (u32, u32, u32),
    /// Threads in a workgroup.
    pub max_units_per_cube: u32,
    /// Threads in a workgroup, in each direction.
    pub max_cube_dim: (u32, u32, u32),
    /// Whether it computes with 16-bit floats.
    pub half: bool,
    /// Whether threads can add to the same 32-bit float: then burn adds up a tensor in two launches,
    /// and scatters with other metadata.
    pub float_atomics: bool,
}
