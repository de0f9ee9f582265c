//! The runtimes through which burn drives a card. A runtime is one file that implements
//! [`RuntimeRules`], one variant of [`Runtime`] and one line in [`Runtime::rules`].

mod cuda;
mod cuda_memory;
mod wgpu;
mod wgpu_memory;
mod wgpu_stream;

use std::fmt::Debug;
use std::sync::Arc;

use cubecl_common::device::ServiceId;
use cubecl_ir::{DeviceIdentity, DeviceProperties, MemoryDeviceProperties, TargetProperties};
use cubecl_server::logging::ServerLogger;
use cubecl_server::server::{DeviceCaptures, MemoryLayoutPolicy};
use cubecl_zspace::{Shape, Strides};
use recording::Bytes;
use serde::{Deserialize, Serialize};

use self::cuda::Cuda;
pub(crate) use self::cuda::shared_memory;
use self::wgpu::Wgpu;
use crate::card_spec::CardSpec;
use crate::memory::CardMemory;
use crate::storage::MemoryBudget;

/// The runtime through which burn drives the card: it decides layout, alignment,
/// pages, and what happens when the card is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::EnumString, strum::EnumIter, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Runtime {
    /// CubeCL's CUDA runtime.
    Cuda,
    /// CubeCL's wgpu runtime over Vulkan, compiling to SPIR-V.
    Vulkan,
    /// CubeCL's wgpu runtime, compiling to WGSL.
    Wgpu,
}

impl Runtime {
    /// How this runtime treats a card.
    pub fn rules(self) -> &'static dyn RuntimeRules {
        match self {
            Self::Cuda => &Cuda,
            Self::Vulkan => &Wgpu::Spirv,
            Self::Wgpu => &Wgpu::Wgsl,
        }
    }

    /// Whether programs on it can reduce tensors between cards: [`RuntimeRules::reduces_between_cards`].
    pub fn reduces_between_cards(self) -> bool {
        self.rules().reduces_between_cards()
    }
}

/// How a runtime treats a card. Each implementation follows CubeCL's runtime of the same name and cites its
/// source.
pub trait RuntimeRules: Debug + Sync {
    /// The name under which CubeCL's tuner knows the runtime.
    fn name(&self) -> &'static str;

    /// Whether the runtime drives cards of this `vendor`, as the catalogue names it.
    fn drives(&self, vendor: &str) -> bool;

    /// The properties that the runtime registers for `card`: types, features and limits, by which burn
    /// chooses kernels.
    fn properties(&self, card: &CardSpec) -> DeviceProperties;

    /// The part of the properties from which CubeCL makes its pools.
    fn memory_properties(&self, card: &CardSpec) -> MemoryDeviceProperties;

    /// The guarantees of the compiler's target.
    fn target(&self) -> TargetProperties;

    /// The memory of `card`: CubeCL's pools over `budget`.
    fn memory(
        &self,
        card: &CardSpec,
        budget: Arc<MemoryBudget>,
        service: ServiceId,
        logger: Arc<ServerLogger>,
        captures: DeviceCaptures,
    ) -> Box<dyn CardMemory>;

    /// The policy by which the runtime lays out tensors in a buffer, including the row padding.
    fn layout(&self, alignment: usize) -> Box<dyn MemoryLayoutPolicy>;

    /// The largest single allocation on `card`.
    fn largest_page(&self, card: &CardSpec) -> Bytes;

    /// Whether a shader binds whole buffers, so that [`CardSpec::largest_binding`] limits them. Such a runtime asks a
    /// driver for its limits, and never for the generation of a card.
    fn binds_whole_buffers(&self) -> bool;

    /// Whether the runtime submits queued work when the program waits for the device, or when burn's tuner begins or
    /// ends to time a kernel.
    fn submits_on_sync(&self) -> bool;

    /// Whether programs can reduce tensors between cards, and send them from card to card. Of CUDA's runtime this is true
    /// where it finds NCCL (`src/runtime.rs` of `cubecl-cuda` 0.11.3); burn's other runtimes have no such operations.
    fn reduces_between_cards(&self) -> bool {
        false
    }

    /// Whether kernels read a tensor with this shape and these strides without a copy.
    fn can_read(&self, shape: &Shape, strides: &Strides) -> bool;

    /// Size of a bool in bytes.
    fn bool_bytes(&self) -> usize;
}

/// The identity of `card`, whose kernels are compiled for `target`.
fn identity(card: &CardSpec, target: String) -> DeviceIdentity {
    DeviceIdentity {
        name: card.name.clone(),
        fingerprint: target,
        physical: None,
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    /// CUDA reads rows of 3 elements that are 4 elements apart (`cuMemAllocPitch` makes them so); wgpu
    /// reads contiguous tensors only, and burn copies the others first.
    #[test]
    fn a_pitched_tensor_is_read_by_cuda_alone() {
        let shape = Shape::from([2, 3]);
        let [packed, pitched] = [[3, 1], [4, 1]].map(Strides::from);
        for runtime in Runtime::iter() {
            let rules = runtime.rules();
            assert!(rules.can_read(&shape, &packed));
            let cuda = runtime == Runtime::Cuda;
            assert_eq!(rules.can_read(&shape, &pitched), cuda);
        }
    }
}
