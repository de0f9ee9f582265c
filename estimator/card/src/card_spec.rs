//! The hardware of a card.

use recording::Bytes;
use serde::{Deserialize, Serialize};

use crate::shaders::Shaders;

/// The hardware of a card, real or imagined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardSpec {
    /// The name by which burn and CubeCL know the card.
    pub name: String,
    /// Total memory as the runtime sees it; on CUDA the largest page is a quarter of it. `None`: unlimited.
    pub total: Option<Bytes>,
    /// The part of `total` that the context, libraries or a display occupy.
    pub overhead: Bytes,
    /// Compute capability times ten, for instance 86; decides tensor cores and types.
    pub compute_capability: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The largest buffer that a shader can bind (`wgpu` and `vulkan`).
    pub largest_binding: Bytes,
    /// Alignment of buffers (`wgpu` and `vulkan`).
    pub alignment: u64,
    /// Limits and features of kernels, if a real device has reported them (`wgpu` and `vulkan`).
    pub shaders: Option<Shaders>,
}

impl CardSpec {
    /// Alignment in bytes: `minUniformBufferOffsetAlignment` of NVIDIA's Vulkan driver, the larger of the two
    /// limits that `cubecl-wgpu` 0.11.3, `src/runtime.rs`, uses; Mesa's software device has the same.
    const VULKAN_ALIGNMENT: u64 = 64;

    /// The largest buffer that a shader can bind if nothing else is known: with Vulkan and DX12, `wgpu-hal` 30.0.1
    /// states no more than 2^31 - 1 bytes, whatever the driver states (`MAX_I32_BINDING_SIZE` in `src/auxil/mod.rs`,
    /// `src/vulkan/adapter.rs`, `src/dx12/adapter.rs`), rounded down to whole words.
    ///
    /// On a driver with 64-bit indexing in shaders, SPIR-V kernels can bind buffers as large as the card's memory
    /// (`max_page_size` in `cubecl-wgpu` 0.11.3, `src/backend/vulkan.rs`). Simulated cards have no such driver.
    pub const LARGEST_BINDING: Bytes = Bytes((1 << 31) - 4);

    /// An Ampere card (compute capability 8.6, 82 multiprocessors, as an RTX 3090) with unlimited memory.
    pub fn unlimited() -> Self {
        Self {
            name: "unlimited card".into(),
            total: None,
            overhead: Bytes::ZERO,
            compute_capability: 86,
            multiprocessors: 82,
            largest_binding: Self::LARGEST_BINDING,
            alignment: Self::VULKAN_ALIGNMENT,
            shaders: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2,147,483,644 bytes are the largest multiple of 4 (`STORAGE_BINDING_SIZE_ALIGNMENT` of `wgpu-types` 30.0.1) that
    /// an `i32` can hold.
    #[test]
    fn a_shader_binds_as_much_as_an_i32_can_count() {
        assert_eq!(CardSpec::LARGEST_BINDING, Bytes(2_147_483_644));
    }
}
