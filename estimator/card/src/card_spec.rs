//! The hardware of a card.

use serde::{Deserialize, Serialize};

use crate::Bytes;
use crate::shaders::Shaders;

/// The hardware of a card, real or imagined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardSpec {
    /// Name under which burn and CubeCL know it.
    pub name: String,
    /// Memory that the runtime believes the card has: the largest page on CUDA is a
    /// quarter of it. `None`: as much as is ever asked for.
    pub total: Option<Bytes>,
    /// Part of `total` that other things hold: the context, libraries, a display.
    pub overhead: Bytes,
    /// Compute capability times ten, for instance 86; decides tensor cores and types.
    pub compute_capability: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The largest buffer that a shader can bind (`wgpu` and `vulkan`).
    pub largest_binding: Bytes,
    /// Alignment of buffers (`wgpu` and `vulkan`).
    pub alignment: u64,
    /// What kernels may use, where it is known of a real device (`wgpu` and `vulkan`).
    pub shaders: Option<Shaders>,
}

impl CardSpec {
    /// `minUniformBufferOffsetAlignment` of NVIDIA's Vulkan driver, the larger of the two
    /// that `cubecl-wgpu` 0.11.3, `src/runtime.rs`, takes; Mesa's software device has the same.
    pub const VULKAN_ALIGNMENT: u64 = 64;

    /// `max_storage_buffer_binding_size` where nothing else is known: NVIDIA's Vulkan driver
    /// states a `maxStorageBufferRange` of 2^32 - 1, of which wgpu takes whole words.
    pub const LARGEST_BINDING: Bytes = Bytes((1 << 32) - 4);

    /// An Ampere card (compute capability 8.6, 82 multiprocessors: those of an RTX 3090) with as much
    /// memory as is ever asked for.
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

    /// Memory that the pools may take from the card.
    pub fn available(&self) -> Option<Bytes> {
        self.total.map(|total| total.saturating_sub(self.overhead))
    }
}
