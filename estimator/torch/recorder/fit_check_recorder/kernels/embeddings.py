"""Gradients of embeddings and of indexing (native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu)."""

from __future__ import annotations

from typing import Any

import torch

from ..settings import Card
from .inside import Inside, Rule
from .reductions import SCAN_BYTES

#: From more indices on they are sorted (`embedding_dense_backward_cuda`).
_SORTED_FROM = 3072
_ROWS_PER_THREAD = 10  # NROWS_PER_THREAD
#: The temporary storage of cub's radix sort for some thousand pairs, as an H200 shows it.
_SORT_BYTES = 83455


def _embedding_backward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `embedding_backward_cuda_kernel`."""
    grad, indices, rows = args[0], args[1], args[2]
    count = indices.numel()
    by_frequency = bool(args[4]) if len(args) > 4 else False
    if count <= _SORTED_FROM and not by_frequency:
        return None
    width = indices.element_size()
    index_bytes = count * width
    segments = min(count, rows)
    partial_rows = count // _ROWS_PER_THREAD + segments
    sums = partial_rows * grad.shape[-1] * (8 if grad.dtype == torch.float64 else 4)
    # Before the gradient: a contiguous copy of the indices, the sorted and the original ones. After it:
    # the segments' offsets, the number of segments, partials of each segment and their offsets, the number
    # of partials, their offsets, and the sums of each.
    copy = [] if indices.is_contiguous() else [index_bytes]
    return Inside(
        before=[*copy, index_bytes, index_bytes],
        after=[
            index_bytes,
            8,
            index_bytes,
            SCAN_BYTES,
            -3,
            -4,
            segments * width,
            segments * width,
            SCAN_BYTES,
            -7,
            8,
            partial_rows * width,
            sums,
        ],
        brief=[index_bytes, _SORT_BYTES],
    )


def _embedding(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `embedding_symint` in native/Embedding.cpp: `weight.index_select(0, indices.reshape(-1))`."""
    indices = args[1]
    if indices.dim() <= 1 or indices.is_contiguous():
        return None
    return Inside(before=[indices.numel() * indices.element_size()])


def _index_put(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside | None:
    """Follow `index_put_with_sort_kernel` in native/cuda/Indexing.cu: linear, sorted, original indices."""
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    indices = [index for index in args[1] if index is not None]
    if not accumulate or not indices or indices[0].dtype == torch.bool:
        return None
    count = max(index.numel() for index in indices)
    return Inside(after=[count * 8] * 3)


RULES: dict[str, Rule] = {
    "aten::embedding": _embedding,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::index_put_": _index_put,
    "aten::_index_put_impl_": _index_put,
}
