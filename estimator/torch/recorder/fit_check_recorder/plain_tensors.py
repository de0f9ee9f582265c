"""Methods that a tensor without data answers as a plain tensor would: its address, its values, its copies."""

from __future__ import annotations

import functools
import mmap
import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import custom_operators, values
from .recording import Recording

#: Zeros that stand for the data of storages on the processor. They live as long as the storage.
_zeros: weakref.WeakKeyDictionary[torch.UntypedStorage, torch.Tensor] = weakref.WeakKeyDictionary()

#: A check of more elements would take too long on the processor.
_MOST_CHECKED = 1 << 24


def install(recording: Recording) -> None:
    """Give fake tensors these methods."""
    storages = recording.storages

    def data_ptr(tensor: FakeTensor) -> int:
        """An address that no other storage has, with 2 MiB for each."""
        block = storages.block_of(tensor)
        if block is not None:
            custom_operators.on_address()
        base = _zeros_of(tensor.untyped_storage()) if block is None else (block + 1) << 21
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
            is_unknown = type(result) is FakeTensor and values.of(result) is None
            if is_unknown and result.numel() <= _MOST_CHECKED:
                recording.approximate_here("check taken as passed", f"{original.__name__} of a tensor on the card")
                # One element for all takes no memory, however large the tensor is.
                result._fit_value = values.Value(torch.ones((), dtype=torch.bool).expand(result.shape), [True])
            return result

        return true

    torch.isfinite, torch.Tensor.isfinite = true_of(torch.isfinite), true_of(torch.Tensor.isfinite)
    torch._is_all_true = true_of(torch._is_all_true)


def _zeros_of(storage: torch.UntypedStorage) -> int:
    """Where the data of a storage on the processor is, for who writes it into a file: pages that take no memory."""
    zeros = _zeros.get(storage)
    if zeros is None:
        pages = mmap.mmap(-1, max(storage.nbytes(), 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        zeros = _zeros[storage] = torch.frombuffer(pages, dtype=torch.uint8)
    return zeros.data_ptr()


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
