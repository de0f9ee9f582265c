//! The hardware of a card.

use serde::{Deserialize, Serialize};

use crate::Bytes;
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
    pub const VULKAN_ALIGNMENT: u64 = 64;

    /// `max_storage_buffer_binding_size` if nothing else is known: NVIDIA's Vulkan driver states a
    /// `maxStorageBufferRange` of 2^32 - 1, which wgpu rounds down to whole words.
    pub const LARGEST_BINDING: Bytes = Bytes((1 << 32) - 4);

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
