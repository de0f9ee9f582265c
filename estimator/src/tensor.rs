//! From a burn tensor to the buffer under it.

use burn::backend::{BackendTensor, DispatchTensorKind, Rocm};
use burn::tensor::Tensor;
use burn::tensor::kind::Basic;
#[cfg(feature = "fusion")]
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use crate::Bytes;

/// The buffer under a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorBuffer {
    /// CubeCL's number for the managed memory; never used again for another.
    pub id: usize,
    /// What was asked for, rows padded as the runtime lays them out.
    pub bytes: Bytes,
}

/// The buffer under `tensor`, if it is on a device that CubeCL drives. Nothing is
/// computed for it, and nothing is kept alive by it.
pub fn buffer_of<const D: usize, K: Basic>(tensor: &Tensor<D, K>) -> Option<TensorBuffer> {
    match tensor.clone().into_dispatch().kind {
        DispatchTensorKind::Cube(tensor) => Some(cube_buffer(tensor)),
        DispatchTensorKind::Autodiff(inner) => match *inner {
            DispatchTensorKind::Cube(tensor) => Some(cube_buffer(tensor)),
            _ => None,
        },
        _ => None,
    }
}

/// `Rocm` is burn's name here for the one backend of every CubeCL runtime.
fn cube_buffer(tensor: BackendTensor<Rocm>) -> TensorBuffer {
    let memory = memory_of(tensor);
    TensorBuffer {
        id: memory.handle.memory.descriptor().id.value,
        bytes: Bytes(memory.handle.size()),
    }
}

#[cfg(not(feature = "fusion"))]
fn memory_of(tensor: BackendTensor<Rocm>) -> CubeTensor {
    match tensor {
        BackendTensor::Float(tensor)
        | BackendTensor::Int(tensor)
        | BackendTensor::Bool(tensor)
        | BackendTensor::Quantized(tensor) => tensor,
        BackendTensor::Autodiff(tensor) => tensor.into_primitive(),
    }
}

/// What fusion still holds back of the tensor's stream is done first, as at the end of a phase.
#[cfg(feature = "fusion")]
fn memory_of(tensor: BackendTensor<Rocm>) -> CubeTensor {
    match tensor {
        BackendTensor::Float(tensor) | BackendTensor::Quantized(tensor) => {
            let client = tensor.client.clone();
            client.resolve_tensor_float::<CubeBackend>(tensor)
        }
        BackendTensor::Int(tensor) => {
            let client = tensor.client.clone();
            client.resolve_tensor_int::<CubeBackend>(tensor)
        }
        BackendTensor::Bool(tensor) => {
            let client = tensor.client.clone();
            client.resolve_tensor_bool::<CubeBackend>(tensor)
        }
        BackendTensor::Autodiff(tensor) => memory_of(BackendTensor::Float(tensor.into_primitive())),
    }
}
