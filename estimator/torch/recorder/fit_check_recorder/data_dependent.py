"""Operators whose result has a size that depends on data that is not there: bounds, and each is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor

from . import counts, values
from .roles import tensors_in

if TYPE_CHECKING:
    from .mode import CardMode

#: Of the boxes that come in, `nms` keeps at most all.
_NOTE = "data-dependent size"


def run(
    mode: CardMode,
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    known: tuple[Any, Any] | None,
) -> Any:
    """Return an empty result of the known size, or of the largest possible one."""
    if known is not None:
        value = known[0]
        if isinstance(value, torch.Tensor):
            return _like(mode, value, args)
        return tuple(_like(mode, part, args) for part in value)
    name = func._schema.name
    result = _bound(mode, name, args)
    if result is None:
        raise DynamicOutputShapeException(func)
    if not _is_exact(name, args):
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(result))
        mode.recording.approximate_here(_NOTE, name, size)
    return result


def _like(mode: CardMode, value: torch.Tensor, args: tuple[Any, ...]) -> FakeTensor:
    return mode.empty(value.shape, value.stride(), value.dtype, _device(args))


def _device(args: tuple[Any, ...]) -> torch.device:
    for tensor in tensors_in(args):
        if tensor.device.type == "cuda":
            return tensor.device
    return next(tensors_in(args)).device


def _bound(mode: CardMode, name: str, args: tuple[Any, ...]) -> Any:
    source = args[0]
    device = _device(args)
    count = source.numel()

    def empty(*shape: int, dtype: torch.dtype = torch.int64) -> FakeTensor:
        meta = torch.empty(shape, dtype=dtype, device="meta")
        return mode.empty(meta.shape, meta.stride(), dtype, device)

    if name == "aten::nonzero":
        return empty(counts.most_true(source), source.dim())
    if name == "aten::masked_select":
        return empty(count, dtype=source.dtype)
    if name == "aten::index":
        return _masked(mode, source, args[1], empty)
    if name == "torchvision::nms":
        return empty(source.shape[0])
    if name in ("aten::_unique2", "aten::unique_consecutive", "aten::_unique"):
        shape = source.shape
        return empty(count, dtype=source.dtype), empty(*shape), empty(count)
    if name in ("aten::unique_dim", "aten::unique_dim_consecutive"):
        return (
            empty(*source.shape, dtype=source.dtype),
            empty(source.shape[0]),
            empty(source.shape[0]),
        )
    if name == "aten::repeat_interleave":
        total = args[1] if len(args) > 1 and isinstance(args[1], int) else count
        return empty(total)
    if name == "aten::bincount":
        # Who names a least length has no larger value: a matrix of confusion is made of it.
        least = args[2] if len(args) > 2 else 0
        weights = args[1] if len(args) > 1 else None
        weighted = torch.float32 if weights is not None and weights.dtype == torch.float32 else torch.float64
        return empty(least or count, dtype=torch.int64 if weights is None else weighted)
    return None


def _is_exact(name: str, args: tuple[Any, ...]) -> bool:
    """Whether the size needs no values but those of a mask that is known: the labels that count, for one."""
    return name == "aten::index" and all(values.of(mask) is not None for mask in args[1] if mask is not None)


def _masked(mode: CardMode, source: torch.Tensor, indices: Any, empty: Any) -> FakeTensor | None:
    """Index with one boolean mask: all elements, unless the mask is known."""
    at = next((i for i, index in enumerate(indices) if index is not None), None)
    if at is None or sum(index is not None for index in indices) != 1:
        return None
    mask = indices[at]
    if mask.dtype not in (torch.bool, torch.uint8):
        return None
    value = values.of(mask)
    count = counts.most_true(mask) if value is None else int(value.sum())
    before, after = source.shape[:at], source.shape[at + mask.dim() :]
    return empty(*before, count, *after, dtype=source.dtype)
