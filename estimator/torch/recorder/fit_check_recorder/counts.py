"""How many elements of a mask can be true at most, where the program itself limits that.

A sampler that marks 512 of 268,000 anchors in a mask of zeros, and then asks for the marked ones, gets 512,
whatever the data is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .roles import tensors_in

_ATTRIBUTE = "_fit_most_true"


def most_true(tensor: torch.Tensor) -> int:
    """The most elements that can be true."""
    return min(tensor.numel(), tensor.__dict__.get(_ATTRIBUTE, tensor.numel()))


def _known(tensor: Any) -> int | None:
    return tensor.__dict__.get(_ATTRIBUTE) if isinstance(tensor, FakeTensor) else None


def _zero(args: tuple[Any, ...], result: Any) -> int | None:
    return 0


def _marked(args: tuple[Any, ...], result: Any) -> int | None:
    """`mask[indices] = value` adds as many as there are indices."""
    before = _known(args[0])
    indices = [index for index in args[1] if index is not None]
    if before is None or len(indices) != 1:
        return None
    index = indices[0]
    added = most_true(index) if index.dtype in (torch.bool, torch.uint8) else index.numel()
    rest = 1
    for size in args[0].shape[max(index.dim(), 1) if index.dtype == torch.bool else 1 :]:
        rest *= size
    return before + added * rest


def _filled(args: tuple[Any, ...], result: Any) -> int | None:
    """`index_fill_`, which PyTorch takes for one index and a scalar."""
    mask, dimension, index = args[:3]
    before = _known(mask)
    if before is None:
        return None
    return before + index.numel() * (mask.numel() // max(mask.shape[dimension], 1))


def _sum(args: tuple[Any, ...], result: Any) -> int | None:
    """`cat` and `|` add up."""
    known = [_known(tensor) for tensor in tensors_in(args)]
    return None if None in known else sum(count for count in known if count is not None)


_RULES: dict[str, Callable[[tuple[Any, ...], Any], int | None]] = {
    "aten::zeros": _zero,
    "aten::zeros_like": _zero,
    "aten::new_zeros": _zero,
    "aten::index_put_": _marked,
    "aten::index_fill_": _filled,
    "aten::cat": _sum,
    "aten::bitwise_or": _sum,
    "aten::logical_or": _sum,
    "aten::__or__": _sum,
}


def follow(name: str, args: tuple[Any, ...], result: Any) -> None:
    """Note the count of a result, or that it is unknown after something else was written."""
    rule = _RULES.get(name)
    if type(result) is not FakeTensor or result.dtype not in (torch.bool, torch.uint8):
        return
    count = rule(args, result) if rule else None
    if count is not None:
        setattr(result, _ATTRIBUTE, count)
    elif _ATTRIBUTE in result.__dict__:
        delattr(result, _ATTRIBUTE)
