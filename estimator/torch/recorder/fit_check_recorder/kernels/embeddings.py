"""Gradients of embeddings and of indexing (native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu)."""

from __future__ import annotations

from typing import Any

import torch

from ..settings import Card
from .inside import Inside, Rule

#: From more indices on they are sorted (`embedding_dense_backward_cuda`).
_SORTED_FROM = 3072
_ROWS_PER_THREAD = 10  # NROWS_PER_THREAD


def _embedding_backward(
    card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Inside | None:
    """Follow `embedding_backward_cuda_kernel`."""
    grad, indices, rows = args[0], args[1], args[2]
    count = indices.numel()
    by_frequency = bool(args[4]) if len(args) > 4 else False
    if count <= _SORTED_FROM and not by_frequency:
        return None
    index_bytes = count * indices.element_size()
    segments = min(count, rows)
    partial_rows = min(count, count // _ROWS_PER_THREAD + segments)
    sums = partial_rows * grad.shape[-1] * (8 if grad.dtype == torch.float64 else 4)
    # sorted and original indices before the gradient; segment offsets, partials per segment, their
    # offsets and the offsets of partial segments after it, with two counters.
    return Inside(before=[index_bytes] * 2, after=[index_bytes] * 4 + [512, 512, sums])


def _index_put(
    card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Inside | None:
    """Follow `index_put_with_sort_kernel` in native/cuda/Indexing.cu: linear, sorted, original indices."""
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    indices = [index for index in args[1] if index is not None]
    if not accumulate or not indices or indices[0].dtype == torch.bool:
        return None
    count = max(index.numel() for index in indices)
    return Inside(after=[count * 8] * 3)


RULES: dict[str, Rule] = {
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::index_put_": _index_put,
    "aten::_index_put_impl_": _index_put,
}
