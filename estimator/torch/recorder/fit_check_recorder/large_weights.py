"""Large weights take no memory: a parameter on the processor keeps its shape and gives up its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    from .mode import CardMode

#: Smaller parameters keep their values on the processor, where programs look at some.
LARGE_BYTES = 1 << 20


def install(mode: CardMode) -> None:
    """Make each large parameter one without data, as soon as it becomes a parameter."""
    original = torch.nn.Parameter.__new__

    def new(cls: type[torch.nn.Parameter], data: Any = None, requires_grad: bool = True, **kwargs: Any) -> Any:
        if type(data) is torch.Tensor and _is_large(data) and cls is torch.nn.Parameter:
            data = mode.fake_of(data)
        return original(cls, data, requires_grad, **kwargs)

    torch.nn.Parameter.__new__ = staticmethod(new)


def _is_large(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.numel() * tensor.element_size() >= LARGE_BYTES
    )


def untouched(tensor: Any) -> Any:
    """A real tensor on the processor in place of one without data; nobody writes its pages, so it takes none."""
    if isinstance(tensor, FakeTensor) and tensor.device.type == "cpu":
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return tensor
