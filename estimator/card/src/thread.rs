//! The card on whose thread something happens, for what CubeCL and burn ask of nobody in
//! particular.

use std::cell::RefCell;
use std::sync::Arc;

use cubecl_zspace::striding::{has_pitched_row_major_strides, row_major_contiguous_strides};
use cubecl_zspace::{Shape, Strides};

use crate::server::Shared;
use crate::spec::Runtime;

thread_local! {
    /// The card whose thread this is.
    static CARD: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// What happens on this thread from now on happens on `card`.
pub fn on_the_thread_of(card: Arc<Shared>) {
    CARD.set(Some(card));
}

/// Does `task` with the card whose thread this is, if it is one's.
pub(crate) fn here<R>(task: impl FnOnce(&Shared) -> R) -> Option<R> {
    CARD.with_borrow(|card| card.as_deref().map(task))
}

/// Whether kernels read a tensor of this shape as it lies, under the runtime of the card whose
/// thread this is; elsewhere under CUDA.
pub fn reads_here(shape: &Shape, strides: &Strides) -> bool {
    let runtime = here(|card| card.spec.runtime).unwrap_or(Runtime::Cuda);
    reads(runtime, shape, strides)
}

/// Whether kernels of `runtime` read a tensor of this shape as it lies: `can_read_tensor` of
/// `cubecl-cuda` and of `cubecl-wgpu` 0.11.3, `src/runtime.rs`.
pub fn reads(runtime: Runtime, shape: &Shape, strides: &Strides) -> bool {
    match runtime {
        Runtime::Cuda => has_pitched_row_major_strides(shape, strides),
        Runtime::Vulkan | Runtime::Wgpu => {
            shape.is_empty() || *strides == row_major_contiguous_strides(shape)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of 3 that are 4 apart are read by CUDA (`cuMemAllocPitch` makes them so), and copied on
    /// wgpu, whose rule is that of a contiguous tensor.
    #[test]
    fn a_pitched_tensor_is_read_by_cuda_alone() {
        let shape = Shape::from([2, 3]);
        let [packed, pitched] = [[3, 1], [4, 1]].map(Strides::from);
        for runtime in [Runtime::Cuda, Runtime::Vulkan, Runtime::Wgpu] {
            assert!(reads(runtime, &shape, &packed));
            assert_eq!(reads(runtime, &shape, &pitched), runtime == Runtime::Cuda);
        }
        assert!(reads_here(&shape, &pitched));
    }
}
