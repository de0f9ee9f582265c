"""Methods that a tensor without data answers as a plain tensor would: its address, its values, its copies."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import values
from .recording import Recording


def install(recording: Recording) -> None:
    """Give fake tensors these methods."""
    storages = recording.storages

    def data_ptr(tensor: FakeTensor) -> int:
        """An address that no other storage has, with 2 MiB for each."""
        block = storages.block_of(tensor)
        base = tensor.untyped_storage()._cdata if block is None else (block + 1) << 21
        return base + tensor.storage_offset() * tensor.element_size()

    def known(tensor: FakeTensor) -> torch.Tensor:
        """The values, or zeros, of which the answer says so."""
        value = values.of(tensor)
        if value is None:
            recording.approximate_here("value read as zero", "a tensor without data")
            value = torch.zeros(tensor.shape, dtype=tensor.dtype)
        return value

    def numpy(tensor: FakeTensor, *, force: bool = False) -> Any:
        if tensor.device.type == "cuda" and not force:
            raise TypeError(
                f"can't convert {tensor.device} device type tensor to numpy. Use Tensor.cpu() to"
                " copy the tensor to host memory first."
            )
        return known(tensor).numpy()

    FakeTensor.data_ptr = data_ptr
    FakeTensor.numpy = numpy
    FakeTensor.__array__ = lambda tensor, dtype=None: numpy(tensor).astype(dtype or None)
    FakeTensor.tolist = lambda tensor: known(tensor).tolist()
    FakeTensor.__deepcopy__ = _deepcopy

    def true_of(original: Any) -> Any:
        @functools.wraps(original)
        def true(tensor: torch.Tensor) -> torch.Tensor:
            """Unknown values are finite and what a distribution allows: a program stops where they are not."""
            result: torch.Tensor = original(tensor)
            if type(result) is FakeTensor and values.is_small(result) and values.of(result) is None:
                recording.approximate_here("check taken as passed", f"{original.__name__} of a tensor on the card")
                result._fit_value = values.Value(torch.ones(result.shape, dtype=torch.bool), [True])
            return result

        return true

    torch.isfinite, torch.Tensor.isfinite = true_of(torch.isfinite), true_of(torch.Tensor.isfinite)
    torch._is_all_true = true_of(torch._is_all_true)


def _deepcopy(tensor: FakeTensor, memo: dict[int, Any]) -> torch.Tensor:
    if id(tensor) in memo:
        return memo[id(tensor)]
    with torch.no_grad():
        result: torch.Tensor = tensor.detach().clone()
        if getattr(tensor, "_is_param", False):
            result = torch.nn.Parameter(result, tensor.requires_grad)
        elif tensor.requires_grad:
            result.requires_grad_()
        if tensor.grad is not None:
            result.grad = tensor.grad.clone()
    memo[id(tensor)] = result
    return result
