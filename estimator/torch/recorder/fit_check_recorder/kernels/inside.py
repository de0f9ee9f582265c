"""What one launch of an operator allocates besides its outputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..settings import Card


@dataclass(frozen=True)
class Inside:
    """Sizes in bytes. All are freed when the operator returns, but those that stay."""

    #: Allocated before the outputs, in this order; -k frees the k-th of them.
    before: Sequence[int] = ()
    #: Allocated after those, and freed before the outputs are.
    brief: Sequence[int] = ()
    #: Allocated after the outputs, in this order; -k frees the k-th of them.
    after: Sequence[int] = ()
    #: Allocated after the output of this number and freed before the next: a kernel does without if memory is short.
    each: Mapping[int, Sequence[int]] = field(default_factory=dict)
    #: Allocated once and kept by PyTorch.
    stays: Sequence[int] = ()
    #: An output that is allocated last.
    last: Any = None
    #: Whether it multiplies matrices with cuBLAS.
    gemm: bool = False
    #: The outputs in the order in which they are allocated, if that is not their own; others are not on the card.
    order: Sequence[int] | None = None
    #: Whether the sizes are at most so large, and not exact.
    bound: bool = False
    #: The name of what is allocated after each output, which a rule knows about, and not exactly.
    rule: str | None = None
    #: What else the kernel takes, which nobody knows without its library.
    unknown: str | None = None
    #: What cuDNN tries kernels for when it meets it first: for the first output, and then for the second.
    tried: Hashable = None


Rule = Callable[[Card, tuple[Any, ...], dict[str, Any], Any], Inside | None]


def size_of(tensor: torch.Tensor) -> int:
    """The bytes of a contiguous copy."""
    return tensor.numel() * tensor.element_size()


def round_up(value: int, multiple: int) -> int:
    """The next multiple."""
    return (value + multiple - 1) // multiple * multiple


def device_of(args: tuple[Any, ...]) -> int:
    """The index of the card that an operator runs on."""
    for value in args:
        if isinstance(value, torch.Tensor):
            if value.device.type == "cuda":
                return value.device.index or 0
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, torch.Tensor):
                    return item.device.index or 0
                break
    return 0
