"""Reductions and norms that need room beyond their result."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..settings import Card
from .inside import Inside, Rule


def _layer_norm_backward(
    card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Inside | None:
    """Follow `LaunchGammaBetaBackwardCUDAKernel` in native/cuda/layer_norm_kernel.cu.

    With many rows of few columns it adds up blocks of rows first.
    """
    source, shape, mask = args[1], args[2], args[-1]
    columns = math.prod(shape)
    rows = source.numel() // columns if columns else 0
    if rows <= 64 * 1024 or columns // 32 >= card.multiprocessors // 2:
        return None
    blocks_x = (columns + 31) // 32
    blocks_y = min(64 * 1024 // 2 // blocks_x, (rows + 31) // 32)
    block = blocks_y * columns * source.element_size()
    return Inside(after=[block for wanted in mask[1:] if wanted])


def _foreach_norm(
    card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Inside | None:
    """Follow `foreach_tensor_norm_cuda` in native/cuda/ForeachReduceOp.cu: a partial norm for each chunk."""
    tensors = args[0]
    if not tensors:
        return None
    largest = max(tensor.numel() for tensor in tensors)
    chunks = (largest + 65536 - 1) // 65536  # kChunkSize
    width = 8 if tensors[0].dtype == torch.float64 else 4
    return Inside(before=[len(tensors) * chunks * width])


RULES: dict[str, Rule] = {
    "aten::native_layer_norm_backward": _layer_norm_backward,
    "aten::_foreach_norm": _foreach_norm,
}
