//! Finds the buffer under a burn tensor.

use burn::backend::{BackendTensor, DispatchTensorKind, Rocm};
use burn::tensor::Tensor;
use burn::tensor::kind::Basic;
#[cfg(feature = "fusion")]
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use recording::Bytes;

/// The buffer under a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorBuffer {
    /// CubeCL's id of the managed memory; CubeCL never uses it again for another.
    pub id: usize,
    /// The requested size, with rows padded as the runtime lays them out.
    pub bytes: Bytes,
}

/// A handle that keeps the buffer under a tensor in use.
#[derive(Clone, Debug)]
pub struct BufferHandle(CubeTensor);

impl BufferHandle {
    /// The buffer.
    pub fn buffer(&self) -> TensorBuffer {
        TensorBuffer {
            id: self.0.handle.memory.descriptor().id.value,
            bytes: Bytes(self.0.handle.size()),
        }
    }
}

/// Checks that the launches that should have written to `handles` did so: a program that reads the buffers
/// would get the same answer. A runtime goes on after the card refused memory, and only the buffers that
/// depend on the refused one know.
///
/// # Errors
///
/// One of the buffers was not written; the text is the reason.
pub fn check_written(handles: &[BufferHandle]) -> Result<(), String> {
    let Some(BufferHandle(first)) = handles.first() else {
        return Ok(());
    };
    let buffers = handles.iter().map(|BufferHandle(tensor)| &tensor.handle);
    let written = first.client.check(buffers);
    written.map_err(|error| cause(&error.to_string()))
}

/// The cause of `error`, to which CubeCL adds every launch that it skipped on the way: the line after the
/// last `Caused by:`, or all of it.
fn cause(error: &str) -> String {
    let mut lines = error.lines().map(str::trim);
    let mut last = None;
    while lines.by_ref().any(|line| line == "Caused by:") {
        last = lines.next().or(last);
    }
    last.unwrap_or(error).to_string()
}

/// The buffer under `tensor`, if CubeCL drives its device. This computes nothing and keeps nothing alive.
pub fn buffer_of<const D: usize, K: Basic>(tensor: &Tensor<D, K>) -> Option<TensorBuffer> {
    handle_of(tensor).map(|handle| handle.buffer())
}

/// A handle on the buffer under `tensor`, if CubeCL drives its device. This computes nothing.
///
/// `Rocm` is burn's name for the one backend of every CubeCL runtime.
pub fn handle_of<const D: usize, K: Basic>(tensor: &Tensor<D, K>) -> Option<BufferHandle> {
    #[allow(
        unreachable_patterns,
        reason = "burn may be built with another backend beside CubeCL's, and then there are others"
    )]
    let cube: BackendTensor<Rocm> = match tensor.clone().into_dispatch().kind {
        DispatchTensorKind::Cube(tensor) => tensor,
        DispatchTensorKind::Autodiff(inner) => match *inner {
            DispatchTensorKind::Cube(tensor) => tensor,
            _ => return None,
        },
        _ => return None,
    };
    Some(BufferHandle(memory_of(cube)))
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

/// First executes what fusion still holds back of the tensor's stream, as at the end of a phase.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_what_is_told_last() {
        let told = "never written\n  skipped `A`\nCaused by:\n  An IO error happened\nCaused by:\n  \
                    out of device memory allocating 5 bytes\nNo backtrace available\nAsked at:\nNo";
        assert_eq!(cause(told), "out of device memory allocating 5 bytes");
        assert_eq!(cause("lost"), "lost");
    }
}
