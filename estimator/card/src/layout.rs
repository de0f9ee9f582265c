//! The size of a buffer, as CubeCL computes it from the shapes that a program allocates.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cubecl_common::device::ServiceId;
use cubecl_environment::stream::StreamId;
use cubecl_server::server::{
    Handle, MemoryLayout, MemoryLayoutDescriptor, MemoryLayoutPolicy, MemoryLayoutStrategy,
};
use recording::{Bytes, Layout, TensorLayout};

use crate::device_spec::DeviceSpec;

/// CubeCL's own rule by which a runtime lays out tensors in a buffer.
pub struct LayoutRule(Box<dyn MemoryLayoutPolicy>);

impl LayoutRule {
    /// The rule of the runtime of `spec`.
    pub fn new(spec: &DeviceSpec) -> Self {
        let rules = spec.runtime.rules();
        let alignment = rules.memory_properties(&spec.card).alignment as usize;
        Self(rules.layout(alignment))
    }

    /// The size of a buffer for `layout`. It does not depend on `service`, so any will do.
    pub fn bytes(&self, layout: &Layout, service: ServiceId) -> Bytes {
        let tensors = layout.0.iter();
        let descriptors: Vec<_> = tensors
            .map(|tensor| {
                let strategy = match tensor.pitched {
                    true => MemoryLayoutStrategy::Optimized,
                    false => MemoryLayoutStrategy::Contiguous,
                };
                let shape = tensor.shape.clone().into();
                MemoryLayoutDescriptor::new(strategy, shape, tensor.element_bytes)
            })
            .collect();
        let (handle, _) = self.0.apply(service, StreamId { value: 0 }, &descriptors);
        Bytes(handle.size())
    }
}

impl fmt::Debug for LayoutRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LayoutRule")
    }
}

/// Layouts of buffers that burn requested and the card has not allocated yet, by managed-memory id.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<HashMap<usize, Layout>>);

impl Notes {
    /// Removes and returns the layout of the buffer with this managed-memory id.
    pub fn take(&self, id: usize) -> Option<Layout> {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.remove(&id)
    }
}

/// A layout policy that notes each layout that burn requests.
#[derive(Debug)]
pub(crate) struct Noting {
    pub rule: LayoutRule,
    pub notes: Arc<Notes>,
}

impl MemoryLayoutPolicy for Noting {
    fn apply(
        &self,
        service: ServiceId,
        stream: StreamId,
        descriptors: &[MemoryLayoutDescriptor],
    ) -> (Handle, Vec<MemoryLayout>) {
        let (handle, layouts) = self.rule.0.apply(service, stream, descriptors);
        let tensors = descriptors.iter().map(|descriptor| TensorLayout {
            shape: descriptor.shape.iter().copied().collect(),
            element_bytes: descriptor.elem_size,
            pitched: matches!(descriptor.strategy, MemoryLayoutStrategy::Optimized),
        });
        let layout = Layout(tensors.collect());
        let mut notes = self.notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.insert(handle.memory.descriptor().id.value, layout);
        (handle, layouts)
    }
}
