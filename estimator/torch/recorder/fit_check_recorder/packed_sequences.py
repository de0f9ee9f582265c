"""`pack_padded_sequence`, whose size the lengths tell: they are always on the processor.

PyTorch has no fake for it. The lines are those of `_pack_padded_sequence` (native/PackedSequence.cpp), so each copy
that its kernel makes is an operator of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    from .mode import CardMode, Operator

aten = torch.ops.aten


def pack(mode: CardMode, func: OpOverload, operator: Operator, args: Any, kwargs: Any, fake: bool) -> Any:
    """Run `_pack_padded_sequence`: steps with as many samples each lie one after the other."""
    padded, lengths, batch_first = args
    if isinstance(lengths, FakeTensor):
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got"
            f" {lengths.dim()}D {lengths.device} {lengths.dtype} tensor"
        )
    shortest_first = lengths.tolist()[::-1]
    if shortest_first != sorted(shortest_first):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True")
    if shortest_first[0] <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0")
    sizes: list[int] = []
    with mode:
        steps = padded.transpose(0, 1) if batch_first else padded
        parts = []
        for place, length in enumerate(shortest_first):
            samples = len(shortest_first) - place
            if length > len(sizes):
                part = steps[len(sizes) : length, :samples]
                if not part.is_contiguous():
                    part = part.clone(memory_format=torch.contiguous_format)
                parts.append(part.view(-1, *padded.shape[2:]))
                sizes += [samples] * (length - len(sizes))
        return torch.cat(parts), torch.tensor(sizes)


SPECIAL: dict[OpOverload, Any] = {aten._pack_padded_sequence.default: pack}
