//! From a burn tensor to the buffer under it.

use burn::backend::{BackendTensor, DispatchTensorKind, Rocm};
use burn::tensor::Tensor;
use burn::tensor::kind::Basic;

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
    let tensor = match tensor {
        BackendTensor::Float(tensor)
        | BackendTensor::Int(tensor)
        | BackendTensor::Bool(tensor)
        | BackendTensor::Quantized(tensor) => tensor,
        BackendTensor::Autodiff(tensor) => tensor.into_primitive(),
    };
    TensorBuffer {
        id: tensor.handle.memory.descriptor().id.value,
        bytes: Bytes(tensor.handle.size()),
    }
}
