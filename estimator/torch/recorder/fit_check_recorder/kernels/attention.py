"""Attention and softmax, backward (aten/src/ATen/native/transformers/cuda, native/cuda/SoftMax.cu)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..settings import Card
from .gemm import TORCH
from .inside import Inside, Rule, round_up, size_of


def _flash_backward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Follow `mha_bwd` in flash_attn/flash_api.cpp, after dq, dk and dv."""
    grad, query, key = args[0], args[1], args[2]
    batch, heads, length, head = query.shape
    keys, key_heads = key.shape[2], key.shape[1]
    rows = round_up(length, 128)
    columns = round_up(head, 32 if head <= 128 else 64)
    after = [batch * heads * rows * 4, batch * rows * heads * columns * 4]
    if torch.are_deterministic_algorithms_enabled():
        splits = (card.multiprocessors + batch * heads - 1) // (batch * heads)
        after[1] *= splits
    if key_heads != heads:
        after += [batch * keys * heads * head * query.element_size()] * 2
    copy = not grad.transpose(1, 2).is_contiguous()
    return Inside(before=[size_of(grad)] if copy else [], after=after)


def _efficient_backward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Follow `_efficient_attention_backward` in attention_backward.cu, after the gradients."""
    grad, query, key, value = args[0], args[1], args[2], args[3]
    batch, heads, length, head = query.shape
    row_sums = batch * heads * length * 4
    copy = [] if grad.transpose(1, 2).is_contiguous() else [size_of(grad)]
    tile = _tile(card, query.dtype, max(head, value.shape[3]))
    workspace = batch * heads * round_up(_workspace_of_head(tile, batch * heads, query, key), 4) * 4
    if tile.half:
        after = [row_sums, workspace]
    else:
        # (grad_out * out).sum(-1).transpose(-2, -1).contiguous()
        product = batch * heads * length * value.shape[3] * 4
        after = [product, row_sums, row_sums, -1, -2, workspace]
    return Inside(before=copy, after=after)


@dataclass(frozen=True)
class _Tile:
    """The block of rows and of columns that a backward kernel works on, and what follows from it."""

    rows: int
    columns: int
    half: bool
    keeps_output: bool


def _tile(card: Card, dtype: torch.dtype, head: int) -> _Tile:
    """Follow the kernels of mem_eff_attention/kernels/generate_kernels.py (BwdKernel.get_all).

    Blocks of 128 rows need more shared memory than cards such as sm75, sm86, sm89 and sm120 have.
    """
    half = dtype in (torch.float16, torch.bfloat16)
    most = next(size for size in (32, 64, 128, 1 << 16) if head <= size)
    wide = most > 64 and (card.number >= 80 or (card.number >= 70 and half))
    rows = 128 if wide and card.number in (80, 90, 100, 103) else 64
    keeps = half and most <= rows
    columns = 128 if keeps and card.number >= 80 and most > 64 else 64
    return _Tile(rows, columns, half, keeps)


def _workspace_of_head(tile: _Tile, heads: int, query: torch.Tensor, key: torch.Tensor) -> int:
    """Floats for one head of one sample: `workspace_strideBH` in mem_eff_attention/kernel_backward.h."""
    length, head = query.shape[2], query.shape[3]
    # GradQTempStorage: 16 bytes and a tile of floats.
    blocks = -(-length // tile.rows) * -(-head // tile.columns)
    floats = blocks * (4 + tile.rows * tile.columns)
    if tile.half and not tile.keeps_output:
        splits = -(-key.shape[2] // tile.columns)
        if heads >= 256 and key.shape[2] <= 2 * tile.columns:
            splits = 1
        splits = max(1, min(splits, 200 // heads))
        floats += 2 * splits * tile.columns * round_up(head, tile.rows)
    return floats


def _softmax_backward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Follow `softmax_backward_cuda_out`, which makes `grad * output` first."""
    return Inside(after=[size_of(args[0])])


def _efficient_forward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """The seed and its offset are on the processor (Note [Seed and Offset Device]), or on the card in new versions.

    An H200 with PyTorch 2.11 has them not in its memory; an A6000 with 2.14.1 has 512 bytes for each of them.
    """
    return Inside(order=(0, 1, 2, 3) if TORCH >= (2, 14) else (0, 1))


def _cudnn_forward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """Follow `_cudnn_attention_forward`: seed and offset, output, sums; a workspace as an H200 shows it."""
    return Inside(before=[], order=(6, 7, 0, 1) if args[4] else (6, 7, 0), after=[256])


def _cudnn_backward(card: Card, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Inside:
    """cuDNN's workspace: dq in float32, a sum of each row, and dk and dv of each head if these are grouped.

    cuDNN says a size and not why. This is what it said on an H200 for heads of 64 and lengths of 128 to 2,048.
    """
    query, key = args[1], args[2]
    batch, heads, length, head = query.shape
    size = batch * heads * length * (head + 1) * 4 + 512
    if key.shape[1] != heads:
        size += 2 * batch * heads * key.shape[2] * head * query.element_size()
    return Inside(after=[size])


RULES: dict[str, Rule] = {
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::_scaled_dot_product_efficient_attention": _efficient_forward,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten::_scaled_dot_product_cudnn_attention": _cudnn_forward,
    "aten::_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
    "aten::_softmax_backward_data": _softmax_backward,
}
