//! What a simulated card is like.

use cubecl_server::server::IoError;
use serde::{Deserialize, Serialize};

use crate::Bytes;
use crate::properties;
use crate::record::Refusal;
use crate::shaders::Shaders;
use crate::tuning::{Favour, Tuning};

/// The runtime through which burn drives the card: it decides layout, alignment,
/// pages, and what happens when the card is full.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Runtime {
    /// CubeCL's CUDA runtime.
    Cuda,
    /// CubeCL's wgpu runtime over Vulkan, compiling to SPIR-V.
    Vulkan,
    /// CubeCL's wgpu runtime, compiling to WGSL.
    Wgpu,
}

/// How far the thread that makes a program's calls on the device is behind the program. Which
/// tensors the program has dropped by the time of an allocation depends on it, and so which page
/// a buffer finds free. On a real card it changes from moment to moment, between these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// Calls are made as soon as they are handed over.
    InStep,
    /// Calls are made when the program has as many more ready as CubeCL's channel holds:
    /// a device's thread that is slow, or seldom gets a turn.
    Behind,
    /// Now the one and now the other, and all between: a number says which of the ways in which that
    /// can happen.
    Varying(u64),
}

impl Pace {
    /// How far the thread can be behind, beside keeping up: the furthest, and samples of what is
    /// between. Which of all the ways is the worst cannot be said, since it depends on the pages.
    pub const OTHERS: [Self; 9] = [
        Self::Behind,
        Self::Varying(1),
        Self::Varying(2),
        Self::Varying(3),
        Self::Varying(4),
        Self::Varying(5),
        Self::Varying(6),
        Self::Varying(7),
        Self::Varying(8),
    ];
}

/// A card that does not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardSpec {
    /// Name under which burn and CubeCL know it.
    pub name: String,
    /// How burn drives it.
    pub runtime: Runtime,
    /// Memory that the runtime believes the card has: the largest page on CUDA is a
    /// quarter of it. `None`: as much as is ever asked for.
    pub total: Option<Bytes>,
    /// Part of `total` that other things hold: the context, libraries, a display.
    pub taken: Bytes,
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
    /// Whether burn fuses operations on it, where it is built with `fusion`.
    pub fused: bool,
    /// What burn's tuner knows of it when a program begins.
    pub tuning: Tuning,
    /// Which of the kernels that burn's tuner tries it is fastest at.
    pub favour: Favour,
    /// How far its thread is behind the program.
    pub pace: Pace,
}

impl CardSpec {
    /// Alignment that CubeCL's CUDA runtime asks for: `mem_alignment` of `cubecl-cuda`
    /// 0.11.3, `src/runtime.rs`.
    pub const CUDA_ALIGNMENT: u64 = 512;

    /// `minUniformBufferOffsetAlignment` of NVIDIA's Vulkan driver, the larger of the two
    /// that `cubecl-wgpu` 0.11.3, `src/runtime.rs`, takes; Mesa's software device has the same.
    pub const VULKAN_ALIGNMENT: u64 = 64;

    /// `max_storage_buffer_binding_size` where nothing else is known: NVIDIA's Vulkan driver
    /// states a `maxStorageBufferRange` of 2^32 - 1, of which wgpu takes whole words.
    pub const LARGEST_BINDING: Bytes = Bytes((1 << 32) - 4);

    /// A card without limits, driven by `runtime`: what a step reserves where there is room.
    /// Its kernels are those of an Ampere card (compute capability 8.6).
    pub fn endless(runtime: Runtime) -> Self {
        Self {
            name: "endless card".into(),
            runtime,
            total: None,
            taken: Bytes::ZERO,
            compute_capability: 86,
            multiprocessors: 82,
            largest_binding: Self::LARGEST_BINDING,
            alignment: Self::VULKAN_ALIGNMENT,
            shaders: None,
            fused: true,
            tuning: Tuning::Warm,
            favour: Favour::Expected,
            pace: Pace::InStep,
        }
    }

    /// This card with `total` bytes of memory, of which `taken` are not for the job.
    pub fn with_memory(self, total: Bytes, taken: Bytes) -> Self {
        Self {
            total: Some(total),
            taken,
            ..self
        }
    }

    /// This card with as much memory as is ever asked for.
    pub fn without_limit(&self) -> Self {
        Self {
            total: None,
            taken: Bytes::ZERO,
            ..self.clone()
        }
    }

    /// What is the same in two cards on which burn offers the same kernels. How many
    /// multiprocessors there are only decides how a kernel's work is divided among them; what the
    /// tuner knows, which candidate is fastest and how far the thread is behind are not the card's.
    pub fn kernels(&self) -> Self {
        let units = match properties::has_matrix_units(self) {
            true => "matrix units",
            false => "no matrix units",
        };
        Self {
            name: units.into(),
            multiprocessors: 0,
            tuning: Tuning::default(),
            favour: Favour::default(),
            pace: Pace::InStep,
            largest_binding: match self.runtime {
                // Nothing is bound there.
                Runtime::Cuda => Self::LARGEST_BINDING,
                Runtime::Vulkan | Runtime::Wgpu => self.largest_binding,
            },
            ..self.without_limit()
        }
    }

    /// Memory that the pools may take from the card.
    pub fn available(&self) -> Option<Bytes> {
        self.total.map(|total| total.saturating_sub(self.taken))
    }

    /// The most bytes of shared memory that a block may opt in to, on CUDA.
    pub fn shared_memory_per_block(&self) -> usize {
        properties::shared_memory(self.compute_capability)
    }

    /// The largest single allocation.
    pub fn largest_page(&self) -> Bytes {
        match (self.runtime, self.total) {
            // `cubecl-cuda` 0.11.3, `src/runtime.rs`: `max_memory / 4`.
            (Runtime::Cuda, Some(total)) => total / 4,
            (Runtime::Cuda, None) => Bytes(u64::MAX / 8),
            _ => self.largest_binding,
        }
    }

    /// What `error` says about an allocation that such a card refused.
    pub fn refusal(&self, error: &IoError) -> Refusal {
        match error {
            IoError::BufferTooBig { .. } => Refusal::TooLarge {
                largest: self.largest_page(),
            },
            _ => Refusal::Full,
        }
    }
}
