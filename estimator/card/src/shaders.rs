//! The limits and features of kernels on a device that wgpu drives.

use serde::{Deserialize, Serialize};

/// The limits and features of kernels on a device that wgpu drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Shaders {
    /// Threads in the smallest subgroup.
    pub plane_size_min: u32,
    /// Threads in the largest subgroup.
    pub plane_size_max: u32,
    /// Whether the threads of a subgroup can work together.
    pub plane_operations: bool,
    /// Most buffers that a kernel can bind.
    pub max_bindings: u32,
    /// Most bytes of memory that the threads of a workgroup share.
    pub max_shared_memory: u64,
    /// Most workgroups in a launch, in each direction.
    pub max_cube_count: (u32, u32, u32),
    /// Most threads in a workgroup.
    pub max_units_per_cube: u32,
    /// Most threads in a workgroup, in each direction.
    pub max_cube_dim: (u32, u32, u32),
    /// Whether kernels compute with 16-bit floats.
    pub half: bool,
    /// Whether threads can add to the same 32-bit float. If so, burn sums a tensor in two launches and
    /// scatters with other metadata.
    pub float_atomics: bool,
}
